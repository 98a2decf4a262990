//! Locks by key: at most one holder per key, the others wait in line, and none waits for ever.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hatchery_core::StoreError;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// How long a write waits for those before it: first for the same user's, then for the database.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(5);

/// How long a client should wait before it tries again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The error of a write that has waited for [`MAX_WAIT`]; `what` is busy.
pub(crate) fn busy(what: &str) -> StoreError {
    let what = format!("{what}: this request has waited for {} s and nothing was changed", MAX_WAIT.as_secs());
    StoreError::Busy { what, retry_after: RETRY_AFTER }
}

/// A fair lock per key. A key that nobody holds or waits for takes no memory.
pub(crate) struct KeyedQueue<K: Eq + Hash + Clone>(Mutex<HashMap<K, Arc<AsyncMutex<()>>>>);

impl<K: Eq + Hash + Clone> Default for KeyedQueue<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// A place in the queue of a key, from the moment of asking; the lock itself once `guard` is there.
pub(crate) struct QueueGuard<'a, K: Eq + Hash + Clone> {
    queue: &'a KeyedQueue<K>,
    key: K,
    lock: Option<Arc<AsyncMutex<()>>>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl<K: Eq + Hash + Clone> KeyedQueue<K> {
    /// Waits until everybody who asked for the key before has finished. `None` after `patience`.
    pub(crate) async fn acquire(&self, key: K, patience: Duration) -> Option<QueueGuard<'_, K>> {
        let lock = self.locks().entry(key.clone()).or_default().clone();
        let mut place = QueueGuard { queue: self, key, lock: Some(lock.clone()), guard: None };
        place.guard = Some(tokio::time::timeout(patience, lock.lock_owned()).await.ok()?);
        Some(place)
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<K, Arc<AsyncMutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Clone> Drop for QueueGuard<'_, K> {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = self.queue.locks();
        self.lock = None;
        if locks.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn a_key_has_one_holder_and_others_do_not_wait_for_it() {
        let queue = KeyedQueue::default();
        let first = queue.acquire("ann", LONG).await.unwrap();
        assert!(queue.acquire("bob", LONG).now_or_never().flatten().is_some());
        let mut second = Box::pin(queue.acquire("ann", LONG));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.await.is_some());
        assert!(queue.locks().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_waits_too_long_gives_up_and_leaves_nothing_behind() {
        let queue = KeyedQueue::default();
        let first = queue.acquire("ann", LONG).await.unwrap();
        assert!(queue.acquire("ann", LONG).await.is_none());
        drop(first);
        assert!(queue.locks().is_empty());
        assert!(queue.acquire("ann", LONG).await.is_some());
    }
}
