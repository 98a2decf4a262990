//! `exit_loop`: lets the model end the enclosing loop agent.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, Tool, ToolError};
use serde_json::{Value, json};

use super::declaration;

pub(crate) const NAME: &str = "exit_loop";

/// Ends the innermost loop agent by escalation.
pub struct ExitLoop(Arc<FunctionDeclaration>);

impl Default for ExitLoop {
    fn default() -> Self {
        let description = "Ends the loop. Call it only when the work of the loop is done.";
        Self(declaration(NAME, description, Some(json!({"type": "object", "properties": {}}))))
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
        Ok(Value::Null)
    }
}
