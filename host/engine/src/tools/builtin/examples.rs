//! Few-shot examples.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, Example, FunctionDeclaration, JsonMap, LlmRequest, RunError, Tool, ToolError};
use serde_json::Value;

use super::declaration;
use crate::llm::examples::told;

/// Shows the model examples before it is asked. The model does not see a tool.
pub struct ExampleTool {
    declaration: Arc<FunctionDeclaration>,
    text: Option<String>,
}

impl ExampleTool {
    /// Shows these.
    pub fn new(examples: &[Example]) -> Self {
        Self { declaration: declaration("example_tool", "Shows examples.", None), text: told(examples) }
    }
}

#[async_trait]
impl Tool for ExampleTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn is_callable(&self) -> bool {
        false
    }

    async fn prepare(&self, request: &mut LlmRequest, _: &CallContext) -> Result<(), RunError> {
        request.system_instructions.extend(self.text.clone());
        Ok(())
    }

    async fn call(&self, _: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        Err(ToolError::Recoverable("`example_tool` only shows examples and cannot be called".into()))
    }
}
