//! A tool whose calls somebody else answers.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, JsonMap, Tool, ToolError, WrapperTool};
use serde_json::Value;

/// Answers calls of a tool, with or without the tool.
#[async_trait]
pub(super) trait Answers: Send + Sync {
    async fn call(&self, tool: &dyn Tool, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError>;
}

/// A tool that is itself in all but its calls.
pub(super) struct Wrapped<A> {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) answers: A,
}

#[async_trait]
impl<A: Answers> WrapperTool for Wrapped<A> {
    fn inner(&self) -> &dyn Tool {
        self.tool.as_ref()
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        self.answers.call(self.tool.as_ref(), args, cx).await
    }
}
