//! Conversion of SQLite errors.

use hatchery_core::StoreError;
use sqlx::error::DatabaseError;

use crate::keyed_lock::busy;

/// Primary result codes, which are the lower byte of SQLite's result codes.
const SQLITE_BUSY: u32 = 5;
const SQLITE_FULL: u32 = 13;

/// Converts the error of an operation; `context` describes the operation.
pub(super) fn store_error(context: String, source: sqlx::Error) -> StoreError {
    match &source {
        sqlx::Error::PoolTimedOut => busy("the session database is busy"),
        sqlx::Error::Database(error) if is_busy(&**error) => busy("another process keeps the session database busy"),
        sqlx::Error::Database(error) if has_primary_code(&**error, SQLITE_FULL) => {
            StoreError::Full { context, source: source.into() }
        }
        _ => StoreError::backend(context, source),
    }
}

/// Returns true if another connection holds the lock that a statement needs.
pub(super) fn is_busy(error: &dyn DatabaseError) -> bool {
    has_primary_code(error, SQLITE_BUSY)
}

fn has_primary_code(error: &dyn DatabaseError, kind: u32) -> bool {
    error.code().and_then(|code| code.parse().ok()).is_some_and(|code: u32| code & 0xFF == kind)
}
