//! CPU and wall clock of a call, checked at each epoch interruption.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::cpu_scheduler::{CpuScheduler, TimeSlice};

/// Why a running guest is interrupted.
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
    slice: TimeSlice,
}

impl Clock {
    pub(super) fn new(cpu: Duration, wall: Duration, cancel: CancellationToken, scheduler: CpuScheduler) -> Self {
        let start = Instant::now();
        let deadline = start.checked_add(wall);
        let slice = TimeSlice::new(scheduler);
        Self { start, cpu, deadline, cancel, spent: AtomicU64::new(0), polled_at: AtomicU64::new(0), slice }
    }

    /// Called at each epoch tick while the guest runs.
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
        let began = self.clock.now();
        self.clock.polled_at.store(began, Ordering::Relaxed);
        let result = self.inner.as_mut().poll(cx);
        let ran = self.clock.now().saturating_sub(began);
        self.clock.spent.fetch_add(ran, Ordering::Relaxed);
        self.clock.slice.release();
        result
    }
}
