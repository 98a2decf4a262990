//! The clocks of a call and the order to stop.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::turn::{Turn, Turns};

/// Why a running guest is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum Stop {
    #[error("cancelled")]
    Cancelled,
    #[error("out of CPU time")]
    Cpu,
    #[error("out of time")]
    Wall,
}

/// How long a call has run, and whether it may go on. Times are nanoseconds since `start`.
pub(super) struct Clock {
    start: Instant,
    cpu: Duration,
    /// `None` when it is too far away to be a point in time.
    deadline: Option<Instant>,
    cancel: CancellationToken,
    /// CPU time of the polls that have ended.
    spent: AtomicU64,
    /// When the poll that is going on began.
    polled_at: AtomicU64,
    turn: Turn,
}

impl Clock {
    pub(super) fn new(cpu: Duration, wall: Duration, cancel: CancellationToken, turns: Turns) -> Self {
        let start = Instant::now();
        let deadline = start.checked_add(wall);
        let turn = Turn::new(turns);
        Self { start, cpu, deadline, cancel, spent: AtomicU64::new(0), polled_at: AtomicU64::new(0), turn }
    }

    /// Called by a running guest at each tick.
    pub(super) fn check(&self) -> Result<(), Stop> {
        if self.cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        let running = self.now().saturating_sub(self.polled_at.load(Ordering::Relaxed));
        if Duration::from_nanos(self.spent.load(Ordering::Relaxed) + running) > self.cpu {
            return Err(Stop::Cpu);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Err(Stop::Wall);
        }
        Ok(())
    }

    /// Waits until the guest may run for another tick.
    pub(super) async fn next_turn(self: Arc<Self>) {
        self.turn.next().await;
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Counts the time that `inner` is being polled.
pub(super) fn metered<F: Future>(clock: Arc<Clock>, inner: F) -> impl Future<Output = F::Output> {
    Metered { clock, inner: Box::pin(inner) }
}

struct Metered<F> {
    clock: Arc<Clock>,
    inner: Pin<Box<F>>,
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let began = self.clock.now();
        self.clock.polled_at.store(began, Ordering::Relaxed);
        let result = self.inner.as_mut().poll(cx);
        let ran = self.clock.now().saturating_sub(began);
        self.clock.spent.fetch_add(ran, Ordering::Relaxed);
        self.clock.turn.stop();
        result
    }
}
