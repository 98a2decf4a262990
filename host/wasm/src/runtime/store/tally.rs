//! What one call has used of others: models, tools and the network. What is wanted is taken before it is used, so calls at the same time
//! cannot go over a limit together. Only tokens are counted afterwards, as nobody knows them before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::{Held, InstanceMemory, MemoryError};
use super::output::Output;
use crate::runtime::limits::{Limit, LimitHit, Limits};

/// The counters of a call.
pub(crate) struct Tally {
    limits: Limits,
    /// Where the operator reads which limit was exceeded.
    output: Output,
    memory: Arc<InstanceMemory>,
    model_calls: AtomicU64,
    tokens: AtomicU64,
    tool_calls: AtomicU64,
    calls: AtomicU64,
    bytes: AtomicU64,
    open: AtomicU64,
}

impl Tally {
    pub(crate) fn new(limits: Limits, output: Output, memory: Arc<InstanceMemory>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            limits,
            output,
            memory,
            model_calls: zero(),
            tokens: zero(),
            tool_calls: zero(),
            calls: zero(),
            bytes: zero(),
            open: zero(),
        }
    }

    /// Counts a model that is about to be asked. Refused when the tokens of those before it were too many, too.
    pub(crate) fn model_call(&self) -> Result<(), LimitHit> {
        if self.tokens.load(Ordering::Relaxed) >= self.limits.tokens {
            return Err(self.exceed(Limit::Tokens));
        }
        self.take(&self.model_calls, 1, self.limits.model_calls, Limit::ModelCalls)
    }

    /// Counts the tokens of an answer that has come.
    pub(crate) fn tokens(&self, count: u64) {
        let more = |used: u64| Some(used.saturating_add(count));
        // It never refuses.
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// The limits that it keeps.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts a tool that is about to be called.
    pub(crate) fn tool_call(&self) -> Result<(), LimitHit> {
        self.take(&self.tool_calls, 1, self.limits.tool_calls, Limit::ToolCalls)
    }

    /// Counts an HTTP request, which is open until what this gives is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<Open, LimitHit> {
        self.take(&self.calls, 1, self.limits.outbound_calls, Limit::OutboundCalls)?;
        self.take(&self.open, 1, self.limits.open_streams, Limit::OpenStreams)?;
        Ok(Open(self.clone()))
    }

    /// Counts bytes that are about to be sent, or that have come and are about to be handed on.
    pub(crate) fn bytes(&self, count: usize) -> Result<(), LimitHit> {
        self.take(&self.bytes, count as u64, self.limits.outbound_bytes, Limit::OutboundBytes)
    }

    fn take(&self, counter: &AtomicU64, step: u64, most: u64, limit: Limit) -> Result<(), LimitHit> {
        let more = |count: u64| count.checked_add(step).filter(|sum| *sum <= most);
        let taken = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(|_| ()).map_err(|_| self.exceed(limit))
    }

    /// Counts bytes that the host holds for the call until the returned guard is dropped.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub(crate) fn hold(&self, bytes: u64) -> Result<Held, MemoryError> {
        let held = self.memory.hold(bytes);
        if let Err(error) = &held {
            self.output.report_limit(error.key(), error);
        }
        held
    }

    /// The error for exceeding a limit, which is noted in the audit log.
    pub(crate) fn exceed(&self, limit: Limit) -> LimitHit {
        let hit = self.limits.hit(limit);
        self.output.report_limit(limit.key().unwrap_or("fixed"), &hit);
        hit
    }
}

/// A request that is open.
pub(crate) struct Open(Arc<Tally>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::store::Caller;
    use crate::runtime::store::memory::EngineMemory;

    fn tally(limits: Limits) -> Tally {
        let memory = InstanceMemory::new(limits.clone(), EngineMemory::new(0, 0), None);
        let output = Output::new("tester".into(), &Caller::Loader, &limits);
        Tally::new(limits, output, memory)
    }

    #[test]
    fn parallel_takers_never_go_over_together() {
        let tally = Arc::new(tally(Limits { outbound_bytes: 1000, ..Limits::default() }));
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
    fn tokens_are_counted_afterwards_and_stop_the_next_call() {
        let tally = tally(Limits { model_calls: 3, tokens: 10, ..Limits::default() });
        tally.model_call().unwrap();
        tally.tokens(9);
        tally.model_call().unwrap();
        tally.tokens(9);
        assert_eq!(
            tally.model_call().unwrap_err().to_string(),
            "it needs more than 10 tokens of models; raise `limits.tokens` in hatchery.yaml to allow more"
        );
    }

    #[test]
    fn a_request_that_is_over_makes_room_but_stays_counted() {
        let tally = Arc::new(tally(Limits { outbound_calls: 3, open_streams: 1, ..Limits::default() }));
        let open = tally.begin().unwrap();
        assert_eq!(tally.begin().err().unwrap().limit, Limit::OpenStreams);
        drop(open);
        drop(tally.begin().unwrap());
        assert_eq!(tally.begin().err().unwrap().limit, Limit::OutboundCalls);
    }
}
