//! Makes any tool one whose result comes later.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, LlmRequest, RunError, Tool, ToolError};
use serde_json::Value;

use super::prepare_as;

/// Another tool, called at once, whose answer is only the beginning: the call's id is reported, and what follows is sent later as a
/// function response of that id.
pub struct LongRunning {
    inner: Arc<dyn Tool>,
    declaration: Arc<FunctionDeclaration>,
}

impl LongRunning {
    /// Makes this tool long-running, and tells models not to call it again while they wait.
    pub fn new(inner: Arc<dyn Tool>) -> Self {
        let mut declaration = FunctionDeclaration::clone(inner.declaration());
        declaration.description.push_str("\n\nIts result comes later: do not call it again while it is pending.");
        Self { inner, declaration: Arc::new(declaration) }
    }
}

#[async_trait]
impl Tool for LongRunning {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        self.inner.qualified_name()
    }

    fn is_long_running(&self) -> bool {
        true
    }

    fn is_callable(&self) -> bool {
        self.inner.is_callable()
    }

    fn requires_confirmation(&self) -> bool {
        self.inner.requires_confirmation()
    }

    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        prepare_as(&self.declaration, self.inner.as_ref(), request, cx).await
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        self.inner.call(args, cx).await
    }
}
