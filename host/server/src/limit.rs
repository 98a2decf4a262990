//! A semaphore whose number of permits can be changed while they are in use.

use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of permits. Lowering it takes effect as permits are returned.
#[derive(Debug)]
pub(crate) struct Limit {
    free: Arc<Semaphore>,
    state: Mutex<LimitState>,
}

#[derive(Debug)]
struct LimitState {
    max: usize,
    /// Permits to remove that were in use when the limit was lowered.
    surplus: usize,
}

impl Limit {
    /// Allows `max` permits, at least one.
    pub(crate) fn new(max: usize) -> Self {
        let max = clamp(max);
        Self { free: Arc::new(Semaphore::new(max)), state: Mutex::new(LimitState { max, surplus: 0 }) }
    }

    /// Changes the number of permits.
    pub(crate) fn set(&self, max: usize) {
        let max = clamp(max);
        let mut state = self.state.lock_unpoisoned();
        if max >= state.max {
            let more = max - state.max;
            let owed = state.surplus.min(more);
            state.surplus -= owed;
            self.free.add_permits(more - owed);
        } else {
            state.surplus += state.max - max;
        }
        state.max = max;
        self.remove_surplus(&mut state);
    }

    /// Returns the number of permits that are free.
    pub(crate) fn available(&self) -> usize {
        self.remove_surplus(&mut self.state.lock_unpoisoned());
        self.free.available_permits()
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            // The semaphore is never closed, so this is never `None`.
            let permit = self.free.clone().acquire_owned().await.ok()?;
            let mut state = self.state.lock_unpoisoned();
            if state.surplus == 0 {
                return Some(permit);
            }
            state.surplus -= 1;
            permit.forget();
        }
    }

    /// Returns so many permits. `None` if they are not free.
    pub(crate) fn try_acquire(&self, count: u32) -> Option<OwnedSemaphorePermit> {
        self.remove_surplus(&mut self.state.lock_unpoisoned());
        self.free.clone().try_acquire_many_owned(count).ok()
    }

    fn remove_surplus(&self, state: &mut LimitState) {
        if state.surplus > 0 {
            state.surplus -= self.free.forget_permits(state.surplus);
        }
    }
}

fn clamp(max: usize) -> usize {
    max.clamp(1, Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_lower_limit_takes_effect_as_permits_are_returned() {
        let limit = Limit::new(3);
        let mut held: Vec<_> = (0..3).map(|_| limit.try_acquire(1).unwrap()).collect();
        limit.set(1);
        held.pop();
        assert!(limit.try_acquire(1).is_none() && limit.acquire().now_or_never().is_none());
        held.pop();
        assert_eq!(limit.available(), 0);
        held.clear();
        assert_eq!(limit.available(), 1);
        limit.set(4);
        assert_eq!(limit.available(), 4);
    }

    #[tokio::test]
    async fn a_permit_above_a_lower_limit_does_not_go_to_who_waits() {
        let limit = Limit::new(2);
        let (first, second) = (limit.try_acquire(1).unwrap(), limit.try_acquire(1).unwrap());
        let mut waiting = std::pin::pin!(limit.acquire());
        assert!(waiting.as_mut().now_or_never().is_none());
        limit.set(1);
        drop(first);
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(second);
        assert!(waiting.await.is_some());
    }

    #[test]
    fn a_raised_limit_takes_back_what_was_to_be_removed() {
        let limit = Limit::new(2);
        let held = limit.try_acquire(2).unwrap();
        limit.set(1);
        limit.set(3);
        assert_eq!(limit.available(), 1);
        drop(held);
        assert_eq!(limit.available(), 3);
    }
}
