//! A queue of writes that serves users in turn.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use hatchery_core::sync::MutexExt;
use tokio::sync::watch;

use super::writer::Job;
use super::{Failure, Owner};

/// Writes that wait for the writing thread.
pub(super) struct Queue {
    state: Mutex<State>,
    /// Notified when the writing thread has something to do.
    wake: Condvar,
    /// Hashes the owners of writes.
    hasher: RandomState,
    /// How many deferred writes are not committed.
    deferred: AtomicUsize,
    /// True once the writing thread has ended.
    ended: watch::Sender<bool>,
}

/// A write that waits.
struct QueuedJob {
    id: u64,
    job: Box<dyn Job>,
    /// True if it is made together with the next other write.
    is_deferred: bool,
}

#[derive(Default)]
struct State {
    /// The writes of each owner, oldest first.
    waiting: HashMap<u64, VecDeque<QueuedJob>>,
    /// The owners with waiting writes, in the order of their turns.
    turns: VecDeque<u64>,
    /// The id of the newest write.
    last_id: u64,
    /// The number of waiting writes that are not deferred.
    urgent: usize,
    /// The number of writes of the last group that were not deferred.
    last_group: usize,
    /// True from the first deferred write on, until [`Queue::flush`].
    will_flush: bool,
    /// True while deferred writes are made although no other write waits.
    is_flushing: bool,
    /// True while the writing thread sleeps.
    is_idle: bool,
    is_closed: bool,
}

impl Default for Queue {
    fn default() -> Self {
        let (state, wake, hasher) = (Mutex::default(), Condvar::new(), RandomState::new());
        Self { state, wake, hasher, deferred: AtomicUsize::new(0), ended: watch::Sender::new(false) }
    }
}

impl Queue {
    /// Adds a write of this app and user. Returns its id.
    ///
    /// # Errors
    /// [`Failure::Closed`].
    pub(super) fn push(&self, owner: Owner<'_>, job: Box<dyn Job>) -> Result<u64, Failure> {
        let owner = self.hasher.hash_one(owner);
        let mut state = self.state();
        if state.is_closed {
            return Err(Failure::Closed);
        }
        let id = state.push(owner, job, false);
        let is_idle = std::mem::take(&mut state.is_idle);
        drop(state);
        if is_idle {
            self.wake.notify_one();
        }
        Ok(id)
    }

    /// Adds a write that is made together with the next one. Returns true if the caller has to [flush](Queue::flush)
    /// the queue later.
    pub(super) fn push_later(&self, owner: Owner<'_>, job: Box<dyn Job>) -> bool {
        let owner = self.hasher.hash_one(owner);
        let mut state = self.state();
        if state.is_closed {
            drop(state);
            job.fail(Failure::Closed);
            return false;
        }
        state.push(owner, job, true);
        self.deferred.fetch_add(1, Ordering::AcqRel);
        !std::mem::replace(&mut state.will_flush, true)
    }

    /// Lets the writing thread make the deferred writes now instead of together with the next write.
    pub(super) fn flush(&self) {
        let mut state = self.state();
        state.will_flush = false;
        state.is_flushing = !state.turns.is_empty();
        let is_idle = state.is_flushing && std::mem::take(&mut state.is_idle);
        drop(state);
        if is_idle {
            self.wake.notify_one();
        }
    }

    /// Returns true if there are deferred writes that are not committed.
    pub(super) fn has_deferred(&self) -> bool {
        self.deferred.load(Ordering::Acquire) > 0
    }

    /// Subtracts this number of deferred writes, which were committed or have failed.
    pub(super) fn set_committed(&self, deferred: usize) {
        self.deferred.fetch_sub(deferred, Ordering::AcqRel);
    }

    /// Removes a write that has not begun. Returns false if it has.
    pub(super) fn withdraw(&self, owner: Owner<'_>, id: u64) -> bool {
        let owner = self.hasher.hash_one(owner);
        let mut state = self.state();
        let Some(waiting) = state.waiting.get_mut(&owner) else { return false };
        let Some(index) = waiting.iter().position(|other| other.id == id) else { return false };
        waiting.remove(index);
        if waiting.is_empty() {
            state.waiting.remove(&owner);
            state.turns.retain(|other| *other != owner);
        }
        state.urgent -= 1;
        true
    }

    /// Waits for writes that are not deferred, and moves up to `limit` writes to `group`, one of each owner in turn.
    /// Returns how many of them are deferred; `None` once the queue is closed and empty.
    pub(super) fn take(&self, group: &mut Vec<Box<dyn Job>>, limit: usize) -> Option<usize> {
        let mut state = self.state();
        while state.urgent == 0 && !state.is_flushing {
            if state.is_closed {
                if state.turns.is_empty() {
                    return None;
                }
                break;
            }
            state.is_idle = true;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.last_group > 1 {
            // Others write at the same time. Those that are about to add a write share the transaction.
            drop(state);
            std::thread::yield_now();
            state = self.state();
        }
        let mut deferred = 0;
        while group.len() < limit
            && let Some(QueuedJob { job, is_deferred, .. }) = state.pop()
        {
            deferred += usize::from(is_deferred);
            group.push(job);
        }
        state.is_flushing &= !state.turns.is_empty();
        state.last_group = group.len() - deferred;
        Some(deferred)
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
    /// Adds a write. Returns its id.
    fn push(&mut self, owner: u64, job: Box<dyn Job>, is_deferred: bool) -> u64 {
        self.last_id += 1;
        self.urgent += usize::from(!is_deferred);
        let (id, waiting) = (self.last_id, self.waiting.entry(owner).or_default());
        waiting.push_back(QueuedJob { id, job, is_deferred });
        if waiting.len() == 1 {
            self.turns.push_back(owner);
        }
        id
    }

    fn pop(&mut self) -> Option<QueuedJob> {
        let owner = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&owner)?;
        let job = waiting.pop_front()?;
        self.urgent -= usize::from(!job.is_deferred);
        if waiting.is_empty() {
            self.waiting.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        Some(job)
    }
}
