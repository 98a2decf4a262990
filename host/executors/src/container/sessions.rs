//! Containers that keep the state of sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hatchery_core::sync::MutexExt;

/// Identifies a container: the session, and the id of its execution context.
pub(super) type SessionKey = (hatchery_core::SessionKey, String);

/// The container of a session. Locked while code runs in it.
#[derive(Default)]
pub(super) struct Session {
    /// `None` until it has started.
    pub(super) container: Option<String>,
}

/// The containers of an executor.
pub(super) struct Sessions {
    max: usize,
    all: Mutex<HashMap<SessionKey, Entry>>,
}

struct Entry {
    session: Arc<tokio::sync::Mutex<Session>>,
    used: Instant,
}

impl Sessions {
    pub(super) fn new(max: usize) -> Self {
        Self { max: max.max(1), all: Mutex::default() }
    }

    /// Returns the session of this key, and the containers that must end for it.
    pub(super) fn get(&self, key: SessionKey) -> (Arc<tokio::sync::Mutex<Session>>, Vec<String>) {
        let mut all = self.all.lock_unpoisoned();
        let used = Instant::now();
        let entry = all.entry(key).or_insert_with(|| Entry { session: Arc::default(), used });
        entry.used = used;
        let session = entry.session.clone();
        let mut evicted = Vec::new();
        while all.len() > self.max {
            // One that runs code is not idle.
            let idle = all.iter().filter(|(_, entry)| Arc::strong_count(&entry.session) == 1);
            let Some(oldest) = idle.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone()) else { break };
            let removed = all.remove(&oldest).and_then(|entry| Arc::into_inner(entry.session));
            evicted.extend(removed.and_then(|session| session.into_inner().container));
        }
        (session, evicted)
    }
}
