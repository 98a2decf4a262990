//! A session in memory, its usage and its turn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    Event, FastHashMap, MAX_TURN_LEASE, Session, SessionUsage, State, StateScope, StoreError, Timestamp, Turn,
    TurnStart,
};
use imbl::Vector;

use super::list::UserList;
use super::runs::SessionRuns;
use crate::sessions::too_few_events;

/// A session with its usage, its turn and the records of its runs.
pub(super) struct StoredSession {
    /// Without its events if they are packed.
    pub(super) session: Session,
    /// The JSON of the events, if the session is idle.
    pub(super) packed: Option<Box<[Bytes]>>,
    pub(super) last_used: Instant,
    /// True if the session is in the list of sessions in use.
    pub(super) is_queued: bool,
    /// The session's own state when it was created.
    pub(super) initial_state: State,
    /// The versions of the app's and the user's state that the session's state contains.
    pub(super) merged_versions: (u64, u64),
    pub(super) usage: SessionUsage,
    /// The list of the user's sessions, with their usage.
    pub(super) user_list: Arc<Mutex<UserList>>,
    /// The number of the newest turn. Begins with the time of creation, so that it differs from the turns of a deleted
    /// session.
    pub(super) fence: u64,
    /// The end of its lease.
    pub(super) leased_until: Option<Instant>,
    /// The revision of each event by the hash of its id, unless the events are packed.
    pub(super) revisions: FastHashMap<u64, u64>,
    /// The recorded calls of each run; `None` for a run that has finished.
    pub(super) journals: BTreeMap<String, Option<BTreeMap<String, Option<String>>>>,
    pub(super) runs: SessionRuns,
    /// Set when the session is removed from the map, for tasks that found it there before.
    pub(super) is_deleted: bool,
}

impl StoredSession {
    /// Returns the first `revision` events, and the session's own state after them.
    pub(super) fn state_at(&self, revision: u64) -> Result<(State, Vector<Arc<Event>>), StoreError> {
        if revision > self.session.revision {
            return Err(too_few_events(&self.session.key, revision, self.session.revision));
        }
        let events = self.session.events.take(usize::try_from(revision).unwrap_or(usize::MAX));
        let mut state = self.initial_state.clone();
        for event in &events {
            for (name, value) in &event.actions.state_delta {
                if StateScope::split_key(name).0 == StateScope::Session {
                    state.set(name, value.clone());
                }
            }
        }
        Ok((state, events))
    }

    /// Adds bytes to the totals. A negative number wraps around.
    pub(super) fn add_event_bytes(&mut self, bytes: u64) {
        self.usage.event_bytes = self.usage.event_bytes.wrapping_add(bytes);
        let usage = &mut self.user_list.lock_unpoisoned().usage;
        usage.event_bytes = usage.event_bytes.wrapping_add(bytes);
    }

    pub(super) fn set_update_time(&mut self, updated: Timestamp) {
        let Session { key, last_update_time, .. } = &mut self.session;
        let before = std::mem::replace(last_update_time, updated);
        if before != updated {
            self.user_list.lock_unpoisoned().move_session(&key.id, before, updated);
        }
    }

    pub(super) fn set_events(&mut self, events: Vector<Arc<Event>>) {
        self.set_update_time(events.last().map_or(self.session.created, |event| event.timestamp));
        self.session.revision = events.len() as u64;
        self.session.events = events;
    }

    pub(super) fn begin_turn(&mut self, previous: Option<u64>, lease: Duration) -> TurnStart {
        let now = Instant::now();
        let remaining = self.leased_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        if !remaining.is_zero() && previous != Some(self.fence) {
            return TurnStart::Held { remaining };
        }
        self.fence += 1;
        self.leased_until = Some(now + lease.min(MAX_TURN_LEASE));
        TurnStart::Begun(Turn { fence: self.fence, revision: self.session.revision })
    }

    /// Returns true if a turn holds the session.
    pub(super) fn is_held(&self) -> bool {
        self.leased_until.is_some_and(|until| until > Instant::now())
    }

    pub(super) fn check_fence(&self, fence: Option<u64>) -> Result<(), StoreError> {
        match fence {
            Some(fence) if fence != self.fence => Err(StoreError::Fenced(self.session.key.clone())),
            Some(_) | None => Ok(()),
        }
    }
}
