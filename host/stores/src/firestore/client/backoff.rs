//! Delays between attempts of requests.

use std::time::{Duration, Instant};

/// How long a request is repeated that the service cannot currently serve, or that conflicts with others.
const MAX_WAIT: Duration = Duration::from_secs(5);
const FIRST_DELAY: Duration = Duration::from_millis(5);
const MAX_DELAY: Duration = Duration::from_millis(500);

/// Delays between attempts, which become longer, until a time has passed.
pub(in crate::firestore) struct Backoff {
    end: Instant,
    delay: Duration,
}

impl Backoff {
    pub(in crate::firestore) fn new() -> Self {
        Self { end: Instant::now() + MAX_WAIT, delay: FIRST_DELAY }
    }

    /// Returns the remaining time for attempts.
    pub(in crate::firestore) fn remaining(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Waits before the next attempt. Returns false immediately if there should be none.
    pub(in crate::firestore) async fn wait(&mut self) -> bool {
        if Instant::now() + self.delay > self.end {
            return false;
        }
        // Those who were slower in the same attempt spread over the time until the next one.
        let spread = uuid::Uuid::new_v4().as_u128() % self.delay.as_micros().max(1);
        tokio::time::sleep(self.delay / 2 + Duration::from_micros(u64::try_from(spread).unwrap_or_default())).await;
        self.delay = (self.delay * 2).min(MAX_DELAY);
        true
    }
}
