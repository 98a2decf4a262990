//! Session services.

#[cfg(feature = "agent-engine")]
mod agent_engine;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{Event, EventWindow, JsonMap, SessionKey, State, StateScope, StoreError, pluralize};
use imbl::Vector;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

#[cfg(feature = "agent-engine")]
pub use agent_engine::AgentEngineSessions;
pub use memory::MemorySessions;
#[cfg(feature = "postgres")]
pub use postgres::PostgresSessions;
pub use sqlite::SqliteSessions;

/// Returns the id of a new session: the requested one without surrounding whitespace, or a UUID if it is empty.
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
    let events = pluralize(count, "event", "events");
    StoreError::InvalidRequest(format!(
        "the session has {events}, so there is no event {revision}: name one of them ({key})"
    ))
}

/// Returns the bytes that a recorded call counts with.
pub(crate) fn record_bytes(call: &str, outcome: Option<&str>) -> u64 {
    (call.len() + outcome.unwrap_or_default().len()) as u64
}

/// Returns the hash by which the id of an event is found.
fn id_hash(id: &str) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(Sha256::digest(id));
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Returns a session's own keys of a state as a JSON object.
fn own_state_json(state: &State) -> String {
    let mut own = state.clone();
    own.retain(|name| StateScope::split_key(name).0 == StateScope::Session);
    // Values with string keys can always be written.
    serde_json::to_string(&own).unwrap_or_else(|_| "{}".into())
}

/// The part of an event that changes state.
#[derive(Deserialize)]
struct StateEvent {
    #[serde(default)]
    actions: StateActions,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct StateActions {
    state_delta: Option<JsonMap>,
}

/// Returns the change of state of an event's JSON. An event that cannot be read changes nothing.
fn state_delta_of(json: &[u8]) -> JsonMap {
    let event = serde_json::from_slice::<StateEvent>(json);
    event.ok().and_then(|event| event.actions.state_delta).unwrap_or_default()
}

/// Parses a stored event. One that cannot be read is replaced by a placeholder, so that its session stays readable.
fn parse_event(session: &SessionKey, revision: u64, json: Bytes) -> Arc<Event> {
    Event::from_json(json.clone()).unwrap_or_else(|error| {
        tracing::error!(%session, revision, %error, "a stored event cannot be read and is left out");
        Event::unreadable(&json, revision, &error.to_string())
    })
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
