//! Usage counters of one call, for models, tools and the network, and their limits.
//!
//! They are increased before the use, so concurrent uses cannot exceed a limit together. Only tokens are counted
//! afterwards, because their number is not known before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::{InstanceMemory, MemoryError, MemoryReservation};
use crate::guest_log::GuestLog;
use crate::runtime::limits::{Limit, LimitExceeded, Limits};

pub(crate) struct CallUsage {
    limits: Limits,
    log: GuestLog,
    memory: Arc<InstanceMemory>,
    model_calls: AtomicU64,
    tokens: AtomicU64,
    tool_calls: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
    open_requests: AtomicU64,
}

impl CallUsage {
    pub(crate) fn new(limits: Limits, log: GuestLog, memory: Arc<InstanceMemory>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            limits,
            log,
            memory,
            model_calls: zero(),
            tokens: zero(),
            tool_calls: zero(),
            requests: zero(),
            bytes: zero(),
            open_requests: zero(),
        }
    }

    /// Counts a request to a model before it is sent. Fails, too, if the tokens of earlier requests reached their
    /// limit.
    pub(crate) fn count_model_call(&self) -> Result<(), LimitExceeded> {
        if self.tokens.load(Ordering::Relaxed) >= self.limits.tokens {
            return Err(self.limit_exceeded(Limit::Tokens));
        }
        self.take(&self.model_calls, 1, self.limits.model_calls, Limit::ModelCalls)
    }

    /// Adds the tokens of an answer.
    pub(crate) fn add_tokens(&self, count: u64) {
        let more = |used: u64| Some(used.saturating_add(count));
        // `more` always returns a value.
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts a tool call before it is made.
    pub(crate) fn count_tool_call(&self) -> Result<(), LimitExceeded> {
        self.take(&self.tool_calls, 1, self.limits.tool_calls, Limit::ToolCalls)
    }

    /// Counts an HTTP request that the host may send for the call.
    pub(crate) fn count_request(&self) -> Result<(), LimitExceeded> {
        self.take(&self.requests, 1, self.limits.outbound_calls, Limit::OutboundCalls)
    }

    /// Counts an HTTP request, which is open until the returned guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> Result<OpenRequest, LimitExceeded> {
        self.count_request()?;
        self.take(&self.open_requests, 1, self.limits.open_streams, Limit::OpenStreams)?;
        Ok(OpenRequest(self.clone()))
    }

    /// Counts bytes before they are sent, or received bytes before they are passed on.
    pub(crate) fn count_bytes(&self, count: usize) -> Result<(), LimitExceeded> {
        self.take(&self.bytes, count as u64, self.limits.outbound_bytes, Limit::OutboundBytes)
    }

    fn take(&self, counter: &AtomicU64, step: u64, max: u64, limit: Limit) -> Result<(), LimitExceeded> {
        let more = |count: u64| count.checked_add(step).filter(|sum| *sum <= max);
        let result = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        result.map(|_| ()).map_err(|_| self.limit_exceeded(limit))
    }

    /// Reserves memory for bytes that the host holds for the call, until the returned guard is dropped.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<MemoryReservation, MemoryError> {
        let reservation = self.memory.reserve(bytes);
        if let Err(error) = &reservation {
            self.log.report_limit(error.key(), error);
        }
        reservation
    }

    /// Returns the error for an exceeded limit, and records it in the audit log.
    pub(crate) fn limit_exceeded(&self, limit: Limit) -> LimitExceeded {
        let exceeded = self.limits.exceeded(limit);
        self.log.report_limit(limit.key().unwrap_or("fixed"), &exceeded);
        exceeded
    }
}

/// An open HTTP request.
pub(crate) struct OpenRequest(Arc<CallUsage>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::store::memory::EngineMemory;

    fn usage(limits: Limits) -> CallUsage {
        let memory = InstanceMemory::new(limits.clone(), EngineMemory::new(0, 0), None);
        let log = GuestLog::new("tester".into(), None, &limits);
        CallUsage::new(limits, log, memory)
    }

    #[test]
    fn parallel_uses_never_exceed_a_limit_together() {
        let usage = Arc::new(usage(Limits { outbound_bytes: 1000, ..Limits::default() }));
        let worker = || {
            let usage = usage.clone();
            std::thread::spawn(move || (0..1000).filter(|_| usage.count_bytes(7).is_ok()).count())
        };
        let workers: Vec<_> = (0..4).map(|_| worker()).collect();
        let taken: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        assert_eq!(taken, 1000 / 7);
        assert_eq!(
            usage.count_bytes(7).unwrap_err().to_string(),
            "it exceeded its limit of 1000 B in HTTP requests and responses; raise `limits.outbound_bytes` in hatchery.yaml to allow more"
        );
    }

    #[test]
    fn tokens_are_counted_afterwards_and_stop_the_next_call() {
        let usage = usage(Limits { model_calls: 3, tokens: 10, ..Limits::default() });
        usage.count_model_call().unwrap();
        usage.add_tokens(9);
        usage.count_model_call().unwrap();
        usage.add_tokens(9);
        assert_eq!(
            usage.count_model_call().unwrap_err().to_string(),
            "it exceeded its limit of 10 model tokens; raise `limits.tokens` in hatchery.yaml to allow more"
        );
    }

    #[test]
    fn a_request_that_has_ended_makes_room_but_stays_counted() {
        let usage = Arc::new(usage(Limits { outbound_calls: 3, open_streams: 1, ..Limits::default() }));
        let open = usage.begin_request().unwrap();
        assert_eq!(usage.begin_request().err().unwrap().limit, Limit::OpenStreams);
        drop(open);
        drop(usage.begin_request().unwrap());
        assert_eq!(usage.begin_request().err().unwrap().limit, Limit::OutboundCalls);
    }
}
