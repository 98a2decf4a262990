//! Session services, and what they have in common.

mod memory;
mod sqlite;

use std::sync::Arc;

use hatchery_core::{Event, StoreError};
use uuid::Uuid;

pub use memory::MemorySessions;
pub use sqlite::{Durability, SqliteSessions};

/// The id of a new session: the one asked for without the blanks around it, or a UUID when that leaves nothing.
fn new_session_id(asked: Option<&str>) -> Arc<str> {
    match asked.map(str::trim) {
        Some(id) if !id.is_empty() => id.into(),
        _ => Uuid::new_v4().to_string().into(),
    }
}

/// Only final events are history.
fn refuse_partial(event: &Event) -> Result<(), StoreError> {
    if event.partial {
        return Err(StoreError::InvalidRequest(format!(
            "event `{}` is partial and cannot be stored: append the final event that it leads to",
            event.id
        )));
    }
    Ok(())
}
