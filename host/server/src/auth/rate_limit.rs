//! Rate limit (token bucket): the number of requests of each client per minute.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hatchery_core::sync::MutexExt;

/// Maximum number of clients with a bucket. The least recently used ones are evicted, and get a full bucket again.
const MAX_CLIENTS: usize = 16_384;

const MINUTE: Duration = Duration::from_secs(60);

/// Limits the requests of each client.
#[derive(Default)]
pub(super) struct RateLimit(Mutex<HashMap<String, Bucket>>);

/// The requests that a client may still send.
struct Bucket {
    left: f64,
    filled: Instant,
}

impl Bucket {
    /// Refills the bucket for the time since the last request.
    fn fill(&mut self, per_minute: f64, now: Instant) {
        let added = now.duration_since(self.filled).as_secs_f64() / MINUTE.as_secs_f64() * per_minute;
        self.left = (self.left + added).min(per_minute);
        self.filled = now;
    }
}

impl RateLimit {
    /// Counts a request of a client that may send this many per minute, in a burst or spread over the minute; 0 means
    /// no limit.
    ///
    /// # Errors
    /// Time until the client may retry.
    pub(super) fn count(&self, client: &str, per_minute: u32, now: Instant) -> Result<(), Duration> {
        if per_minute == 0 {
            return Ok(());
        }
        let max = f64::from(per_minute);
        let mut buckets = self.0.lock_unpoisoned();
        if buckets.len() >= MAX_CLIENTS && !buckets.contains_key(client) {
            forget_idle(&mut buckets);
        }
        let bucket = buckets.entry(client.to_owned()).or_insert(Bucket { left: max, filled: now });
        bucket.fill(max, now);
        if bucket.left < 1.0 {
            return Err(MINUTE.mul_f64((1.0 - bucket.left) / max));
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

/// Removes the half of the clients whose last request is longest ago: seldom, so that it costs little per request.
fn forget_idle(buckets: &mut HashMap<String, Bucket>) {
    let mut names: Vec<_> = buckets.iter().map(|(name, bucket)| (bucket.filled, name.clone())).collect();
    names.sort_unstable();
    names.truncate(names.len() / 2);
    for (_, name) in names {
        buckets.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_may_send_its_number_of_requests_per_minute() {
        let (limit, start) = (RateLimit::default(), Instant::now());
        let sent = |client: &str, now| (0..100).take_while(|_| limit.count(client, 6, now).is_ok()).count();
        assert_eq!(sent("a", start), 6);
        assert_eq!(limit.count("a", 6, start), Err(Duration::from_secs(10)));
        assert_eq!(sent("b", start), 6, "others are not affected");
        assert_eq!(sent("a", start + Duration::from_secs(10)), 1);
        assert_eq!(sent("a", start + Duration::from_secs(40)), 3);
        assert_eq!(sent("a", start + MINUTE * 60), 6, "what was not used is lost");
        assert!((0..1000).all(|_| limit.count("c", 0, start).is_ok()));
    }

    #[test]
    fn clients_that_send_nothing_make_room() {
        let (limit, start) = (RateLimit::default(), Instant::now());
        let at = |number: usize| start + Duration::from_micros(number as u64);
        for number in 0..MAX_CLIENTS {
            limit.count(&number.to_string(), 1, at(number)).unwrap();
        }
        limit.count("new", 1, at(MAX_CLIENTS)).unwrap();
        assert_eq!(limit.0.lock_unpoisoned().len(), MAX_CLIENTS / 2 + 1);
        assert!(limit.count(&(MAX_CLIENTS - 1).to_string(), 1, at(MAX_CLIENTS)).is_err(), "a busy one is known");
        assert!(limit.count("0", 1, at(MAX_CLIENTS)).is_ok());
    }

    #[test]
    fn clients_of_the_same_instant_make_room_too() {
        let (limit, start) = (RateLimit::default(), Instant::now());
        for number in 0..=MAX_CLIENTS {
            limit.count(&number.to_string(), 1, start).unwrap();
        }
        assert_eq!(limit.0.lock_unpoisoned().len(), MAX_CLIENTS / 2 + 1);
    }
}
