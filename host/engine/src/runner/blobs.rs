//! Files in a user's message, kept as artifacts instead of in the session.

use std::sync::Arc;

use hatchery_core::{CallContext, Content, Part, PartData, RunError};

/// What the user said, as it is stored. When the run wants it so, each file is saved as the artifact `artifact_<invocation>_<part>`, noted
/// in the changes of `cx`, and only named in the content.
pub(super) async fn kept_as_artifacts(cx: &CallContext, message: Arc<Content>) -> Result<Arc<Content>, RunError> {
    if !cx.invocation.run_config.save_input_blobs_as_artifacts {
        return Ok(message);
    }
    let saving = cx.invocation.cancel.run_until_cancelled(saved(cx, &message));
    saving.await.ok_or(RunError::Cancelled)?.map(Arc::new)
}

async fn saved(cx: &CallContext, message: &Content) -> Result<Content, RunError> {
    let mut stored = message.clone();
    for (index, part) in stored.parts.iter_mut().enumerate() {
        if let PartData::InlineData(_) = &part.data {
            let name = format!("artifact_{}_{index}", cx.invocation.id);
            cx.save_artifact(&name, part).await?;
            *part = Part::text(format!("Uploaded file: {name}. It has been saved to the artifacts"));
        }
    }
    Ok(stored)
}
