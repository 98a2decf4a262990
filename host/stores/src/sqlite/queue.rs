//! A queue of writes that serves users in turn.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use hatchery_core::sync::MutexExt;
use tokio::sync::watch;

use super::Failure;
use super::writer::Job;

/// Writes that wait for the writing thread.
pub(super) struct Queue {
    state: Mutex<State>,
    /// Notified when the writing thread has something to do.
    wake: Condvar,
    /// Hashes the owners of writes.
    hasher: RandomState,
    /// True once the writing thread has ended.
    ended: watch::Sender<bool>,
}

/// The id of a write, and the write.
type QueuedJob = (u64, Box<dyn Job>);

#[derive(Default)]
struct State {
    /// The writes of each owner, oldest first.
    waiting: HashMap<u64, VecDeque<QueuedJob>>,
    /// The owners with waiting writes, in the order of their turns.
    turns: VecDeque<u64>,
    /// The id of the newest write.
    last_id: u64,
    /// True while the writing thread sleeps.
    is_idle: bool,
    is_closed: bool,
}

impl Default for Queue {
    fn default() -> Self {
        let (state, wake, hasher) = (Mutex::default(), Condvar::new(), RandomState::new());
        Self { state, wake, hasher, ended: watch::Sender::new(false) }
    }
}

impl Queue {
    /// Adds a write of this app and user. Returns its id.
    ///
    /// # Errors
    /// [`Failure::Closed`].
    pub(super) fn push(&self, owner: (&str, &str), job: Box<dyn Job>) -> Result<u64, Failure> {
        let owner = self.hasher.hash_one(owner);
        let mut state = self.state();
        if state.is_closed {
            return Err(Failure::Closed);
        }
        state.last_id += 1;
        let id = state.last_id;
        let waiting = state.waiting.entry(owner).or_default();
        waiting.push_back((id, job));
        if waiting.len() == 1 {
            state.turns.push_back(owner);
        }
        let is_idle = std::mem::take(&mut state.is_idle);
        drop(state);
        if is_idle {
            self.wake.notify_one();
        }
        Ok(id)
    }

    /// Removes a write that has not begun. Returns false if it has.
    pub(super) fn withdraw(&self, owner: (&str, &str), id: u64) -> bool {
        let owner = self.hasher.hash_one(owner);
        let mut state = self.state();
        let Some(waiting) = state.waiting.get_mut(&owner) else { return false };
        let Some(index) = waiting.iter().position(|(other, _)| *other == id) else { return false };
        waiting.remove(index);
        if waiting.is_empty() {
            state.waiting.remove(&owner);
            state.turns.retain(|other| *other != owner);
        }
        true
    }

    /// Waits for writes, and moves up to `limit` of them to `group`, one of each owner in turn. Returns false once the
    /// queue is closed and empty.
    pub(super) fn take(&self, group: &mut Vec<Box<dyn Job>>, limit: usize) -> bool {
        let mut state = self.state();
        while state.turns.is_empty() {
            if state.is_closed {
                return false;
            }
            state.is_idle = true;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        while group.len() < limit
            && let Some(job) = state.pop()
        {
            group.push(job);
        }
        true
    }

    /// Rejects further writes. The writing thread ends after those that wait.
    pub(super) fn stop(&self) {
        self.state().is_closed = true;
        self.wake.notify_one();
    }

    /// [Stops](Queue::stop), and waits for the end of the writing thread.
    pub(super) async fn close(&self) {
        self.stop();
        // The sender is a field, so the channel is open.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Called when the writing thread ends.
    pub(super) fn set_ended(&self) {
        self.stop();
        self.state().waiting.clear();
        self.ended.send_replace(true);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock_unpoisoned()
    }
}

impl State {
    fn pop(&mut self) -> Option<Box<dyn Job>> {
        let owner = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&owner)?;
        let (_, job) = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        Some(job)
    }
}
