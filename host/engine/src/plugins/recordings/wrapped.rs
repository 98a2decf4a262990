//! A tool whose calls somebody else answers.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, LlmRequest, RunError, Tool, ToolError};
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
impl<A: Answers> Tool for Wrapped<A> {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        self.tool.declaration()
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        self.tool.qualified_name()
    }

    fn is_long_running(&self) -> bool {
        self.tool.is_long_running()
    }

    fn is_callable(&self) -> bool {
        self.tool.is_callable()
    }

    fn requires_confirmation(&self) -> bool {
        self.tool.requires_confirmation()
    }

    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        self.tool.prepare(request, cx).await
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        self.answers.call(self.tool.as_ref(), args, cx).await
    }
}
