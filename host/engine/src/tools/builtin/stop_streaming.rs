//! `stop_streaming`: lets a live model end a tool that sends it one result after the other.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, Tool, ToolError};
use serde_json::{Value, json};

use super::declaration;

pub(crate) const NAME: &str = "stop_streaming";

/// Stops a streaming tool of the conversation.
pub struct StopStreaming(Arc<FunctionDeclaration>);

impl Default for StopStreaming {
    fn default() -> Self {
        let description = "Stops a function that is running and returns one result after the other.";
        let parameters = json!({
            "type": "object",
            "properties": {"function_name": {"type": "string", "description": "The name of the function."}},
            "required": ["function_name"],
        });
        Self(declaration(NAME, description, Some(parameters)))
    }
}

#[async_trait]
impl Tool for StopStreaming {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let name = args.get("function_name").and_then(Value::as_str).unwrap_or_default();
        if cx.invocation.live_streams.stop(name) {
            return Ok(json!({"status": format!("Stopped {name}.")}));
        }
        Err(ToolError::Recoverable(format!("the function `{name}` is not running")))
    }
}
