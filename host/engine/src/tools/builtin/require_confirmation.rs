//! Makes any tool one that a person has to agree to.

use std::sync::Arc;

use hatchery_core::{Tool, WrapperTool};

/// Another tool, each call of which waits for a person's consent.
pub struct RequireConfirmation(Arc<dyn Tool>);

impl RequireConfirmation {
    /// Makes this tool wait for consent.
    pub fn new(inner: Arc<dyn Tool>) -> Self {
        Self(inner)
    }
}

impl WrapperTool for RequireConfirmation {
    fn inner(&self) -> &dyn Tool {
        self.0.as_ref()
    }

    fn requires_confirmation(&self) -> bool {
        true
    }
}
