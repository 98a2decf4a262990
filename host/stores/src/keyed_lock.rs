//! A fair async read-write lock per key, with a timeout.

use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hatchery_core::sync::MutexExt;
use hatchery_core::{FastHashMap, StoreError};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Maximum time that a write waits for earlier writes: first for writes of the same user, then for the database.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(5);

/// Recommended delay before a client's retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Returns the error of a write that has waited for [`MAX_WAIT`]; `activity` names the cause of the wait.
pub(crate) fn busy(activity: &str) -> StoreError {
    let context = format!("{activity}: this request has waited for {} s and nothing was changed", MAX_WAIT.as_secs());
    StoreError::Busy { context, retry_after: RETRY_AFTER }
}

/// The mode of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// The lock can be held by others in this mode.
    Shared,
    /// The lock has one holder.
    Exclusive,
}

/// A fair read-write lock per key. A key that is neither held nor waited for uses no memory.
pub(crate) struct KeyedLock<K: Eq + Hash + Clone>(Mutex<FastHashMap<K, Arc<RwLock<()>>>>);

impl<K: Eq + Hash + Clone> Default for KeyedLock<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Releases the lock of a key when dropped. Exists from the start of the wait; the lock is held once `guard` is set.
pub(crate) struct KeyedLockGuard<'a, K: Eq + Hash + Clone> {
    owner: &'a KeyedLock<K>,
    key: K,
    lock: Option<Arc<RwLock<()>>>,
    guard: Option<Guard>,
}

#[expect(dead_code, reason = "the guards are held until they are dropped")]
enum Guard {
    Shared(OwnedRwLockReadGuard<()>),
    Exclusive(OwnedRwLockWriteGuard<()>),
}

impl<K: Eq + Hash + Clone> KeyedLock<K> {
    /// Locks a key. Waits for all earlier callers, except that sharing ones do not wait for each other; returns `None`
    /// after `timeout`.
    pub(crate) async fn acquire(&self, key: K, access: LockMode, timeout: Duration) -> Option<KeyedLockGuard<'_, K>> {
        let lock = self.locks().entry(key.clone()).or_default().clone();
        let mut guard = KeyedLockGuard { owner: self, key, lock: Some(lock.clone()), guard: None };
        // Usually the lock is free. Waiting callers have acquired it already if it is, so this is fair.
        let free = match access {
            LockMode::Shared => lock.clone().try_read_owned().ok().map(Guard::Shared),
            LockMode::Exclusive => lock.clone().try_write_owned().ok().map(Guard::Exclusive),
        };
        if free.is_some() {
            guard.guard = free;
            return Some(guard);
        }
        let locked = tokio::time::timeout(timeout, async {
            match access {
                LockMode::Shared => Guard::Shared(lock.read_owned().await),
                LockMode::Exclusive => Guard::Exclusive(lock.write_owned().await),
            }
        });
        guard.guard = Some(locked.await.ok()?);
        Some(guard)
    }

    fn locks(&self) -> MutexGuard<'_, FastHashMap<K, Arc<RwLock<()>>>> {
        self.0.lock_unpoisoned()
    }
}

impl<K: Eq + Hash + Clone> Drop for KeyedLockGuard<'_, K> {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = self.owner.locks();
        self.lock = None;
        if let Entry::Occupied(lock) = locks.entry(self.key.clone())
            && Arc::strong_count(lock.get()) == 1
        {
            lock.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn a_key_has_one_holder_and_other_keys_do_not_wait() {
        let locks = KeyedLock::default();
        let first = locks.acquire("ann", LockMode::Exclusive, LONG).await.unwrap();
        assert!(locks.acquire("bob", LockMode::Exclusive, LONG).now_or_never().flatten().is_some());
        let mut second = Box::pin(locks.acquire("ann", LockMode::Exclusive, LONG));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.await.is_some());
        assert!(locks.locks().is_empty());
    }

    #[tokio::test]
    async fn shared_access_excludes_only_exclusive_access() {
        let locks = KeyedLock::default();
        let first = locks.acquire("ann", LockMode::Shared, LONG).await.unwrap();
        let second = locks.acquire("ann", LockMode::Shared, LONG).now_or_never().flatten().unwrap();
        let mut alone = Box::pin(locks.acquire("ann", LockMode::Exclusive, LONG));
        assert!(alone.as_mut().now_or_never().is_none());
        drop((first, second));
        assert!(alone.await.is_some());
        assert!(locks.locks().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_times_out_and_leaves_nothing_behind() {
        let locks = KeyedLock::default();
        let first = locks.acquire("ann", LockMode::Exclusive, LONG).await.unwrap();
        assert!(locks.acquire("ann", LockMode::Exclusive, LONG).await.is_none());
        drop(first);
        assert!(locks.locks().is_empty());
        assert!(locks.acquire("ann", LockMode::Exclusive, LONG).await.is_some());
    }
}
