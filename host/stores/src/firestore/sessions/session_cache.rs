//! Session cache: the documents of sessions after the last write of this process.
//!
//! The next append begins with them instead of a read. If another host has written since, the commit's condition does
//! not hold, and the session is read.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use hatchery_core::SessionKey;
use hatchery_core::sync::MutexExt;

use super::stored::StoredSession;

/// Maximum number of sessions, each with a kilobyte or two.
const MAX_SESSIONS: usize = 4_096;

#[derive(Default)]
pub(super) struct SessionCache(Mutex<HashMap<SessionKey, StoredSession>>);

impl SessionCache {
    /// Removes and returns a session.
    pub(super) fn take(&self, key: &SessionKey) -> Option<StoredSession> {
        self.sessions().remove(key)
    }

    pub(super) fn set(&self, key: &SessionKey, stored: StoredSession) {
        let mut sessions = self.sessions();
        if sessions.len() >= MAX_SESSIONS {
            sessions.clear();
        }
        sessions.insert(key.clone(), stored);
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, StoredSession>> {
        self.0.lock_unpoisoned()
    }
}
