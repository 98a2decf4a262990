//! The input of a live run: its requests, and where their messages are stored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{Content, JsonMap, LiveRequestQueue, QueuedRequest, RunError};

use super::{PendingMessage, RunContext};

/// Stores messages of the user that arrive while a run is in progress.
#[async_trait]
pub(crate) trait MessageLog: Send + Sync {
    /// Passes a message to the plugins, and appends it to the session with changes of state. Returns it as it is
    /// stored.
    ///
    /// # Errors
    /// If the message is invalid, a plugin fails, or the message cannot be stored.
    async fn append(&self, run: &RunContext, message: Content, state: JsonMap) -> Result<Arc<Content>, RunError>;
}

/// The input of a live run.
pub(crate) struct LiveInput {
    pub(crate) queue: LiveRequestQueue,
    /// The request that has begun the run. `None` if a message has begun it.
    pub(crate) first: Arc<Mutex<Option<QueuedRequest>>>,
    /// The message whose parts arrive.
    pub(crate) pending: Arc<Mutex<PendingMessage>>,
    pub(crate) messages: Arc<dyn MessageLog>,
    pub(crate) conversing: ConversingFlag,
}

/// True while a live model holds the conversation of a live run. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct ConversingFlag(Arc<AtomicBool>);

/// Resets a [`ConversingFlag`] when it is dropped.
pub(crate) struct ConversingGuard(ConversingFlag);

impl ConversingFlag {
    /// Sets the flag until the guard is dropped.
    pub(crate) fn set(&self) -> ConversingGuard {
        self.0.store(true, Ordering::Release);
        ConversingGuard(self.clone())
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for ConversingGuard {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}
