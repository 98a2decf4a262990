//! Session services.

#[cfg(feature = "agent-engine")]
mod agent_engine;
mod memory;
mod sqlite;

use std::sync::Arc;

use hatchery_core::{Event, EventWindow, SessionKey, StoreError};
use imbl::Vector;
use uuid::Uuid;

#[cfg(feature = "agent-engine")]
pub use agent_engine::AgentEngineSessions;
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

/// Returns the events of a window. Revision `n` is that after the `n`th event, so it is an index.
fn select_window(events: Vector<Arc<Event>>, window: EventWindow) -> Vector<Arc<Event>> {
    match window {
        EventWindow::All => events,
        EventWindow::Recent(count) => events.skip(events.len().saturating_sub(count)),
        EventWindow::Since(time) => events.into_iter().filter(|event| event.timestamp >= time).collect(),
        EventWindow::RecentSince { count, time } => {
            let recent = events.skip(events.len().saturating_sub(count));
            recent.into_iter().filter(|event| event.timestamp >= time).collect()
        }
        EventWindow::AfterRevision(revision) => skip(&events, revision),
        EventWindow::Page { after, limit } => {
            let mut page = skip(&events, after);
            page.truncate(limit);
            page
        }
    }
}

/// Returns the events after a revision. Any number is accepted.
fn skip(events: &Vector<Arc<Event>>, revision: u64) -> Vector<Arc<Event>> {
    events.skip(usize::try_from(revision).unwrap_or(usize::MAX))
}
