//! CPU and wall clock of a call, checked at each epoch interruption.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::cpu_scheduler::TimeSlice;
use crate::runtime::engine::Engine;
use crate::runtime::epoch_timer::RunningGuests;

/// The reason why a running guest is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum InterruptReason {
    #[error("cancelled")]
    Cancelled,
    #[error("out of CPU time")]
    Cpu,
    #[error("out of time")]
    Wall,
}

/// Measures a call. Times are nanoseconds since `start`.
pub(super) struct Clock {
    start: Instant,
    cpu: Duration,
    /// `None` if it is too far away for an [`Instant`].
    deadline: Option<Instant>,
    cancel: CancellationToken,
    /// CPU time of the polls that have returned.
    spent: AtomicU64,
    /// Start of the current poll.
    polled_at: AtomicU64,
    guests: RunningGuests,
    slice: TimeSlice,
}

impl Clock {
    /// Creates a clock that measures from now.
    pub(super) fn new(cpu: Duration, wall: Duration, cancel: CancellationToken, engine: &Engine) -> Self {
        let start = Instant::now();
        let (spent, polled_at) = (AtomicU64::new(0), AtomicU64::new(0));
        let (guests, slice) = (engine.running_guests().clone(), TimeSlice::new(engine.cpu_scheduler().clone()));
        Self { start, cpu, deadline: start.checked_add(wall), cancel, spent, polled_at, guests, slice }
    }

    /// Checks for an interruption, at each epoch tick while the guest runs.
    pub(super) fn check(&self) -> Result<(), InterruptReason> {
        if self.cancel.is_cancelled() {
            return Err(InterruptReason::Cancelled);
        }
        let running = self.now().saturating_sub(self.polled_at.load(Ordering::Relaxed));
        if Duration::from_nanos(self.spent.load(Ordering::Relaxed) + running) > self.cpu {
            return Err(InterruptReason::Cpu);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Err(InterruptReason::Wall);
        }
        Ok(())
    }

    /// Waits for the next time slice.
    pub(super) async fn next_slice(self: Arc<Self>) {
        self.slice.acquire().await;
    }

    /// Returns the CPU time of the call so far, without a poll in progress.
    pub(super) fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent.load(Ordering::Relaxed))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Adds the time in which `inner` is polled to the CPU time of `clock`.
pub(super) fn measure_cpu<F: Future>(clock: Arc<Clock>, inner: F) -> impl Future<Output = F::Output> {
    MeasuredFuture { clock, inner: Box::pin(inner) }
}

struct MeasuredFuture<F> {
    clock: Arc<Clock>,
    inner: Pin<Box<F>>,
}

impl<F: Future> Future for MeasuredFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { clock, inner } = &mut *self;
        let _running = clock.guests.enter();
        let began = clock.now();
        clock.polled_at.store(began, Ordering::Relaxed);
        let result = inner.as_mut().poll(cx);
        let ran = clock.now().saturating_sub(began);
        clock.spent.fetch_add(ran, Ordering::Relaxed);
        clock.slice.release();
        result
    }
}
