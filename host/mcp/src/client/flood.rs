//! Rate limit (token bucket) for the notifications and requests of a server.

use std::sync::Mutex;
use std::time::Instant;

use hatchery_core::sync::MutexExt;

/// Burst of notifications, in seconds of the maximum rate.
const BURST_SECONDS: f64 = 10.0;

/// A token bucket.
pub(super) struct FloodGuard {
    per_second: f64,
    state: Mutex<(f64, Instant)>,
}

impl FloodGuard {
    /// Creates a guard that admits `per_second` notifications per second.
    pub(super) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, state: Mutex::new((per_second * BURST_SECONDS, Instant::now())) }
    }

    /// Counts a notification that arrives now. Returns false if there were too many.
    pub(super) fn admit(&self, now: Instant) -> bool {
        let mut state = self.state.lock_unpoisoned();
        let (tokens, last) = *state;
        let refill = now.saturating_duration_since(last).as_secs_f64() * self.per_second;
        let tokens = (tokens + refill).min(self.per_second * BURST_SECONDS);
        // Never goes back: callers take the time before they wait for the lock.
        *state = ((tokens - 1.0).max(0.0), now.max(last));
        tokens >= 1.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_admitted_and_a_lasting_flood_is_not() {
        let (guard, start) = (FloodGuard::new(10), Instant::now());
        assert!((0..100).all(|_| guard.admit(start)));
        assert!(!guard.admit(start));
        let later = start + Duration::from_secs(1);
        assert!((0..10).all(|_| guard.admit(later)));
        assert!(!guard.admit(later));
    }

    #[test]
    fn a_time_out_of_order_does_not_refill_a_second_time() {
        let (guard, start) = (FloodGuard::new(10), Instant::now());
        let later = start + Duration::from_secs(1);
        assert!((0..100).all(|_| guard.admit(later)));
        assert!(!guard.admit(start));
        assert!(!guard.admit(later));
    }
}
