//! Session services.

mod memory;
mod sqlite;

use std::sync::Arc;

use hatchery_core::{Event, SessionKey, StoreError};
use uuid::Uuid;

pub use memory::MemorySessions;
pub use sqlite::SqliteSessions;

/// Returns the id of a new session: the requested one without surrounding whitespace, or a UUID if that is empty.
pub(crate) fn new_session_id(requested: Option<&str>) -> Arc<str> {
    match requested.map(str::trim) {
        Some(id) if !id.is_empty() => id.into(),
        _ => Uuid::new_v4().to_string().into(),
    }
}

/// Returns an error for a partial event, because only final events are stored.
pub(crate) fn reject_partial(event: &Event) -> Result<(), StoreError> {
    if event.partial {
        return Err(StoreError::InvalidRequest(format!(
            "event `{}` is partial and cannot be stored: append the final event that it leads to",
            event.id
        )));
    }
    Ok(())
}

/// Returns the error of a fork or a rewind to a revision that a session with `count` events does not have.
pub(crate) fn too_few_events(key: &SessionKey, revision: u64, count: u64) -> StoreError {
    StoreError::InvalidRequest(format!(
        "the session has {count} events, so there is no event {revision}: name one of them ({key})"
    ))
}

/// Returns the bytes that a recorded call counts with.
pub(crate) fn record_bytes(call: &str, outcome: Option<&str>) -> u64 {
    (call.len() + outcome.unwrap_or_default().len()) as u64
}
