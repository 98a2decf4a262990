//! Locks without poisoning: a panic in one holder does not make the data unusable for the others.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks a [`Mutex`] and ignores poisoning.
///
/// For data that is consistent between any two statements of its holders, so that a panic cannot leave it half changed.
pub trait MutexExt<T: ?Sized> {
    /// Blocks until the lock is free and returns its guard, even if an earlier holder panicked.
    fn lock_unpoisoned(&self) -> MutexGuard<'_, T>;
}

impl<T: ?Sized> MutexExt<T> for Mutex<T> {
    fn lock_unpoisoned(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locks an [`RwLock`] and ignores poisoning; see [`MutexExt`].
pub trait RwLockExt<T: ?Sized> {
    /// Blocks until no writer holds the lock and returns a shared guard, even if an earlier writer panicked.
    fn read_unpoisoned(&self) -> RwLockReadGuard<'_, T>;

    /// Blocks until the lock is free and returns an exclusive guard, even if an earlier writer panicked.
    fn write_unpoisoned(&self) -> RwLockWriteGuard<'_, T>;
}

impl<T: ?Sized> RwLockExt<T> for RwLock<T> {
    fn read_unpoisoned(&self) -> RwLockReadGuard<'_, T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_unpoisoned(&self) -> RwLockWriteGuard<'_, T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}
