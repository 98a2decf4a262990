//! Notifies waiting requests about changes of tasks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use hatchery_core::sync::MutexExt;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Notifiers of the tasks that requests of this process wait for.
#[derive(Default)]
pub(super) struct TaskChanges {
    notifiers: Mutex<HashMap<String, Weak<Notify>>>,
    closed: CancellationToken,
}

impl TaskChanges {
    /// Returns the notifier of a task, which is notified when one of its runs is added or cancelled.
    pub(super) fn notifier(&self, task: &str) -> Arc<Notify> {
        let mut notifiers = self.notifiers.lock_unpoisoned();
        notifiers.retain(|_, change| change.strong_count() > 0);
        let known = notifiers.get(task).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let change = Arc::new(Notify::new());
            notifiers.insert(task.to_owned(), Arc::downgrade(&change));
            change
        })
    }

    /// Notifies all requests that wait for a task.
    pub(super) fn notify(&self, task: &str) {
        let change = self.notifiers.lock_unpoisoned().get(task).and_then(Weak::upgrade);
        if let Some(change) = change {
            change.notify_waiters();
        }
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    /// Completes when [`TaskChanges::close`] is called.
    pub(super) async fn wait_until_closed(&self) {
        self.closed.cancelled().await;
    }
}
