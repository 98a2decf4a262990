//! Containers that keep the state of sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hatchery_core::sync::MutexExt;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::guard::Container;

/// Identifies a container: the session, and the id of its execution context.
pub(super) type SessionKey = (hatchery_core::SessionKey, String);

/// Interval between checks of sessions that run code.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The container of a session. Locked while code runs in it.
#[derive(Default)]
pub(super) struct Session {
    /// `None` until it has started, and once it has ended.
    pub(super) container: Option<Container>,
    /// True if it has ended since code ran in it.
    pub(super) has_ended: bool,
}

/// The containers of an executor.
pub(super) struct Sessions {
    max: usize,
    idle_timeout: Duration,
    all: Mutex<SessionEntries>,
}

#[derive(Default)]
struct SessionEntries {
    entries: HashMap<SessionKey, Entry>,
    /// The task that waits for idle ones.
    watcher: Option<AbortHandle>,
}

struct Entry {
    session: Arc<tokio::sync::Mutex<Session>>,
    used: Instant,
}

impl Entry {
    /// Returns true if no code runs or waits.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.session) == 1
    }

    /// Returns true if it is idle with a container.
    fn is_idle_with_container(&self) -> bool {
        self.is_idle() && self.session.try_lock().is_ok_and(|session| session.container.is_some())
    }

    /// Ends the container. The next call reports that to the model.
    fn end(&self) {
        if let Ok(mut session) = self.session.try_lock() {
            session.has_ended |= session.container.take().is_some();
        }
    }
}

impl Sessions {
    pub(super) fn new(max: usize, idle_timeout: Duration) -> Self {
        Self { max: max.max(1), idle_timeout, all: Mutex::default() }
    }

    /// Returns the session of this key. If there are too many, the one that was idle for the longest time is removed.
    pub(super) fn get(&self, key: SessionKey) -> Arc<tokio::sync::Mutex<Session>> {
        let mut all = self.all.lock_unpoisoned();
        let entries = &mut all.entries;
        let used = Instant::now();
        let entry = entries.entry(key).or_insert_with(|| Entry { session: Arc::default(), used });
        entry.used = used;
        let session = entry.session.clone();
        while entries.len() > self.max {
            // One that runs code is not idle.
            let idle = entries.iter().filter(|(_, entry)| entry.is_idle());
            let Some(oldest) = idle.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone()) else { break };
            entries.remove(&oldest);
        }
        session
    }

    /// Ends the container that was idle for the longest time, if there is one.
    pub(super) fn end_oldest(&self) {
        let all = self.all.lock_unpoisoned();
        let idle = all.entries.values().filter(|entry| entry.is_idle_with_container());
        if let Some(oldest) = idle.min_by_key(|entry| entry.used) {
            oldest.end();
        }
    }

    /// Ends all containers in which no code runs.
    pub(super) fn end_all(&self) {
        self.all.lock_unpoisoned().entries.values().for_each(Entry::end);
    }

    /// Ends containers that are idle for too long, until there are none.
    pub(super) fn watch(self: &Arc<Self>) {
        let mut all = self.all.lock_unpoisoned();
        // The task of a runtime that was shut down has finished although there are idle ones.
        if all.watcher.as_ref().is_none_or(AbortHandle::is_finished) {
            let sessions = Arc::downgrade(self);
            let watcher = tokio::spawn(async move {
                while let Some(next) = sessions.upgrade().and_then(|sessions| sessions.end_idle()) {
                    tokio::time::sleep_until(next).await;
                }
            });
            all.watcher = Some(watcher.abort_handle());
        }
    }

    /// Ends the containers that are idle for too long. Returns the time of the next check; `None` if there are no
    /// others.
    fn end_idle(&self) -> Option<Instant> {
        let mut all = self.all.lock_unpoisoned();
        let now = Instant::now();
        let mut next = None::<Instant>;
        for entry in all.entries.values() {
            let end = entry.used + self.idle_timeout;
            if end <= now && entry.is_idle_with_container() {
                entry.end();
            } else if !entry.is_idle() || entry.is_idle_with_container() {
                let end = end.max(now + MIN_WAIT);
                next = Some(next.map_or(end, |next| next.min(end)));
            }
        }
        if next.is_none() {
            all.watcher = None;
        }
        next
    }
}
