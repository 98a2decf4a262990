//! The session queue: a keyed FIFO lock that runs one turn per session at a time, in order.
//!
//! The lock's data is an LRU cache of sessions, so that a turn reads only the events since the turn before it.

use std::sync::{Arc, Mutex, MutexGuard};

use futures::FutureExt;
use futures::future::BoxFuture;
use hatchery_core::sync::MutexExt;
use hatchery_core::{Event, EventWindow, FastHashMap, Session, SessionKey, TurnLease};
use imbl::Vector;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::task::coop::unconstrained;

use crate::history::contents::PromptViews;

/// Maximum number of cached sessions. One that is not cached is read completely from its service.
const MAX_SESSIONS: usize = 1024;
/// Maximum number of events of all cached sessions together: some 50 MB of short ones, which in-memory services share.
const MAX_EVENTS: usize = 50_000;
/// Maximum size in bytes of the JSON of all cached sessions' events.
const MAX_BYTES: usize = 128 << 20;

/// A session as its last turn left it.
pub(super) struct CachedSession {
    pub(super) session: Session,
    pub(super) views: PromptViews,
    /// Bytes of the events' JSON; see [`json_bytes`].
    pub(super) bytes: usize,
    /// The lease of that turn, which the next turn takes over.
    pub(super) last_turn: Option<Arc<TurnLease>>,
}

impl CachedSession {
    /// Returns the cache entry of a session that was read completely.
    pub(super) fn new(session: Session) -> Self {
        let bytes = json_bytes(&session.events);
        Self { session, views: PromptViews::default(), bytes, last_turn: None }
    }

    /// Returns the window of the events that the session does not have yet.
    pub(super) fn missing_events(&self) -> EventWindow {
        EventWindow::AfterRevision(self.session.revision)
    }

    /// Returns the session as it is `now`, with its missing events. `None` if it was rewound or recreated since.
    pub(super) fn update(self, now: Session) -> Option<Self> {
        let Session { created, revision, .. } = self.session;
        if now.created != created || now.revision < revision {
            return None;
        }
        let mut events = self.session.events;
        let bytes = self.bytes + json_bytes(&now.events);
        events.append(now.events);
        Some(Self { session: Session { events, ..now }, bytes, ..self })
    }
}

/// Returns the bytes of the JSON that the events hold. Events without JSON are shared with an in-memory service and
/// count as zero.
pub(super) fn json_bytes(events: &Vector<Arc<Event>>) -> usize {
    events.iter().filter(|event| event.has_json()).map(|event| event.json_len()).sum()
}

/// The lock of a session, held during a turn. `None` if the session is not cached.
pub(super) type SessionGuard = OwnedMutexGuard<Option<CachedSession>>;

/// Resolves once all earlier turns of the session have ended.
pub(super) type AcquireSession = BoxFuture<'static, SessionGuard>;

/// The queues of all sessions.
#[derive(Default)]
pub(super) struct SessionQueue(Mutex<SessionCache>);

#[derive(Default)]
struct SessionCache {
    entries: FastHashMap<SessionKey, CacheEntry>,
    /// Events of all entries.
    events: usize,
    /// Bytes of their JSON.
    bytes: usize,
    /// Turns so far: the clock of `CacheEntry::last_turn`.
    turns: u64,
}

#[derive(Default)]
struct CacheEntry {
    slot: Arc<AsyncMutex<Option<CachedSession>>>,
    events: usize,
    bytes: usize,
    last_turn: u64,
}

impl SessionQueue {
    /// Enters the session's queue. Positions are in the order of the first polls of the returned futures.
    pub(super) fn acquire(&self, key: &SessionKey) -> AcquireSession {
        // Otherwise a task that has used up its budget of Tokio would not enter the queue, and get no lock that is
        // free.
        unconstrained(self.slot(key).lock_owned()).boxed()
    }

    /// Returns the lock of a session that no turn has or waits for.
    pub(super) fn try_acquire(&self, key: &SessionKey) -> Option<SessionGuard> {
        self.slot(key).try_lock_owned().ok()
    }

    /// Returns the lock of a session, which then is the most recently used one.
    fn slot(&self, key: &SessionKey) -> Arc<AsyncMutex<Option<CachedSession>>> {
        let mut cache = self.cache();
        cache.turns += 1;
        let turns = cache.turns;
        let entry = cache.entries.entry(key.clone()).or_default();
        entry.last_turn = turns;
        let slot = entry.slot.clone();
        if cache.entries.len() > MAX_SESSIONS {
            cache.evict();
        }
        slot
    }

    /// Records the number of events that a session has after its turn, copies included, and the bytes of their JSON.
    pub(super) fn record_size(&self, key: &SessionKey, events: usize, bytes: usize) {
        let mut cache = self.cache();
        let Some(entry) = cache.entries.get_mut(key) else { return };
        let events_before = std::mem::replace(&mut entry.events, events);
        let bytes_before = std::mem::replace(&mut entry.bytes, bytes);
        cache.events = (cache.events + events).saturating_sub(events_before);
        cache.bytes = (cache.bytes + bytes).saturating_sub(bytes_before);
        if cache.events > MAX_EVENTS || cache.bytes > MAX_BYTES {
            cache.evict();
        }
    }

    fn cache(&self) -> MutexGuard<'_, SessionCache> {
        self.0.lock_unpoisoned()
    }
}

impl SessionCache {
    /// Removes the sessions that were idle longest, down to three quarters of each limit, so that evictions are rare.
    fn evict(&mut self) {
        // Nobody else holds the slot of a session without a running or queued turn.
        let is_idle = |entry: &CacheEntry| Arc::strong_count(&entry.slot) == 1;
        let mut idle: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| is_idle(entry))
            .map(|(key, entry)| (entry.last_turn, key.clone()))
            .collect();
        idle.sort_unstable_by_key(|(last_turn, _)| *last_turn);
        for (_, key) in idle {
            if self.entries.len() <= MAX_SESSIONS / 4 * 3
                && self.events <= MAX_EVENTS / 4 * 3
                && self.bytes <= MAX_BYTES / 4 * 3
            {
                break;
            }
            if let Some(entry) = self.entries.remove(&key) {
                self.events = self.events.saturating_sub(entry.events);
                self.bytes = self.bytes.saturating_sub(entry.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;
    use tokio::task::coop::consume_budget;

    use super::*;

    fn key(number: usize) -> SessionKey {
        SessionKey::new("app", "user", number.to_string())
    }

    async fn run_turn(queue: &SessionQueue, number: usize, events: usize) {
        drop(queue.acquire(&key(number)).await);
        queue.record_size(&key(number), events, 0);
    }

    #[tokio::test]
    async fn the_sessions_that_were_idle_longest_are_evicted() {
        let queue = SessionQueue::default();
        for number in 0..=MAX_SESSIONS {
            run_turn(&queue, number, 1).await;
        }
        let cache = queue.cache();
        assert!(cache.entries.len() <= MAX_SESSIONS);
        assert!(!cache.entries.contains_key(&key(0)) && cache.entries.contains_key(&key(MAX_SESSIONS)));
        assert_eq!(cache.events, cache.entries.len());
    }

    #[tokio::test]
    async fn long_sessions_count_for_their_events() {
        let queue = SessionQueue::default();
        for number in 0..10 {
            run_turn(&queue, number, MAX_EVENTS / 5).await;
        }
        let cache = queue.cache();
        assert!(cache.events <= MAX_EVENTS, "{}", cache.events);
        assert!(cache.entries.contains_key(&key(9)) && !cache.entries.contains_key(&key(0)));
    }

    #[tokio::test]
    async fn sessions_with_large_events_count_for_their_bytes() {
        let queue = SessionQueue::default();
        for number in 0..10 {
            drop(queue.acquire(&key(number)).await);
            queue.record_size(&key(number), 1, MAX_BYTES / 5);
        }
        let cache = queue.cache();
        assert!(cache.bytes <= MAX_BYTES, "{}", cache.bytes);
        assert!(cache.entries.contains_key(&key(9)) && !cache.entries.contains_key(&key(0)));
    }

    #[tokio::test]
    async fn a_task_without_budget_gets_a_session_that_is_free_and_a_place_in_the_queue_of_another() {
        let queue = SessionQueue::default();
        let guard = queue.acquire(&key(1)).await;
        while poll!(pin!(consume_budget())).is_ready() {}
        assert!(poll!(queue.acquire(&key(0))).is_ready());
        let mut first = queue.acquire(&key(1));
        assert!(poll!(&mut first).is_pending());
        tokio::task::yield_now().await;
        let mut second = queue.acquire(&key(1));
        assert!(poll!(&mut second).is_pending());
        drop(guard);
        assert!(poll!(&mut second).is_pending());
        assert!(poll!(&mut first).is_ready());
    }

    #[tokio::test]
    async fn a_session_with_a_running_turn_is_not_evicted() {
        let queue = SessionQueue::default();
        let guard = queue.acquire(&key(0)).await;
        for number in 1..=MAX_SESSIONS + 1 {
            run_turn(&queue, number, 0).await;
        }
        assert!(queue.cache().entries.contains_key(&key(0)));
        drop(guard);
    }
}
