//! Makes any tool one whose result comes later.

use std::sync::Arc;

use hatchery_core::{FunctionDeclaration, Tool, WrapperTool};

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
