//! `ExampleTool`: few-shot examples in the system instructions.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, Example, FunctionDeclaration, JsonMap, LlmRequest, RunError, Tool, ToolError};
use serde_json::Value;

use super::declaration;
use crate::llm::examples::format_examples;

/// Adds few-shot examples to each request. The model cannot call it.
pub struct ExampleTool {
    declaration: Arc<FunctionDeclaration>,
    text: Option<String>,
}

impl ExampleTool {
    /// Creates a tool for these examples.
    pub fn new(examples: &[Example]) -> Self {
        Self { declaration: declaration("example_tool", "Shows examples.", None), text: format_examples(examples) }
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
