//! Saves the files in a user's message as artifacts instead of in the session.

use std::sync::Arc;

use hatchery_core::{CallContext, Content, Part, PartData, RunError};

/// Returns the message as it is stored. If the run is configured so, saves each file as the artifact
/// `artifact_<invocation>_<part>`, records it in the actions of `cx`, and replaces it with text that names it.
pub(super) async fn save_as_artifacts(cx: &CallContext, message: Arc<Content>) -> Result<Arc<Content>, RunError> {
    if !cx.invocation.run_config.save_input_blobs_as_artifacts {
        return Ok(message);
    }
    let replacing = cx.invocation.cancel.run_until_cancelled(replace_blobs(cx, &message));
    replacing.await.ok_or(RunError::Cancelled)?.map(Arc::new)
}

async fn replace_blobs(cx: &CallContext, message: &Content) -> Result<Content, RunError> {
    let mut replaced = message.clone();
    for (index, part) in replaced.parts.iter_mut().enumerate() {
        if let PartData::InlineData(_) = &part.data {
            let name = format!("artifact_{}_{index}", cx.invocation.id);
            cx.save_artifact(&name, part).await?;
            *part = Part::text(format!("Uploaded file: {name}. It has been saved to the artifacts"));
        }
    }
    Ok(replaced)
}
