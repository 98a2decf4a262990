//! Failures of database operations, and their conversion.

use std::sync::Arc;

use hatchery_core::StoreError;
use rusqlite::ErrorCode;

use crate::keyed_lock::busy;

/// The cause of a failed operation. Cheap to clone, because all writes of a group may fail for one reason.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// SQLite reports an error.
    Sqlite(Arc<rusqlite::Error>),
    /// The operation did not begin within [`MAX_WAIT`](crate::keyed_lock::MAX_WAIT).
    Timeout,
    /// The database is closed.
    Closed,
    /// The operation panicked.
    Panic,
}

impl Failure {
    /// Converts the failure. `noun` names the kind of database, `context` describes the operation.
    pub(super) fn into_error(self, noun: &str, context: impl FnOnce() -> String) -> StoreError {
        match self {
            Self::Timeout => busy(&format!("the {noun} is busy")),
            Self::Sqlite(error) if is_busy(&error) => busy(&format!("another process keeps the {noun} busy")),
            Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                StoreError::Full { context: context(), source: error.into() }
            }
            Self::Sqlite(error) => StoreError::backend(context(), error),
            Self::Closed => StoreError::backend(context(), "it is closed"),
            Self::Panic => StoreError::backend(context(), "a defect in Hatchery; the log has the details"),
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(Arc::new(error))
    }
}

/// Returns true if another connection holds the lock that a statement needs.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}
