//! Delay queue of ended turns: a lease is kept for a moment after its turn, then ended in the background.
//!
//! The next turn of this host reuses a lease that is kept, which saves two writes. One task ends the leases of all
//! sessions in batches, whose writes share a transaction.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use hatchery_core::sync::MutexExt;
use hatchery_core::{RunJournal, StoreError, TurnLease};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time for which a lease is kept after its turn.
const END_DELAY: Duration = Duration::from_millis(50);

/// Leases that are due within this time of the first one are ended with it.
const BATCH_WINDOW: Duration = Duration::from_millis(10);

/// The turns that have ended and whose leases are held for a moment.
#[derive(Default)]
pub(super) struct TurnEnds(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    /// The turn that ended first comes first.
    waiting: VecDeque<EndedTurn>,
    /// The task that takes turns from `waiting`.
    server: Option<AbortHandle>,
    tasks: JoinSet<()>,
    /// Cancelled to end the turns without further delay.
    without_delay: CancellationToken,
}

struct EndedTurn {
    due: Instant,
    lease: Arc<TurnLease>,
    /// The journal of a run that has finished.
    finished: Option<Arc<RunJournal>>,
}

impl TurnEnds {
    /// Ends a turn in the background, for other hosts: the next turn of this one need not wait for it. Deletes the
    /// records of the run if it has finished.
    pub(super) fn end(&self, lease: Arc<TurnLease>, finished: Option<Arc<RunJournal>>) {
        let mut queue = self.0.lock_unpoisoned();
        queue.waiting.push_back(EndedTurn { due: Instant::now() + END_DELAY, lease, finished });
        // The task of a runtime that was shut down has finished without its queue being empty.
        if queue.server.as_ref().is_none_or(AbortHandle::is_finished) {
            queue.server = Some(queue.spawn(serve(self.0.clone())));
        }
    }

    /// Ends a turn in the background, without delay.
    pub(super) fn end_now(&self, lease: Arc<TurnLease>) {
        let turn = EndedTurn { due: Instant::now(), lease, finished: None };
        self.0.lock_unpoisoned().spawn(turn.end());
    }

    /// Ends all turns without further delay, and waits for that.
    pub(super) async fn end_all(&self) {
        let (tasks, without_delay) = {
            let mut queue = self.0.lock_unpoisoned();
            (std::mem::take(&mut queue.tasks), std::mem::take(&mut queue.without_delay))
        };
        without_delay.cancel();
        tasks.join_all().await;
    }
}

impl Queue {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(task)
    }

    /// Removes the turns that are due at `time`.
    fn take_due(&mut self, time: Instant) -> Vec<EndedTurn> {
        let due = self.waiting.partition_point(|turn| turn.due <= time);
        self.waiting.drain(..due).collect()
    }
}

/// Ends the turns of a queue as they become due, until it is empty.
async fn serve(queue: Arc<Mutex<Queue>>) {
    loop {
        let (due, without_delay) = {
            let mut queue = queue.lock_unpoisoned();
            let Some(first) = queue.waiting.front() else {
                queue.server = None;
                return;
            };
            (first.due, queue.without_delay.clone())
        };
        let is_due = without_delay.run_until_cancelled(tokio::time::sleep_until(due)).await.is_some();
        let time = if is_due { due + BATCH_WINDOW } else { due + END_DELAY };
        let turns = queue.lock_unpoisoned().take_due(time);
        join_all(turns.into_iter().map(EndedTurn::end)).await;
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
