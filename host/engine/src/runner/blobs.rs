//! Saves the files in a user's message as artifacts instead of in the session.

use std::sync::Arc;

use hatchery_core::{CallContext, Content, Event, Invocation, Part, PartData, RunError, USER_AUTHOR};

/// Returns the message as it is stored. If the run is configured so, saves each file as the artifact
/// `artifact_<invocation>_<part>`, records it in the actions of `cx`, and replaces it with text that names it. The name
/// ends in `.<number>` if the run has this many earlier messages.
pub(super) async fn save_as_artifacts(cx: &CallContext, message: Arc<Content>) -> Result<Arc<Content>, RunError> {
    if !cx.invocation.run_config.save_input_blobs_as_artifacts || !message.parts.iter().any(is_file) {
        return Ok(message);
    }
    let replacing = cx.invocation.cancel.run_until_cancelled(replace_blobs(cx, &message));
    replacing.await.ok_or(RunError::Cancelled)?.map(Arc::new)
}

async fn replace_blobs(cx: &CallContext, message: &Content) -> Result<Content, RunError> {
    let mut replaced = message.clone();
    let suffix = match earlier_messages(&cx.invocation) {
        0 => String::new(),
        // An earlier message may have a file at the same position.
        count => format!(".{count}"),
    };
    for (index, part) in replaced.parts.iter_mut().enumerate() {
        if is_file(part) {
            let name = format!("artifact_{}_{index}{suffix}", cx.invocation.id);
            cx.save_artifact(&name, part).await?;
            *part = Part::text(format!("Uploaded file: {name}. It has been saved to the artifacts"));
        }
    }
    Ok(replaced)
}

fn is_file(part: &Part) -> bool {
    matches!(part.data, PartData::InlineData(_))
}

/// Returns the number of messages that the user has sent to the run.
fn earlier_messages(invocation: &Invocation) -> usize {
    let is_message = |event: &&Arc<Event>| {
        event.invocation_id == invocation.id && event.author == USER_AUTHOR && event.content.is_some()
    };
    invocation.events().iter().filter(is_message).count()
}
