//! What failures of SQLite mean to those who asked.

use hatchery_core::StoreError;
use sqlx::error::DatabaseError;

use crate::queue::busy;

/// The lower byte of SQLite's result code is the kind of error.
const SQLITE_BUSY: u32 = 5;
const SQLITE_FULL: u32 = 13;

/// The error for what was being done.
pub(super) fn store_error(what: String, source: sqlx::Error) -> StoreError {
    match &source {
        sqlx::Error::PoolTimedOut => busy("the session database is busy"),
        sqlx::Error::Database(error) if is_busy(&**error) => busy("another process keeps the session database busy"),
        sqlx::Error::Database(error) if is_of_kind(&**error, SQLITE_FULL) => {
            StoreError::Full { what, source: source.into() }
        }
        _ => StoreError::backend(what, source),
    }
}

/// True if another connection holds the lock that a statement needs.
pub(super) fn is_busy(error: &dyn DatabaseError) -> bool {
    is_of_kind(error, SQLITE_BUSY)
}

fn is_of_kind(error: &dyn DatabaseError, kind: u32) -> bool {
    error.code().and_then(|code| code.parse().ok()).is_some_and(|code: u32| code & 0xFF == kind)
}
