//! Pages of a list of sessions, and the cursors between them.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::session::Session;
use crate::time::Timestamp;

/// A part of a list of sessions.
#[derive(Debug, Clone)]
pub struct SessionPage {
    /// The sessions, without events, most recently updated first.
    pub sessions: Vec<Session>,
    /// Cursor of the next page; `None` after the last one.
    pub next: Option<SessionCursor>,
}

/// A position in a list of sessions: after the session with this time and id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCursor {
    /// The time of the session's newest event.
    pub updated: Timestamp,
    /// The id of the session.
    pub id: Arc<str>,
}

impl SessionCursor {
    /// Returns the position after a session.
    pub fn after(session: &Session) -> Self {
        Self { updated: session.last_update_time, id: session.key.id.clone() }
    }

    /// Returns true if a session is listed after this position.
    pub fn precedes(&self, session: &Session) -> bool {
        (Reverse(self.updated), &self.id) < (Reverse(session.last_update_time), &session.key.id)
    }
}
