//! What is under way, for whoever wants to show it.

use std::sync::Arc;

use crate::reference::Reference;

/// A step of a push or a pull.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// So many bytes are about to come.
    Receives {
        /// From here.
        reference: &'a Reference,
        /// How many.
        bytes: u64,
    },
    /// So many bytes are about to go.
    Sends {
        /// To here.
        reference: &'a Reference,
        /// How many.
        bytes: u64,
    },
    /// So many more have come or gone.
    Bytes(u64),
}

/// Who is told.
pub type Listener = Arc<dyn Fn(Progress<'_>) + Send + Sync>;
