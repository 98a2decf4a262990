//! Packs idle sessions: keeps only the JSON of their events, a third of the memory, and parses it at the next use.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hatchery_core::sync::MutexExt;
use hatchery_core::{Event, EventWindow, FastHashMap};
use imbl::Vector;

use super::{MemorySessions, StoredSession};
use crate::sessions::parse_event;

/// The time without use after which a session is idle, by default.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// Sessions with more bytes of events are never packed, so that neither packing nor the next use takes long.
const MAX_PACKED_BYTES: u64 = 64 * 1024;

/// Maximum number of sessions that one call packs.
const PACKED_PER_CALL: usize = 2;

/// The sessions that are not packed.
pub(super) struct SessionsInUse {
    idle_time: Duration,
    /// Each with a time at which it was in use, earliest first.
    queue: Mutex<VecDeque<(Instant, Weak<Mutex<StoredSession>>)>>,
}

impl Default for SessionsInUse {
    fn default() -> Self {
        Self::new(IDLE_TIME)
    }
}

impl SessionsInUse {
    pub(super) fn new(idle_time: Duration) -> Self {
        Self { idle_time, queue: Mutex::default() }
    }

    /// Removes the session that was added first, if it may be idle. `None` also while another thread uses the queue.
    fn pop(&self, now: Instant) -> Option<Weak<Mutex<StoredSession>>> {
        let mut queue = self.queue.try_lock().ok()?;
        let (since, _) = queue.front()?;
        if now.saturating_duration_since(*since) < self.idle_time {
            return None;
        }
        queue.pop_front().map(|(_, session)| session)
    }

    fn push(&self, since: Instant, session: Weak<Mutex<StoredSession>>) {
        self.queue.lock_unpoisoned().push_back((since, session));
    }
}

impl MemorySessions {
    /// Records that a session is in use now.
    pub(super) fn touch(&self, shared: &Arc<Mutex<StoredSession>>, stored: &mut StoredSession) {
        stored.last_used = Instant::now();
        if !stored.is_queued {
            stored.is_queued = true;
            self.in_use.push(stored.last_used, Arc::downgrade(shared));
        }
    }

    /// Packs sessions that are idle. The caller has locked none.
    pub(super) fn pack_idle(&self) {
        let now = Instant::now();
        for _ in 0..PACKED_PER_CALL {
            let Some(weak) = self.in_use.pop(now) else { return };
            // A deleted session is skipped.
            let Some(shared) = weak.upgrade() else { continue };
            let Ok(mut stored) = shared.try_lock() else {
                self.in_use.push(now, weak);
                continue;
            };
            if now.saturating_duration_since(stored.last_used) < self.in_use.idle_time {
                self.in_use.push(stored.last_used, weak);
            } else {
                stored.is_queued = false;
                stored.pack();
            }
        }
    }
}

impl StoredSession {
    fn pack(&mut self) {
        if self.packed.is_some() || self.session.events.is_empty() || self.usage.event_bytes > MAX_PACKED_BYTES {
            return;
        }
        let json: Box<[Bytes]> = self.session.events.iter().map(|event| event.json().clone()).collect();
        // Values can be nested more deeply in memory than JSON that is read.
        if json.iter().all(|json| Event::from_json(json.clone()).is_ok()) {
            self.packed = Some(json);
            self.session.events = Vector::new();
            self.revisions = FastHashMap::default();
        }
    }

    /// Makes the events of a session available. Takes time in proportion to them if it was idle.
    pub(super) fn unpack(&mut self, id_hasher: &RandomState) {
        let Some(packed) = self.packed.take() else { return };
        let key = &self.session.key;
        let events = (1..).zip(packed).map(|(revision, json)| parse_event(key, revision, json));
        let events: Vector<Arc<Event>> = events.collect();
        self.revisions = revisions(&events, id_hasher);
        self.session.events = events;
    }
}

/// Returns the revision of each event by the hash of its id.
pub(super) fn revisions(events: &Vector<Arc<Event>>, id_hasher: &RandomState) -> FastHashMap<u64, u64> {
    (1..).zip(events).map(|(revision, event)| (id_hasher.hash_one(&event.id), revision)).collect()
}

/// Returns true if a window of a session with this revision is always empty.
pub(super) fn is_empty(window: EventWindow, revision: u64) -> bool {
    match window {
        EventWindow::Recent(0) | EventWindow::RecentSince { count: 0, .. } | EventWindow::Page { limit: 0, .. } => true,
        EventWindow::AfterRevision(after) | EventWindow::Page { after, .. } => after >= revision,
        EventWindow::All | EventWindow::Recent(_) | EventWindow::Since(_) | EventWindow::RecentSince { .. } => false,
    }
}
