//! What one call has used of the network. What is wanted is taken before it is used, so requests at the same time cannot go over a limit
//! together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{Limit, LimitHit, Limits};

/// The counters of a call.
pub(super) struct Tally {
    limits: Limits,
    calls: AtomicU64,
    bytes: AtomicU64,
    open: AtomicU64,
}

impl Tally {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, calls: AtomicU64::new(0), bytes: AtomicU64::new(0), open: AtomicU64::new(0) }
    }

    /// Counts a request, which is open until what this gives is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Result<Open, LimitHit> {
        self.take(&self.calls, 1, self.limits.outbound_calls, Limit::OutboundCalls)?;
        self.take(&self.open, 1, self.limits.open_streams, Limit::OpenStreams)?;
        Ok(Open(self.clone()))
    }

    /// Counts bytes that are about to be sent, or that have come and are about to be handed on.
    pub(super) fn bytes(&self, count: usize) -> Result<(), LimitHit> {
        self.take(&self.bytes, count as u64, self.limits.outbound_bytes, Limit::OutboundBytes)
    }

    fn take(&self, counter: &AtomicU64, step: u64, most: u64, limit: Limit) -> Result<(), LimitHit> {
        let more = |count: u64| count.checked_add(step).filter(|sum| *sum <= most);
        let taken = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(|_| ()).map_err(|_| self.limits.hit(limit))
    }
}

/// A request that is open.
pub(super) struct Open(Arc<Tally>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_takers_never_go_over_together() {
        let tally = Arc::new(Tally::new(Limits { outbound_bytes: 1000, ..Limits::default() }));
        let taker = || {
            let tally = tally.clone();
            std::thread::spawn(move || (0..1000).filter(|_| tally.bytes(7).is_ok()).count())
        };
        let takers: Vec<_> = (0..4).map(|_| taker()).collect();
        let taken: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(taken, 1000 / 7);
        assert_eq!(
            tally.bytes(7).unwrap_err().to_string(),
            "it needs more than 1000 B in HTTP requests and responses; raise `limits.outbound_bytes` in hatchery.yaml to allow more"
        );
    }

    #[test]
    fn a_request_that_is_over_makes_room_but_stays_counted() {
        let tally = Arc::new(Tally::new(Limits { outbound_calls: 3, open_streams: 1, ..Limits::default() }));
        let open = tally.begin().unwrap();
        assert_eq!(tally.begin().err().unwrap().limit, Limit::OpenStreams);
        drop(open);
        drop(tally.begin().unwrap());
        assert_eq!(tally.begin().err().unwrap().limit, Limit::OutboundCalls);
    }
}
