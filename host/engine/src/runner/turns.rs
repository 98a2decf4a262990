//! Turns of sessions: one at a time per session, and what is kept of a session between its turns, so that a turn reads only what is new.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::FutureExt;
use futures::future::BoxFuture;
use hatchery_core::sync::MutexExt;
use hatchery_core::{Event, Session, SessionKey};
use imbl::Vector;
use tokio::sync::{Mutex as TurnLock, OwnedMutexGuard};

use crate::history::contents::PromptViews;

/// Sessions that are kept between turns. One that is not is read whole from its service again.
const KEPT_SESSIONS: usize = 1024;
/// Events that all kept sessions may have together: some 50 MB of short ones, which services in memory share.
const KEPT_EVENTS: usize = 50_000;
/// Bytes of JSON that the events of all kept sessions may have together.
const KEPT_BYTES: usize = 128 << 20;

/// A session as its last turn left it.
pub(super) struct Live {
    pub(super) session: Session,
    pub(super) views: PromptViews,
    /// Bytes of the events' JSON.
    pub(super) bytes: usize,
}

impl Live {
    /// A session that was just read.
    pub(super) fn new(session: Session) -> Self {
        let bytes = json_bytes(&session.events);
        Self { session, views: PromptViews::default(), bytes }
    }
}

/// Bytes of the JSON that is kept of events. An event without any is shared with a service in memory.
pub(super) fn json_bytes(events: &Vector<Arc<Event>>) -> usize {
    events.iter().filter(|event| event.has_json()).map(|event| event.json_len()).sum()
}

/// A place in a session's queue.
pub(super) type Begin = BoxFuture<'static, OwnedMutexGuard<Option<Live>>>;

/// The turns of all sessions.
#[derive(Default)]
pub(super) struct Turns(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    sessions: HashMap<SessionKey, Entry>,
    /// Events of all entries.
    events: usize,
    /// Bytes of their JSON.
    bytes: usize,
    /// Turns so far: the time by which entries are old or new.
    turns: u64,
}

#[derive(Default)]
struct Entry {
    slot: Arc<TurnLock<Option<Live>>>,
    events: usize,
    bytes: usize,
    last_turn: u64,
}

impl Turns {
    /// Waits for the session's turn. Whoever holds the guard has the turn and what is kept of the session.
    pub(super) fn begin(&self, key: &SessionKey) -> Begin {
        let mut kept = self.kept();
        kept.turns += 1;
        let turns = kept.turns;
        let entry = kept.sessions.entry(key.clone()).or_default();
        entry.last_turn = turns;
        let slot = entry.slot.clone();
        if kept.sessions.len() > KEPT_SESSIONS {
            kept.let_go();
        }
        slot.lock_owned().boxed()
    }

    /// Notes how many events a session has after its turn, and how many bytes of JSON.
    pub(super) fn note_size(&self, key: &SessionKey, events: usize, bytes: usize) {
        let mut kept = self.kept();
        let Some(entry) = kept.sessions.get_mut(key) else { return };
        let before = std::mem::replace(&mut entry.events, events);
        let bytes_before = std::mem::replace(&mut entry.bytes, bytes);
        kept.events = (kept.events + events).saturating_sub(before);
        kept.bytes = (kept.bytes + bytes).saturating_sub(bytes_before);
        if kept.events > KEPT_EVENTS || kept.bytes > KEPT_BYTES {
            kept.let_go();
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock_unpoisoned()
    }
}

impl Kept {
    /// Lets go of the sessions that have been idle longest, down to three quarters of what may be kept, so that this is rare.
    fn let_go(&mut self) {
        // An entry whose slot nobody else holds has no turn under way and nobody waiting.
        let is_idle = |entry: &Entry| Arc::strong_count(&entry.slot) == 1;
        let mut idle: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, entry)| is_idle(entry))
            .map(|(key, entry)| (entry.last_turn, key.clone()))
            .collect();
        idle.sort_unstable_by_key(|(last_turn, _)| *last_turn);
        for (_, key) in idle {
            if self.sessions.len() <= KEPT_SESSIONS / 4 * 3
                && self.events <= KEPT_EVENTS / 4 * 3
                && self.bytes <= KEPT_BYTES / 4 * 3
            {
                break;
            }
            if let Some(entry) = self.sessions.remove(&key) {
                self.events = self.events.saturating_sub(entry.events);
                self.bytes = self.bytes.saturating_sub(entry.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> SessionKey {
        SessionKey::new("app", "user", number.to_string())
    }

    async fn turn(turns: &Turns, number: usize, events: usize) {
        drop(turns.begin(&key(number)).await);
        turns.note_size(&key(number), events, 0);
    }

    #[tokio::test]
    async fn the_sessions_that_were_idle_longest_are_let_go() {
        let turns = Turns::default();
        for number in 0..=KEPT_SESSIONS {
            turn(&turns, number, 1).await;
        }
        let kept = turns.kept();
        assert!(kept.sessions.len() <= KEPT_SESSIONS);
        assert!(!kept.sessions.contains_key(&key(0)) && kept.sessions.contains_key(&key(KEPT_SESSIONS)));
        assert_eq!(kept.events, kept.sessions.len());
    }

    #[tokio::test]
    async fn long_sessions_count_for_their_events() {
        let turns = Turns::default();
        for number in 0..10 {
            turn(&turns, number, KEPT_EVENTS / 5).await;
        }
        let kept = turns.kept();
        assert!(kept.events <= KEPT_EVENTS, "{}", kept.events);
        assert!(kept.sessions.contains_key(&key(9)) && !kept.sessions.contains_key(&key(0)));
    }

    #[tokio::test]
    async fn sessions_with_large_events_count_for_their_bytes() {
        let turns = Turns::default();
        for number in 0..10 {
            drop(turns.begin(&key(number)).await);
            turns.note_size(&key(number), 1, KEPT_BYTES / 5);
        }
        let kept = turns.kept();
        assert!(kept.bytes <= KEPT_BYTES, "{}", kept.bytes);
        assert!(kept.sessions.contains_key(&key(9)) && !kept.sessions.contains_key(&key(0)));
    }

    #[tokio::test]
    async fn a_session_whose_turn_is_under_way_stays() {
        let turns = Turns::default();
        let guard = turns.begin(&key(0)).await;
        for number in 1..=KEPT_SESSIONS + 1 {
            turn(&turns, number, 0).await;
        }
        assert!(turns.kept().sessions.contains_key(&key(0)));
        drop(guard);
    }
}
