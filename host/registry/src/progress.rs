//! Progress of transfers.

use std::sync::Arc;

use crate::reference::Reference;

/// A step of a push or a pull.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// A download of `bytes` bytes starts.
    Download {
        /// The reference of the component.
        reference: &'a Reference,
        /// The size of the download.
        bytes: u64,
    },
    /// An upload of `bytes` bytes starts.
    Upload {
        /// The reference of the component.
        reference: &'a Reference,
        /// The size of the upload.
        bytes: u64,
    },
    /// This many more bytes have been transferred.
    Transferred(u64),
}

/// A function that receives the progress.
pub type ProgressListener = Arc<dyn Fn(Progress<'_>) + Send + Sync>;
