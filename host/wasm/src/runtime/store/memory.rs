//! Memory of instances: what their linear memories take, and what the host holds on their behalf.
//!
//! Each growth is charged before it happens, to the instance (`limits.memory`), to the run that the call belongs to (`engine.run_memory`)
//! and to all components together (`engine.memory`). What the host holds counts like the guest's own memory: bodies and headers of HTTP
//! requests, data on its way into a file, arguments of calls that have not returned.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use thiserror::Error;
use tokio::sync::Notify;

use crate::runtime::limits::{Limit, LimitHit, Limits, units};

/// Why there is no more memory.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum MemoryError {
    /// The instance has all that it may have.
    #[error(transparent)]
    Instance(#[from] LimitHit),
    /// The run has all that it may have, bytes.
    #[error(
        "all calls of this run together need more than {} of memory; raise `engine.run_memory` in hatchery.yaml to allow more",
        units::bytes(*.0)
    )]
    Run(u64),
    /// All components together have all that they may have, bytes.
    #[error(
        "no free memory: components use all of {}; try again later, or raise `engine.memory` in hatchery.yaml",
        units::bytes(*.0)
    )]
    Engine(u64),
}

impl MemoryError {
    /// The key in `hatchery.yaml` of what was exceeded.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::Instance(_) => "limits.memory",
            Self::Run(_) => "engine.run_memory",
            Self::Engine(_) => "engine.memory",
        }
    }
}

/// A sum with an upper bound, bytes.
struct Budget {
    max: u64,
    used: AtomicU64,
}

impl Budget {
    fn new(max: u64) -> Self {
        Self { max, used: AtomicU64::new(0) }
    }

    /// Adds `bytes`; false, and nothing added, if the sum would be too large.
    fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// The memory of all components.
pub(crate) struct EngineMemory {
    budget: Budget,
    /// Most of it that one run may have.
    run_max: u64,
    /// Runs with instances, by the address of their usage counters, which all calls of a run share.
    runs: Mutex<HashMap<usize, Weak<RunMemory>>>,
    /// Callers that wait for `freed`.
    waiting: AtomicUsize,
    freed: Notify,
}

impl EngineMemory {
    pub(crate) fn new(max: u64, run_max: u64) -> Arc<Self> {
        let (runs, waiting, freed) = (Mutex::default(), AtomicUsize::new(0), Notify::new());
        Arc::new(Self { budget: Budget::new(max), run_max, runs, waiting, freed })
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.budget.used()
    }

    /// True if `bytes` more would fit.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.budget.used().saturating_add(bytes) <= self.budget.max
    }

    /// True if so little is left that nothing should be kept which is not in use.
    pub(crate) fn is_short(&self) -> bool {
        self.budget.used() > self.budget.max / 8 * 7
    }

    /// The error for having no room.
    pub(crate) fn exhausted(&self) -> MemoryError {
        MemoryError::Engine(self.budget.max)
    }

    /// Waits until `bytes` more fit. `free` is asked to free something as long as they do not; it returns false if it cannot.
    pub(crate) async fn wait_for(&self, bytes: u64, free: impl Fn() -> bool) {
        let _waiting = Waiting::enter(&self.waiting);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on no release is missed.
            freed.as_mut().enable();
            while !self.has_room(bytes) && free() {}
            if self.has_room(bytes) {
                return;
            }
            freed.await;
        }
    }

    /// The memory of the run with this key.
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
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The memory of all instances of one run.
struct RunMemory {
    budget: Budget,
    key: usize,
    engine: Arc<EngineMemory>,
}

impl Drop for RunMemory {
    fn drop(&mut self) {
        let mut runs = self.engine.runs();
        // Another one may have taken the key since the last reference to this one went.
        if runs.get(&self.key).is_some_and(|run| run.strong_count() == 0) {
            runs.remove(&self.key);
        }
    }
}

/// The memory of one instance.
pub(crate) struct InstanceMemory {
    limits: Limits,
    engine: Arc<EngineMemory>,
    state: Mutex<Usage>,
}

#[derive(Default)]
struct Usage {
    used: u64,
    /// `None` for a call that belongs to no run, and while the instance waits for a call.
    run: Option<Arc<RunMemory>>,
}

impl InstanceMemory {
    /// For an instance that is called in the run with this key.
    pub(crate) fn new(limits: Limits, engine: Arc<EngineMemory>, run: Option<usize>) -> Arc<Self> {
        let run = run.map(|key| engine.run(key));
        Arc::new(Self { limits, engine, state: Mutex::new(Usage { used: 0, run }) })
    }

    /// Counts all that is in use to another run from now on, or to none.
    ///
    /// # Errors
    /// If that is more than the run may have; the memory then counts to no run.
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
        }
        Ok(())
    }

    /// Counts `bytes` more.
    ///
    /// # Errors
    /// If the instance, its run or all components together would have too much; then nothing is counted.
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), MemoryError> {
        if bytes == 0 {
            return Ok(());
        }
        let mut state = self.state();
        let used = state.used.saturating_add(bytes);
        if used > self.limits.memory {
            return Err(self.limits.hit(Limit::Memory).into());
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
        Ok(())
    }

    /// Counts `bytes` less.
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

    /// Counts `bytes` that the host holds until the returned guard is dropped.
    ///
    /// # Errors
    /// As of `charge`.
    pub(crate) fn hold(self: &Arc<Self>, bytes: u64) -> Result<Held, MemoryError> {
        self.charge(bytes)?;
        Ok(Held { memory: self.clone(), bytes })
    }

    fn state(&self) -> MutexGuard<'_, Usage> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InstanceMemory {
    fn drop(&mut self) {
        let used = self.state().used;
        self.release(used);
    }
}

/// Bytes that the host holds for an instance.
pub(crate) struct Held {
    memory: Arc<InstanceMemory>,
    bytes: u64,
}

impl Drop for Held {
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
    fn instances_of_a_run_share_what_it_may_have() {
        let engine = EngineMemory::new(100 << 20, 10 << 20);
        let (one, two) = (instance(64 << 20, &engine, Some(1)), instance(64 << 20, &engine, Some(1)));
        one.charge(6 << 20).unwrap();
        assert_eq!(
            two.charge(6 << 20).unwrap_err().to_string(),
            "all calls of this run together need more than 10 MiB of memory; raise `engine.run_memory` in hatchery.yaml to allow more"
        );
        let other = instance(64 << 20, &engine, Some(2));
        other.charge(6 << 20).unwrap();
        other.move_to_run(None).unwrap();
        assert_eq!(other.move_to_run(Some(1)), Err(MemoryError::Run(10 << 20)));
        drop(one);
        other.move_to_run(Some(1)).unwrap();
        drop((two, other));
        assert_eq!((engine.used(), engine.runs().len()), (0, 0));
    }

    #[tokio::test]
    async fn what_is_released_lets_a_waiting_call_begin() {
        let engine = EngineMemory::new(10 << 20, 10 << 20);
        let memory = instance(64 << 20, &engine, Some(1));
        memory.charge(8 << 20).unwrap();
        let other = instance(64 << 20, &engine, Some(2));
        assert_eq!(
            other.charge(4 << 20).unwrap_err().to_string(),
            "no free memory: components use all of 10 MiB; try again later, or raise `engine.memory` in hatchery.yaml"
        );
        assert_eq!(engine.used(), 8 << 20);
        tokio::join!(engine.wait_for(4 << 20, || false), async { drop(memory) });
        other.charge(4 << 20).unwrap();
    }
}
