//! Tools that come with the host. Their names win over those of components.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, Tool, ToolError};
use serde_json::{Value, json};

/// Names of the built-in tools.
pub const NAMES: &[&str] = &["exit_loop"];

/// The built-in tool of this name.
pub fn tool(name: &str) -> Option<Arc<dyn Tool>> {
    match name {
        "exit_loop" => Some(Arc::new(ExitLoop::default())),
        _ => None,
    }
}

/// Ends the loop around the agent.
struct ExitLoop(Arc<FunctionDeclaration>);

impl Default for ExitLoop {
    fn default() -> Self {
        Self(Arc::new(FunctionDeclaration {
            name: "exit_loop".into(),
            description: "Ends the loop. Call it only when the work of the loop is done.".into(),
            parameters: Some(json!({"type": "object", "properties": {}})),
            response: None,
        }))
    }
}

#[async_trait]
impl Tool for ExitLoop {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn call(&self, _args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let mut actions = cx.actions();
        actions.escalate = Some(true);
        actions.skip_summarization = Some(true);
        Ok(Value::Object(JsonMap::new()))
    }
}
