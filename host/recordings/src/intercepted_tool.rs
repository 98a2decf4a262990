//! Tool decorator that intercepts calls.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, JsonMap, Tool, ToolError, WrapperTool};
use serde_json::Value;

/// Handles the calls of an [`InterceptedTool`].
#[async_trait]
pub(crate) trait ToolInterceptor: Send + Sync {
    /// Returns the result of a call. It may call `tool`, or not.
    async fn call(&self, tool: &dyn Tool, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError>;
}

/// A tool whose calls go to an interceptor. Everything else is delegated to the tool.
pub(crate) struct InterceptedTool<I> {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) interceptor: I,
}

#[async_trait]
impl<I: ToolInterceptor> WrapperTool for InterceptedTool<I> {
    fn inner(&self) -> &dyn Tool {
        self.tool.as_ref()
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        self.interceptor.call(self.tool.as_ref(), args, cx).await
    }
}
