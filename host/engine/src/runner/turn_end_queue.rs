//! Delay queue of ended turns: a lease is kept for a moment after its turn, then ended in the background.
//!
//! The next turn of this host reuses a lease that is kept, which saves two writes. Leases of all sessions are ended in
//! batches, whose writes can share a transaction.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use hatchery_core::sync::MutexExt;
use hatchery_core::{StoreError, TurnLease};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

/// Time for which a lease is kept after its turn.
const END_DELAY: Duration = Duration::from_millis(50);

/// Leases that are due within this time of the first one are ended with it.
const BATCH_WINDOW: Duration = Duration::from_millis(10);

/// The turns that have ended and whose leases are kept for a moment.
#[derive(Default)]
pub(super) struct TurnEndQueue {
    queue: Arc<Mutex<QueueState>>,
    /// The timer, and the batches that are being ended. Each batch is a task, because the store may delay one for long.
    tasks: TaskTracker,
}

#[derive(Default)]
struct QueueState {
    /// The turn that ended first comes first.
    waiting: VecDeque<EndedTurn>,
    /// The task that takes turns from `waiting`.
    timer: Option<AbortHandle>,
}

struct EndedTurn {
    due: Instant,
    lease: Arc<TurnLease>,
}

impl TurnEndQueue {
    /// Ends a turn in the background, for other hosts: the next turn of this one need not wait for it.
    pub(super) fn push(&self, lease: Arc<TurnLease>) {
        let mut queue = self.queue.lock_unpoisoned();
        queue.waiting.push_back(EndedTurn { due: Instant::now() + END_DELAY, lease });
        // The task of a runtime that was shut down has finished without the queue being empty.
        if queue.timer.as_ref().is_none_or(AbortHandle::is_finished) {
            let timer = end_due_turns(self.queue.clone(), self.tasks.clone());
            queue.timer = Some(self.tasks.spawn(timer).abort_handle());
        }
    }

    /// Ends a turn in the background, without delay.
    pub(super) fn end_now(&self, lease: Arc<TurnLease>) {
        self.tasks.spawn(end_leases(vec![lease]));
    }

    /// Ends all turns without further delay, and waits for that.
    pub(super) async fn end_all(&self) {
        let leases = {
            let mut queue = self.queue.lock_unpoisoned();
            if let Some(timer) = queue.timer.take() {
                timer.abort();
            }
            queue.take_first(usize::MAX)
        };
        self.tasks.spawn(end_leases(leases));
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl QueueState {
    /// Removes up to `count` turns, and returns their leases.
    fn take_first(&mut self, count: usize) -> Vec<Arc<TurnLease>> {
        let count = count.min(self.waiting.len());
        self.waiting.drain(..count).map(|turn| turn.lease).collect()
    }
}

/// Ends the turns of a queue as they become due, until it is empty.
async fn end_due_turns(queue: Arc<Mutex<QueueState>>, tasks: TaskTracker) {
    loop {
        let due = {
            let mut queue = queue.lock_unpoisoned();
            let Some(first) = queue.waiting.front() else {
                queue.timer = None;
                return;
            };
            first.due
        };
        sleep_until(due).await;
        let leases = {
            let mut queue = queue.lock_unpoisoned();
            let count = queue.waiting.partition_point(|turn| turn.due <= due + BATCH_WINDOW);
            queue.take_first(count)
        };
        tasks.spawn(end_leases(leases));
    }
}

async fn end_leases(leases: Vec<Arc<TurnLease>>) {
    join_all(leases.iter().map(|lease| end_lease(lease))).await;
}

async fn end_lease(lease: &TurnLease) {
    match lease.end().await {
        // Another turn has begun, or the session was deleted.
        Ok(()) | Err(StoreError::Fenced(_) | StoreError::SessionNotFound(_)) => {}
        Err(error) => tracing::warn!(code = error.code(), "a turn's lease was not ended: {error}"),
    }
}
