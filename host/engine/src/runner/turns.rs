//! Turns of sessions: one at a time per session, and what is kept of a session between its turns, so that a turn reads only what is new.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hatchery_core::{Session, SessionKey};
use tokio::sync::{Mutex as TurnLock, OwnedMutexGuard};

use crate::llm::contents::Views;

/// Sessions that are kept between turns. One that is not is read whole from its service again.
const KEPT_SESSIONS: usize = 1024;
/// How many are let go at once when there are too many.
const LET_GO: usize = 64;

/// A session as its last turn left it.
pub(super) struct Live {
    pub(super) session: Session,
    pub(super) views: Views,
}

type Slot = Arc<TurnLock<Option<Live>>>;

/// The turns of all sessions.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<SessionKey, Slot>>);

impl Turns {
    /// Waits for the session's turn. Whoever holds the guard has the turn and what is kept of the session.
    pub(super) fn begin(&self, key: &SessionKey) -> impl Future<Output = OwnedMutexGuard<Option<Live>>> + use<> {
        self.slot(key).lock_owned()
    }

    fn slot(&self, key: &SessionKey) -> Slot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(key) {
            return slot.clone();
        }
        if slots.len() >= KEPT_SESSIONS {
            // A slot that only this map holds has no turn under way and nobody waiting.
            let idle: Vec<_> = slots
                .iter()
                .filter(|(_, slot)| Arc::strong_count(slot) == 1)
                .take(LET_GO)
                .map(|(key, _)| key.clone())
                .collect();
            for key in idle {
                slots.remove(&key);
            }
        }
        slots.entry(key.clone()).or_default().clone()
    }
}
