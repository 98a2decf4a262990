//! Rules by which stored sessions are deleted.

use crate::id::SessionKey;
use crate::time::Timestamp;

/// Rules for deleting sessions of an app. A session is deleted if one of the rules applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpiryRule {
    /// Deletes sessions without an event since this time.
    pub idle_since: Option<Timestamp>,
    /// Maximum number of sessions of a user; the least recently updated ones beyond it are deleted.
    pub user_sessions: Option<u64>,
}

/// A session that is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredSession {
    /// The key of the session.
    pub key: SessionKey,
    /// The time of its newest event. A later one means that it is in use again.
    pub updated: Timestamp,
}
