//! Delay queue of ended turns: a lease is kept for a moment after its turn, then ended in the background.
//!
//! The next turn of this host reuses a lease that is kept, which saves two writes. Leases of all sessions are ended in
//! batches, whose writes can share a transaction.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use hatchery_core::sync::MutexExt;
use hatchery_core::{RunJournal, StoreError, TurnLease};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

/// Time for which a lease is kept after its turn.
const END_DELAY: Duration = Duration::from_millis(50);

/// Leases that are due within this time of the first one are ended with it.
const BATCH_WINDOW: Duration = Duration::from_millis(10);

/// The turns that have ended and whose leases are kept for a moment.
#[derive(Default)]
pub(super) struct TurnEndQueue(Arc<Mutex<QueueState>>);

#[derive(Default)]
struct QueueState {
    /// The turn that ended first comes first.
    waiting: VecDeque<EndedTurn>,
    /// The task that takes turns from `waiting`.
    timer: Option<AbortHandle>,
    /// The batches that are being ended. Each is a task, because the store may delay one for long.
    batches: JoinSet<()>,
}

struct EndedTurn {
    due: Instant,
    lease: Arc<TurnLease>,
    /// The journal of a run that has finished.
    finished: Option<Arc<RunJournal>>,
}

impl TurnEndQueue {
    /// Ends a turn in the background, for other hosts: the next turn of this one need not wait for it. Deletes the
    /// records of the run if it has finished.
    pub(super) fn push(&self, lease: Arc<TurnLease>, finished: Option<Arc<RunJournal>>) {
        let mut queue = self.0.lock_unpoisoned();
        queue.waiting.push_back(EndedTurn { due: Instant::now() + END_DELAY, lease, finished });
        // The task of a runtime that was shut down has finished without the queue being empty.
        if queue.timer.as_ref().is_none_or(AbortHandle::is_finished) {
            queue.timer = Some(tokio::spawn(end_due_turns(self.0.clone())).abort_handle());
        }
    }

    /// Ends a turn in the background, without delay.
    pub(super) fn end_now(&self, lease: Arc<TurnLease>) {
        self.0.lock_unpoisoned().end(vec![EndedTurn { due: Instant::now(), lease, finished: None }]);
    }

    /// Ends all turns without further delay, and waits for that.
    pub(super) async fn end_all(&self) {
        let batches = {
            let mut queue = self.0.lock_unpoisoned();
            let waiting = queue.waiting.drain(..).collect();
            queue.end(waiting);
            std::mem::take(&mut queue.batches)
        };
        batches.join_all().await;
    }
}

impl QueueState {
    /// Ends turns in a separate task.
    fn end(&mut self, turns: Vec<EndedTurn>) {
        while self.batches.try_join_next().is_some() {}
        if !turns.is_empty() {
            self.batches.spawn(async move {
                join_all(turns.into_iter().map(EndedTurn::end)).await;
            });
        }
    }
}

/// Ends the turns of a queue as they become due, until it is empty.
async fn end_due_turns(queue: Arc<Mutex<QueueState>>) {
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
        let mut queue = queue.lock_unpoisoned();
        let count = queue.waiting.partition_point(|turn| turn.due <= due + BATCH_WINDOW);
        let turns = queue.waiting.drain(..count).collect();
        queue.end(turns);
    }
}

impl EndedTurn {
    async fn end(self) {
        if let Some(journal) = self.finished
            && let Err(error) = journal.finish().await
        {
            tracing::warn!(code = error.code(), "the journal of a run was not deleted: {error}");
        }
        match self.lease.end().await {
            // Another turn has begun, or the session was deleted.
            Ok(()) | Err(StoreError::Fenced(_) | StoreError::SessionNotFound(_)) => {}
            Err(error) => tracing::warn!(code = error.code(), "a turn's lease was not ended: {error}"),
        }
    }
}
