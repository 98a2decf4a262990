//! `get_user_choice`: lets the model ask the user to choose one of several options.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, Tool, ToolError};
use serde_json::{Value, json};

use super::declaration;

pub(crate) const NAME: &str = "get_user_choice";

/// Waits for the user's choice, which the client sends as the result of the call.
pub struct GetUserChoice(Arc<FunctionDeclaration>);

impl Default for GetUserChoice {
    fn default() -> Self {
        let description = "Shows options to the user, who chooses one of them. The choice comes later: do not call it \
                           again while it is pending.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "options": {"type": "array", "items": {"type": "string"}, "description": "What the user can choose."}
            },
            "required": ["options"],
        });
        Self(declaration(NAME, description, Some(parameters)))
    }
}

#[async_trait]
impl Tool for GetUserChoice {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    fn is_long_running(&self) -> bool {
        true
    }

    async fn call(&self, _args: JsonMap, _cx: &CallContext) -> Result<Value, ToolError> {
        Ok(Value::Null)
    }
}
