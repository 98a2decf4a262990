//! Concurrency limit: the number of requests in progress of each client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;

/// Limits the requests of each client that are in progress.
#[derive(Clone, Default)]
pub(super) struct ConcurrencyLimit(Arc<Mutex<HashMap<String, u32>>>);

/// A permit for one request of a client, released when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct RequestPermit {
    _guard: Arc<CountGuard>,
}

struct CountGuard {
    limit: ConcurrencyLimit,
    client: String,
}

impl ConcurrencyLimit {
    /// Counts a request of a client that may have `max` in progress; 0 means no limit, and the request is not counted.
    ///
    /// # Errors
    /// If that many are in progress.
    pub(super) fn acquire(&self, client: &str, max: u32) -> Result<Option<RequestPermit>, LimitReached> {
        if max == 0 {
            return Ok(None);
        }
        let mut counts = self.0.lock_unpoisoned();
        let count = counts.get(client).copied().unwrap_or_default();
        if count >= max {
            return Err(LimitReached);
        }
        counts.insert(client.to_owned(), count + 1);
        Ok(Some(RequestPermit { _guard: Arc::new(CountGuard { limit: self.clone(), client: client.to_owned() }) }))
    }
}

/// A client has as many requests in progress as it may have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LimitReached;

impl Drop for CountGuard {
    fn drop(&mut self) {
        let mut counts = self.limit.0.lock_unpoisoned();
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_own_requests_until_they_end() {
        let limit = ConcurrencyLimit::default();
        let first = limit.acquire("a", 2).unwrap();
        let second = limit.acquire("a", 2).unwrap();
        assert_eq!(limit.acquire("a", 2).map(drop), Err(LimitReached));
        let other = limit.acquire("b", 1).unwrap();
        let clone = first.clone();
        drop(first);
        assert_eq!(limit.acquire("a", 2).map(drop), Err(LimitReached), "a clone holds the place");
        drop(clone);
        assert!(limit.acquire("a", 2).unwrap().is_some());
        drop((second, other));
        assert!(limit.0.lock_unpoisoned().is_empty(), "clients without requests are forgotten");
    }

    #[test]
    fn zero_means_no_limit() {
        let limit = ConcurrencyLimit::default();
        assert!((0..1000).all(|_| limit.acquire("a", 0).is_ok_and(|permit| permit.is_none())));
    }
}
