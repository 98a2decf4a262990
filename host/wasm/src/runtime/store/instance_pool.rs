//! Instance pool: warm instances that are reused by later calls, for components whose operator configures it.
//!
//! An instance belongs to one call at a time. The call takes it out of the pool, owns it, and returns it after it has
//! succeeded. There is no other way back, so an instance that traps, exceeds a limit, is cancelled or times out is
//! dropped with its call. An instance whose guest has left tasks running, or still holds a stream or a host call, is
//! dropped as well: they would continue in the next call, on behalf of the earlier caller. No code runs in a pooled
//! instance.
//!
//! Each pooled instance holds permits of the engine. It is evicted as soon as any other call needs them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use hatchery_core::sync::MutexExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;
use wasmtime::Store;
use wasmtime::component::Instance;

use super::HostState;
use crate::guest_log::GuestLog;
use crate::runtime::config::InstancePoolConfig;

/// A Wasmtime store as a trait object. The proof that `Store<HostState>` is `Send` costs the compiler a second, for
/// each function whose future holds one. Behind this trait it is proved once.
pub(super) trait AnyStore: Send {
    fn get(&mut self) -> &mut Store<HostState>;
}

impl AnyStore for Store<HostState> {
    fn get(&mut self) -> &mut Store<HostState> {
        self
    }
}

/// An instance that is ready to be called. The field order matters: the store is dropped before its permits are
/// released.
pub(super) struct WarmInstance {
    pub(super) store: Box<dyn AnyStore>,
    pub(super) instance: Instance,
    pub(super) log: GuestLog,
    /// Calls that have succeeded.
    pub(super) served: u32,
    pub(super) _permits: OwnedSemaphorePermit,
}

/// The pooled instances of one revision of a component.
pub(crate) struct InstancePool {
    config: InstancePoolConfig,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// The longest idle instance comes first.
    instances: VecDeque<(Instant, WarmInstance)>,
    /// Subtracted from `max_calls`, and rotated, so that instances do not all retire together.
    retire_early: u32,
    is_closed: bool,
    /// The task that evicts idle instances.
    sweeper: Option<AbortHandle>,
}

impl InstancePool {
    pub(crate) fn new(config: InstancePoolConfig) -> Arc<Self> {
        Arc::new(Self { config, state: Mutex::default() })
    }

    /// Takes the instance that was used last, so that the others become idle under low load.
    pub(super) fn take(&self) -> Option<WarmInstance> {
        self.state().instances.pop_back().map(|(_, instance)| instance)
    }

    /// Returns an instance to the pool, unless it has served its calls, the pool is full, or the pool is closed.
    pub(super) fn put(self: &Arc<Self>, mut instance: WarmInstance) {
        instance.served += 1;
        let mut state = self.state();
        let max_calls = self.config.max_calls.get();
        let is_retired = instance.served >= max_calls.saturating_sub(state.retire_early);
        if is_retired {
            state.retire_early = (state.retire_early + 1) % (max_calls / 8 + 1);
        }
        let is_full = state.instances.len() >= self.config.size.get() as usize;
        if is_retired || is_full || state.is_closed {
            // Dropping a store takes longer than the lock should be held.
            drop(state);
            return;
        }
        state.instances.push_back((Instant::now(), instance));
        // The task of a runtime that was shut down has finished without the pool being empty.
        if state.sweeper.as_ref().is_none_or(AbortHandle::is_finished) {
            state.sweeper = Some(tokio::spawn(sweep(Arc::downgrade(self))).abort_handle());
        }
    }

    /// Drops all instances, and accepts none from now on.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let evicted = std::mem::take(&mut state.instances);
        drop(state);
        drop(evicted);
    }

    pub(crate) fn len(&self) -> usize {
        self.state().instances.len()
    }

    /// Returns the time since which the longest idle instance waits.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.state().instances.front().map(|(since, _)| *since)
    }

    /// Drops the longest idle instance. Returns false if there is none.
    pub(crate) fn evict_oldest(&self) -> bool {
        let oldest = self.state().instances.pop_front();
        oldest.is_some()
    }

    /// Drops the instances that have been idle for too long. Returns the time at which the next one will have; `None`
    /// if none is left.
    fn evict_idle(&self) -> Option<Instant> {
        let mut state = self.state();
        let due = |since: Instant| since.checked_add(self.config.idle);
        let now = Instant::now();
        let idle = state.instances.iter().take_while(|(since, _)| due(*since).is_some_and(|due| due <= now)).count();
        let evicted: Vec<_> = state.instances.drain(..idle).collect();
        let next = state.instances.front().and_then(|(since, _)| due(*since));
        if next.is_none() {
            state.sweeper = None;
        }
        drop(state);
        drop(evicted);
        next
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock_unpoisoned()
    }
}

/// Evicts idle instances until the pool is empty.
async fn sweep(pool: Weak<InstancePool>) {
    while let Some(next) = pool.upgrade().and_then(|pool| pool.evict_idle()) {
        tokio::time::sleep_until(next.into()).await;
    }
}
