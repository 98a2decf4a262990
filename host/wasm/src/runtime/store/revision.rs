//! How much a revision of a component is used, and the order to end what still uses it.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

/// Counts the calls of one revision that are running. It can be cut off, which ends them and refuses further ones.
#[derive(Default)]
pub(crate) struct Revision {
    running: AtomicUsize,
    cut: CancellationToken,
}

impl Revision {
    /// How many calls run now.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Ends all calls.
    pub(crate) fn cut_off(&self) {
        self.cut.cancel();
    }

    /// Ready when it is cut off.
    pub(super) fn ended(&self) -> impl Future<Output = ()> {
        self.cut.cancelled()
    }

    /// A call begins; it ends when this is dropped.
    pub(super) fn enter(&self) -> Running<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        Running(self)
    }
}

/// A call that runs.
pub(super) struct Running<'a>(&'a Revision);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}
