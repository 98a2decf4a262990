//! Makes any tool one that a person has to agree to.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, LlmRequest, RunError, Tool, ToolError};
use serde_json::Value;

/// Another tool, each call of which waits for a person's consent.
pub struct RequireConfirmation(Arc<dyn Tool>);

impl RequireConfirmation {
    /// Makes this tool wait for consent.
    pub fn new(inner: Arc<dyn Tool>) -> Self {
        Self(inner)
    }
}

#[async_trait]
impl Tool for RequireConfirmation {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        self.0.declaration()
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        self.0.qualified_name()
    }

    fn is_long_running(&self) -> bool {
        self.0.is_long_running()
    }

    fn is_callable(&self) -> bool {
        self.0.is_callable()
    }

    fn requires_confirmation(&self) -> bool {
        true
    }

    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        self.0.prepare(request, cx).await
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        self.0.call(args, cx).await
    }
}
