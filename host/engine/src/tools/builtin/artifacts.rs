//! `load_artifacts`: lets the model read artifacts of the session.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Content, FunctionDeclaration, JsonMap, LlmRequest, MAX_LOADED_BYTES, Part, PartData, RunError,
    StoreError, Tool, ToolError, pluralize,
};
use serde_json::{Value, json};

use super::declaration;

/// Media types that models accept as inline data. Other artifacts are sent as text if they are UTF-8, and as a
/// description otherwise.
const INLINE_TYPES: &[&str] = &["image/", "audio/", "video/", "application/pdf"];

/// Lists the names of all artifacts in the system instructions. The artifacts that the model has requested are part of
/// the next request only.
pub struct LoadArtifacts(Arc<FunctionDeclaration>);

impl Default for LoadArtifacts {
    fn default() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {"artifact_names": {
                "type": "array", "items": {"type": "string"}, "description": "The artifacts to look at."
            }},
            "required": ["artifact_names"]
        });
        Self(declaration("load_artifacts", "Shows you the artifacts of these names.", Some(parameters)))
    }
}

#[async_trait]
impl Tool for LoadArtifacts {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        request.tools.push(self.0.clone());
        let names = cx.list_artifacts().await?;
        if names.is_empty() {
            return Ok(());
        }
        request.system_instructions.push(format!(
            "There are artifacts, files of this session: {}. When a question is about one, call `load_artifacts` before you answer; do \
             not guess what it holds.",
            json!(names)
        ));
        let (artifacts, key) = (&cx.invocation.services.artifacts, &cx.invocation.session_key);
        // The model can request all artifacts of the session in one call.
        let mut rest = MAX_LOADED_BYTES;
        for name in requested_names(request) {
            let part = match artifacts.load_within(key, &name, None, rest).await {
                Ok(Some(part)) => {
                    rest = rest.saturating_sub(part.stored_bytes());
                    as_model_input(part)
                }
                Ok(None) => Part::text("(there is no such artifact)"),
                Err(StoreError::InvalidRequest(_)) if rest < MAX_LOADED_BYTES => {
                    Part::text("(too large to be shown with the artifacts before it; request it alone)")
                }
                // The model can send any text as a name.
                Err(error @ (StoreError::InvalidName { .. } | StoreError::InvalidRequest(_))) => {
                    Part::text(format!("({error})"))
                }
                Err(error) => return Err(error.into()),
            };
            let parts = vec![Part::text(format!("Artifact {name} is:")), part];
            request.contents.push_back(Arc::new(Content::new("user", parts)));
        }
        Ok(())
    }

    async fn call(&self, args: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        Ok(json!({ "artifact_names": args.get("artifact_names") }))
    }
}

/// Returns the names in the responses of this tool, if they are in the last content, each once.
fn requested_names(request: &LlmRequest) -> Vec<String> {
    let Some(last) = request.contents.last() else { return Vec::new() };
    let responses = last.function_responses().filter(|response| response.name == "load_artifacts");
    let lists = responses.filter_map(|response| response.response.get("artifact_names")?.as_array());
    let mut seen = HashSet::new();
    let names = lists.flatten().filter_map(Value::as_str).filter(|name| seen.insert(*name));
    names.map(Into::into).collect()
}

/// Converts an artifact to a part that models accept.
fn as_model_input(part: Part) -> Part {
    let PartData::InlineData(blob) = &part.data else { return part };
    if INLINE_TYPES.iter().any(|kind| blob.mime_type.starts_with(kind)) {
        return part;
    }
    match str::from_utf8(&blob.data) {
        Ok(text) => Part::text(text),
        Err(_) => Part::text(format!("({} of {})", pluralize(blob.data.len(), "byte", "bytes"), blob.mime_type)),
    }
}
