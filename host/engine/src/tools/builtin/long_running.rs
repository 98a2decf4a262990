//! `LongRunning`: a wrapper for tools whose result arrives later.

use std::sync::Arc;

use hatchery_core::{FunctionDeclaration, Tool, WrapperTool};

/// Marks a tool as long-running. It is called immediately, and its return value is an intermediate result. The final
/// result is sent later, as a function response with the call's id.
pub struct LongRunning {
    inner: Arc<dyn Tool>,
    declaration: Arc<FunctionDeclaration>,
}

impl LongRunning {
    /// Wraps a tool. Its description tells the model not to call it again while the result is pending.
    pub fn new(inner: Arc<dyn Tool>) -> Self {
        let mut declaration = FunctionDeclaration::clone(inner.declaration());
        declaration.description.push_str("\n\nIts result comes later: do not call it again while it is pending.");
        Self { inner, declaration: Arc::new(declaration) }
    }
}

impl WrapperTool for LongRunning {
    fn inner(&self) -> &dyn Tool {
        self.inner.as_ref()
    }

    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn is_long_running(&self) -> bool {
        true
    }
}
