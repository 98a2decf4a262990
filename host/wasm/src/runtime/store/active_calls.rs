//! Counts the running calls of a revision, and cancels them.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

/// The calls of one revision of a component.
#[derive(Default)]
pub(crate) struct ActiveCalls {
    running: AtomicUsize,
    cancel: CancellationToken,
}

impl ActiveCalls {
    /// Returns the number of calls that run now.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Cancels all calls, and later ones as soon as they begin.
    pub(crate) fn cancel_calls(&self) {
        self.cancel.cancel();
    }

    /// Returns true after [`Self::cancel_calls`].
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Resolves after [`Self::cancel_calls`].
    pub(super) fn cancelled(&self) -> impl Future<Output = ()> {
        self.cancel.cancelled()
    }

    /// Counts a call until the guard is dropped.
    pub(super) fn enter(&self) -> ActiveCall<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        ActiveCall(self)
    }
}

pub(super) struct ActiveCall<'a>(&'a ActiveCalls);

impl Drop for ActiveCall<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}
