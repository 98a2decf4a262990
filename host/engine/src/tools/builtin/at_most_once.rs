//! `AtMostOnce`: a wrapper for tools whose calls must not be repeated.

use std::sync::Arc;

use hatchery_core::{Tool, WrapperTool};

/// Never repeats a call of a tool that was interrupted when the host died. The model gets an error that it is unknown
/// whether the call had its effect.
pub struct AtMostOnce(Arc<dyn Tool>);

impl AtMostOnce {
    /// Wraps a tool.
    pub fn new(inner: Arc<dyn Tool>) -> Self {
        Self(inner)
    }
}

impl WrapperTool for AtMostOnce {
    fn inner(&self) -> &dyn Tool {
        self.0.as_ref()
    }

    fn is_idempotent(&self) -> bool {
        false
    }
}
