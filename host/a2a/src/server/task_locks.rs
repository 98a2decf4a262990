//! A lock per task, within this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as SyncMutex, Weak};

use hatchery_core::sync::MutexExt;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// The locks of tasks that are held or waited for.
#[derive(Default)]
pub(super) struct TaskLocks(SyncMutex<HashMap<String, Weak<Mutex<()>>>>);

impl TaskLocks {
    /// Acquires the lock of a task.
    pub(super) async fn lock(&self, task: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock_unpoisoned();
            locks.retain(|_, lock| lock.strong_count() > 0);
            let known = locks.get(task).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let lock = Arc::new(Mutex::new(()));
                locks.insert(task.to_owned(), Arc::downgrade(&lock));
                lock
            })
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_lock_is_held_by_one_and_forgotten_after_its_last_holder() {
        let locks = TaskLocks::default();
        let first = locks.lock("a").await;
        assert!(locks.lock("a").now_or_never().is_none());
        let other = locks.lock("b").await;
        drop((first, other));
        drop(locks.lock("a").await);
        drop(locks.lock("c").await);
        assert_eq!(locks.0.lock_unpoisoned().len(), 1);
    }
}
