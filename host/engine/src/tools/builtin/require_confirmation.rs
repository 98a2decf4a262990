//! `RequireConfirmation`: a wrapper for tools that a person must confirm.

use std::sync::Arc;

use hatchery_core::{Tool, WrapperTool};

/// Requires a person's confirmation of each call of a tool.
pub struct RequireConfirmation(Arc<dyn Tool>);

impl RequireConfirmation {
    /// Wraps a tool.
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
