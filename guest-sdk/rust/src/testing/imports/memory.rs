//! Long-term memory.

use super::super::scope::Scope;
use crate::bindings::wit::types::{self, MemoryEntry};
use crate::error::Error;
use crate::event::Event;

pub(crate) async fn search(query: String) -> Result<Vec<MemoryEntry>, types::Error> {
    let entries = Scope::for_session()?.mock.borrow().search_memory(&query);
    let entries = entries.into_iter().map(|entry| MemoryEntry {
        content: entry.content.into(),
        author: entry.author,
        timestamp: entry.timestamp_micros,
    });
    Ok(entries.collect())
}

pub(crate) async fn add_session(session: Option<String>) -> Result<(), types::Error> {
    let scope = Scope::for_change()?;
    let mut mock = scope.mock.borrow_mut();
    let events = match session.filter(|id| *id != mock.info.session) {
        None => mock.events.clone(),
        Some(id) => {
            let session = mock.sessions.get(&(mock.info.app.clone(), id.clone()));
            let session = session.ok_or_else(|| {
                Error::new("SESSION_NOT_FOUND", format!("Session not found: {id}; add it with `.other_session(…)`"))
            })?;
            session.events.clone()
        }
    };
    mock.remember(events);
    Ok(())
}

pub(crate) async fn add_events(events: Vec<types::Event>) -> Result<(), types::Error> {
    let scope = Scope::for_change()?;
    let events = events.into_iter().map(Event::try_from).collect::<Result<Vec<_>, Error>>()?;
    scope.mock.borrow_mut().remember(events);
    Ok(())
}
