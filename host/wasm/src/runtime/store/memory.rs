//! Memory accounting of instances: their linear memories, and data that the host holds on their behalf.
//!
//! Each growth is charged before it happens, to the instance (`limits.memory`), to the run that the call belongs to
//! (`instances.run_memory`) and to all components together (`instances.memory`). Data in the host counts like the
//! guest's own memory: bodies and headers of HTTP requests, data on its way into a file, arguments of calls that have
//! not returned, JSON in results, events and other answers while it is parsed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use hatchery_core::sync::MutexExt;
use thiserror::Error;
use tokio::sync::Notify;

use crate::runtime::limits::{Limit, LimitExceeded, Limits, units};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum MemoryError {
    #[error(transparent)]
    Instance(#[from] LimitExceeded),
    /// Has the limit in bytes.
    #[error(
        "all calls of this run together need more than {} of memory; raise `instances.run_memory` in hatchery.yaml to allow more",
        units::format_size(*.0)
    )]
    Run(u64),
    /// Has the limit in bytes.
    #[error(
        "no free memory: components use all of {}; try again later, or raise `instances.memory` in hatchery.yaml",
        units::format_size(*.0)
    )]
    Engine(u64),
}

impl MemoryError {
    /// Returns the error for guests, models and clients, without settings.
    pub(crate) fn for_callers(&self) -> String {
        match self {
            Self::Instance(exceeded) => exceeded.for_callers(),
            Self::Run(max) => {
                format!("all calls of this run together need more than {} of memory", units::format_size(*max))
            }
            Self::Engine(_) => "no free memory: components use all of it; try again later".into(),
        }
    }

    /// Returns the key in `hatchery.yaml` of the limit that was exceeded.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::Instance(_) => "limits.memory",
            Self::Run(_) => "instances.run_memory",
            Self::Engine(_) => "instances.memory",
        }
    }
}

/// A sum of bytes with an upper bound. The order of all accesses is the same for all threads: a thread that releases
/// bytes sees the waiter, or the waiter sees the bytes.
struct Budget {
    max: u64,
    used: AtomicU64,
}

impl Budget {
    fn new(max: u64) -> Self {
        Self { max, used: AtomicU64::new(0) }
    }

    /// Adds `bytes`. Returns false, and adds nothing, if the sum would be too large.
    fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_ok()
    }

    fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
    }

    fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }
}

pub(crate) struct EngineMemory {
    budget: Budget,
    /// Maximum size in bytes of one run.
    run_max: u64,
    /// Runs with instances, by the address of the usage counters that all calls of a run share.
    runs: Mutex<HashMap<usize, Weak<RunMemory>>>,
    /// Number of callers that wait for `freed`.
    waiting: AtomicUsize,
    freed: Notify,
}

impl EngineMemory {
    pub(crate) fn new(max: u64, run_max: u64) -> Arc<Self> {
        let (runs, waiting, freed) = (Mutex::default(), AtomicUsize::new(0), Notify::new());
        Arc::new(Self { budget: Budget::new(max), run_max, runs, waiting, freed })
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.budget.used_bytes()
    }

    /// Returns true if `bytes` more would fit.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.budget.used_bytes().saturating_add(bytes) <= self.budget.max
    }

    /// Returns true if more than seven eighths are in use. Then no idle instance should be kept.
    pub(crate) fn is_short(&self) -> bool {
        self.budget.used_bytes() > self.budget.max / 8 * 7
    }

    pub(crate) fn exhausted(&self) -> MemoryError {
        MemoryError::Engine(self.budget.max)
    }

    /// Waits until `bytes` more fit. Calls `free` to free something as long as they do not; `free` returns false if
    /// it cannot.
    pub(crate) async fn wait_for(&self, bytes: u64, free: impl Fn() -> bool) {
        if self.has_room(bytes) {
            return;
        }
        let _waiting = WaitingGuard::enter(&self.waiting);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // No release is missed after this.
            freed.as_mut().enable();
            while !self.has_room(bytes) && free() {}
            if self.has_room(bytes) {
                return;
            }
            freed.await;
        }
    }

    fn run(self: &Arc<Self>, key: usize) -> Arc<RunMemory> {
        let mut runs = self.runs();
        if let Some(run) = runs.get(&key).and_then(Weak::upgrade) {
            return run;
        }
        let run = Arc::new(RunMemory { budget: Budget::new(self.run_max), key, engine: self.clone() });
        runs.insert(key, Arc::downgrade(&run));
        run
    }

    fn release(&self, bytes: u64) {
        self.budget.release(bytes);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<usize, Weak<RunMemory>>> {
        self.runs.lock_unpoisoned()
    }
}

struct WaitingGuard<'a>(&'a AtomicUsize);

impl<'a> WaitingGuard<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct RunMemory {
    budget: Budget,
    key: usize,
    engine: Arc<EngineMemory>,
}

impl Drop for RunMemory {
    fn drop(&mut self) {
        let mut runs = self.engine.runs();
        // A new run may have taken the key since the last reference to this one was dropped.
        if runs.get(&self.key).is_some_and(|run| run.strong_count() == 0) {
            runs.remove(&self.key);
        }
    }
}

pub(crate) struct InstanceMemory {
    limits: Limits,
    engine: Arc<EngineMemory>,
    state: Mutex<Usage>,
}

#[derive(Default)]
struct Usage {
    used: u64,
    /// The most since the last call began.
    peak: u64,
    /// `None` for a call outside of runs, and while the instance is pooled.
    run: Option<Arc<RunMemory>>,
}

impl InstanceMemory {
    /// Creates the accounting of an instance that is called in the run with this key.
    pub(crate) fn new(limits: Limits, engine: Arc<EngineMemory>, run: Option<usize>) -> Arc<Self> {
        let run = run.map(|key| engine.run(key));
        Arc::new(Self { limits, engine, state: Mutex::new(Usage { run, ..Usage::default() }) })
    }

    /// Charges the memory in use to another run from now on, or to none.
    ///
    /// # Errors
    /// If that exceeds the limit of the run; the memory then counts to no run.
    pub(crate) fn move_to_run(&self, key: Option<usize>) -> Result<(), MemoryError> {
        let run = key.map(|key| self.engine.run(key));
        let mut state = self.state();
        if let Some(before) = state.run.take() {
            before.budget.release(state.used);
        }
        if let Some(run) = run {
            if !run.budget.take(state.used) {
                return Err(MemoryError::Run(run.budget.max));
            }
            state.run = Some(run);
            state.peak = state.used;
        }
        Ok(())
    }

    /// Charges `bytes` more.
    ///
    /// # Errors
    /// If the instance, its run or all components together would exceed their limit; then nothing is charged.
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), MemoryError> {
        if bytes == 0 {
            return Ok(());
        }
        let mut state = self.state();
        let used = state.used.saturating_add(bytes);
        if used > self.limits.memory {
            return Err(self.limits.exceeded(Limit::Memory).into());
        }
        if let Some(run) = &state.run
            && !run.budget.take(bytes)
        {
            return Err(MemoryError::Run(run.budget.max));
        }
        if !self.engine.budget.take(bytes) {
            if let Some(run) = &state.run {
                run.budget.release(bytes);
            }
            return Err(self.engine.exhausted());
        }
        state.used = used;
        state.peak = state.peak.max(used);
        Ok(())
    }

    /// Returns the maximum number of bytes in use since the last call of the instance began.
    pub(crate) fn peak(&self) -> u64 {
        self.state().peak
    }

    pub(crate) fn release(&self, bytes: u64) {
        let mut state = self.state();
        let bytes = bytes.min(state.used);
        state.used -= bytes;
        if let Some(run) = &state.run {
            run.budget.release(bytes);
        }
        drop(state);
        if bytes > 0 {
            self.engine.release(bytes);
        }
    }

    /// Charges `bytes` that the host holds, until the returned guard is dropped.
    ///
    /// # Errors
    /// Like [`Self::charge`].
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Result<MemoryReservation, MemoryError> {
        self.charge(bytes)?;
        Ok(MemoryReservation { memory: self.clone(), bytes })
    }

    fn state(&self) -> MutexGuard<'_, Usage> {
        self.state.lock_unpoisoned()
    }
}

impl Drop for InstanceMemory {
    fn drop(&mut self) {
        let used = self.state().used;
        self.release(used);
    }
}

/// Bytes that the host holds for an instance, until this is dropped.
pub(crate) struct MemoryReservation {
    memory: Arc<InstanceMemory>,
    bytes: u64,
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.memory.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(limit: u64, engine: &Arc<EngineMemory>, run: Option<usize>) -> Arc<InstanceMemory> {
        InstanceMemory::new(Limits { memory: limit, ..Limits::default() }, engine.clone(), run)
    }

    #[test]
    fn instances_of_a_run_share_its_memory_limit() {
        let engine = EngineMemory::new(100 << 20, 10 << 20);
        let (one, two) = (instance(64 << 20, &engine, Some(1)), instance(64 << 20, &engine, Some(1)));
        one.charge(6 << 20).unwrap();
        assert_eq!(
            two.charge(6 << 20).unwrap_err().to_string(),
            "all calls of this run together need more than 10 MiB of memory; raise `instances.run_memory` in hatchery.yaml to allow more"
        );
        let other = instance(64 << 20, &engine, Some(2));
        other.charge(6 << 20).unwrap();
        other.move_to_run(None).unwrap();
        assert_eq!(other.move_to_run(Some(1)), Err(MemoryError::Run(10 << 20)));
        drop(one);
        other.move_to_run(Some(1)).unwrap();
        drop((two, other));
        assert_eq!((engine.used_bytes(), engine.runs().len()), (0, 0));
    }

    #[tokio::test]
    async fn a_waiting_call_starts_when_memory_is_released() {
        let engine = EngineMemory::new(10 << 20, 10 << 20);
        let memory = instance(64 << 20, &engine, Some(1));
        memory.charge(8 << 20).unwrap();
        let other = instance(64 << 20, &engine, Some(2));
        assert_eq!(
            other.charge(4 << 20).unwrap_err().to_string(),
            "no free memory: components use all of 10 MiB; try again later, or raise `instances.memory` in hatchery.yaml"
        );
        assert_eq!(engine.used_bytes(), 8 << 20);
        tokio::join!(engine.wait_for(4 << 20, || false), async { drop(memory) });
        other.charge(4 << 20).unwrap();
    }
}
