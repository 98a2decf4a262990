//! The WebAssembly engine: Wasmtime's configuration and linker, the instance limit (a semaphore), and the epoch
//! thread.
//!
//! Instances come from Wasmtime's pooling allocator, which reserves address space, not memory, when the engine is
//! created. If the reservation fails, each instance is allocated on demand, which makes a fresh call some 25 µs slower.
//! When all instances are in use, idle pooled instances are evicted first. Then a bounded number of calls waits for a
//! bounded time; further calls fail immediately. While guests run, a thread increments the epoch every few
//! milliseconds, so a guest is interrupted within that time.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::Duration;

use hatchery_core::sync::MutexExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, WasmFeatures};

use crate::contract::bindings::Component as Contract;
use crate::contract::imports::program;
use crate::error::{BusyReason, CallError, LoadError};
use crate::policy;
use crate::runtime::config::InstancePoolConfig;
use crate::runtime::epoch_timer::{EpochTimer, RunningGuests};
use crate::runtime::http;
use crate::runtime::limits::{Limits, machine};
use crate::runtime::store::memory::EngineMemory;
use crate::runtime::store::{CpuScheduler, HostState, InstancePool, file_stream};

/// Interval of epoch interruption, and length of a time slice.
const EPOCH_TICK: Duration = Duration::from_millis(2);

/// Bytes that should be free for a new instance in addition to its initial memory.
const HEADROOM: u64 = 1 << 20;

/// WebAssembly features that components may use. Listed one by one, so that a newer Wasmtime does not silently enable
/// more.
const FEATURES: WasmFeatures = WasmFeatures::MUTABLE_GLOBAL
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::MULTI_MEMORY)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::BULK_MEMORY_OPT)
    .union(WasmFeatures::REFERENCE_TYPES)
    .union(WasmFeatures::CALL_INDIRECT_OVERLONG)
    .union(WasmFeatures::GC_TYPES)
    .union(WasmFeatures::SIMD)
    .union(WasmFeatures::FLOATS)
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::COMPONENT_MODEL)
    .union(WasmFeatures::CM_ASYNC);

#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Maximum number of instances at one time; also the size of the pooling allocator.
    pub instances: u32,
    /// Maximum memory in bytes of any component. [`Limits::memory`] can be lower, not higher.
    pub max_memory: u64,
    /// Maximum number of table elements of any component.
    pub max_tables: u64,
    /// Maximum number of core instances of any component.
    pub max_core_instances: u64,
    /// Maximum memory in bytes of all instances at one time. Half of the memory of the process by default; the rest is
    /// for sessions, code and the system.
    pub memory: u64,
    /// Maximum memory in bytes of the instances of one run. A quarter of `memory`, at most 1 GiB, by default.
    pub run_memory: u64,
    /// Maximum time that a call waits for a free instance, or for memory, before it fails with `COMPONENT_BUSY`.
    pub queue_timeout: Duration,
    /// Maximum number of calls that wait at one time; a further call fails immediately.
    pub max_queued: u32,
    /// True to use the pooling allocator.
    pub pooling: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        let limits = Limits::default();
        // Whole MiB, for readable messages.
        let memory = (machine::memory() / 2) >> 20 << 20;
        Self {
            memory,
            run_memory: Self::default_run_memory(memory),
            instances: 1000,
            max_memory: limits.memory,
            max_tables: limits.tables,
            max_core_instances: limits.instances,
            queue_timeout: Duration::from_secs(5),
            max_queued: 1000,
            pooling: true,
        }
    }
}

impl EngineOptions {
    /// Returns the default memory limit of a run: a quarter of `memory`, at most 1 GiB.
    pub(crate) fn default_run_memory(memory: u64) -> u64 {
        /// Enough for sixteen concurrent calls within the default of `limits.memory`.
        const MAX: u64 = 1 << 30;
        ((memory / 4) >> 20 << 20).min(MAX)
    }

    /// Returns these options with enough room for `limits`.
    #[must_use]
    pub fn with_room_for(mut self, limits: &Limits) -> Self {
        self.max_memory = self.max_memory.max(limits.memory);
        self.max_tables = self.max_tables.max(limits.tables);
        self.max_core_instances = self.max_core_instances.max(limits.instances);
        // One instance may use its whole limit, unless the limit exceeds the memory of all instances.
        self.run_memory = self.run_memory.max(limits.memory.min(self.memory));
        self
    }
}

/// Compiles and runs components. Create one per process.
pub struct Engine {
    wasm: wasmtime::Engine,
    linker: Linker<HostState>,
    permits: Arc<Semaphore>,
    memory: Arc<EngineMemory>,
    /// Number of calls that wait for an instance or for memory.
    waiting: AtomicUsize,
    /// Instance pools of all components.
    pools: Mutex<Vec<Weak<InstancePool>>>,
    cpu_scheduler: CpuScheduler,
    epochs: EpochTimer,
    options: EngineOptions,
    is_pooled: bool,
}

impl Engine {
    /// Creates an engine and starts its epoch thread.
    ///
    /// # Errors
    /// If Wasmtime does not run on this machine.
    pub fn new(options: &EngineOptions) -> Result<Arc<Self>, LoadError> {
        let (wasm, is_pooled) = allocate(options).map_err(|error| LoadError::Engine(format!("{error:#}")))?;
        let linker = link(&wasm).map_err(|error| LoadError::Engine(format!("{error:#}")))?;
        let cpu_scheduler = CpuScheduler::new(thread::available_parallelism().map_or(1, usize::from));
        let epochs = start_epochs(&wasm, cpu_scheduler.clone())
            .map_err(|error| LoadError::Engine(format!("cannot start the epoch thread: {error}")))?;
        let permits = Arc::new(Semaphore::new(options.instances as usize));
        let memory = EngineMemory::new(options.memory, options.run_memory);
        let (waiting, pools) = (AtomicUsize::new(0), Mutex::default());
        Ok(Arc::new(Self {
            wasm,
            linker,
            permits,
            memory,
            waiting,
            pools,
            cpu_scheduler,
            epochs,
            options: options.clone(),
            is_pooled,
        }))
    }

    pub fn wasm(&self) -> &wasmtime::Engine {
        &self.wasm
    }

    /// Returns true if instances come from the pooling allocator.
    pub fn is_pooled(&self) -> bool {
        self.is_pooled
    }

    /// Returns a warning if one of these limits exceeds the reserved pool. It takes effect at the next start.
    pub(crate) fn pool_overflow(&self, limits: &Limits) -> Option<String> {
        let options = &self.options;
        let (key, max) = match () {
            () if !self.is_pooled => return None,
            () if limits.memory > options.max_memory => ("limits.memory", options.max_memory),
            () if limits.tables > options.max_tables => ("limits.tables", options.max_tables),
            () => return None,
        };
        Some(format!(
            "`{key}` in hatchery.yaml: no component gets more than {max} before the next start; restart the server"
        ))
    }

    /// Returns the WebAssembly features as bits, for the key of the code cache.
    pub(crate) fn features() -> u64 {
        FEATURES.bits()
    }

    pub(crate) fn linker(&self) -> &Linker<HostState> {
        &self.linker
    }

    pub(crate) fn cpu_scheduler(&self) -> &CpuScheduler {
        &self.cpu_scheduler
    }

    pub(crate) fn running_guests(&self) -> &RunningGuests {
        self.epochs.guests()
    }

    /// Creates an instance pool that other components can evict from.
    pub(crate) fn instance_pool(&self, config: InstancePoolConfig) -> Arc<InstancePool> {
        let pool = InstancePool::new(config);
        let mut pools = self.instance_pools();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        drop(pools);
        pool
    }

    /// Returns the number of permits that an instance takes. The pooling allocator has one memory and two tables for
    /// each.
    pub(crate) fn permits_for(&self, code: &Component) -> u32 {
        let needed = code.resources_required().map_or(1, |it| it.num_memories.max(it.num_tables.div_ceil(2)));
        needed.clamp(1, self.options.instances.max(1))
    }

    /// Takes permits for an instance; waits if all are in use, within the limits of the queue.
    pub(crate) async fn acquire_permits(&self, permits: u32) -> Result<OwnedSemaphorePermit, CallError> {
        if let Ok(permit) = self.permits.clone().try_acquire_many_owned(permits) {
            return Ok(permit);
        }
        let max = self.options.max_queued;
        let queued = QueuedCall::enter(&self.waiting);
        if queued.before >= max as usize {
            return Err(self.busy(BusyReason::Queue(max)));
        }
        for _ in 0..permits {
            self.evict_oldest();
        }
        match tokio::time::timeout(self.options.queue_timeout, self.permits.clone().acquire_many_owned(permits)).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(self.busy_error()),
        }
    }

    /// Waits until there is memory for a new instance that begins with `bytes`. Evicts idle instances to make room.
    ///
    /// # Errors
    /// If that takes too long, or too many calls wait already.
    pub(crate) async fn wait_for_memory(&self, bytes: u64) -> Result<(), CallError> {
        if self.memory.has_room(bytes.saturating_add(HEADROOM)) {
            return Ok(());
        }
        while !self.memory.has_room(bytes.saturating_add(HEADROOM)) && self.evict_oldest() {}
        if self.memory.has_room(bytes) {
            return Ok(());
        }
        let queued = QueuedCall::enter(&self.waiting);
        if queued.before >= self.options.max_queued as usize {
            return Err(self.memory.exhausted().into());
        }
        let room = self.memory.wait_for(bytes, || self.evict_oldest());
        tokio::time::timeout(self.options.queue_timeout, room).await.map_err(|_| self.memory.exhausted().into())
    }

    pub(crate) fn memory(&self) -> &Arc<EngineMemory> {
        &self.memory
    }

    /// Returns the bytes of memory of all instances.
    pub fn memory_in_use(&self) -> u64 {
        self.memory.used_bytes()
    }

    /// Returns true if calls wait for an instance, or memory is nearly exhausted. Then no idle instance is kept.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.memory.is_short()
    }

    /// Returns the error of a call that found no free instance in time.
    pub(crate) fn busy_error(&self) -> CallError {
        self.busy(BusyReason::Waited(self.options.queue_timeout))
    }

    fn busy(&self, reason: BusyReason) -> CallError {
        CallError::Busy { instances: self.options.instances, reason }
    }

    /// Drops the longest idle instance of all components. Returns false if there is none.
    pub(crate) fn evict_oldest(&self) -> bool {
        let pools: Vec<_> = self.instance_pools().iter().filter_map(Weak::upgrade).collect();
        let waiting = pools.iter().filter_map(|pool| Some((pool.oldest()?, pool)));
        waiting.min_by_key(|(since, _)| *since).is_some_and(|(_, pool)| pool.evict_oldest())
    }

    fn instance_pools(&self) -> MutexGuard<'_, Vec<Weak<InstancePool>>> {
        self.pools.lock_unpoisoned()
    }
}

/// Counts a waiting call until it is dropped.
struct QueuedCall<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> QueuedCall<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        Self { count, before: count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for QueuedCall<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Creates a Wasmtime engine, with the pooling allocator if possible.
fn allocate(options: &EngineOptions) -> wasmtime::Result<(wasmtime::Engine, bool)> {
    if options.pooling {
        let mut config = config();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling_config(options)));
        match wasmtime::Engine::new(&config) {
            Ok(engine) => return Ok((engine, true)),
            Err(error) => {
                tracing::warn!("the instance pool is not available, so each call allocates an instance: {error:#}")
            }
        }
    }
    Ok((wasmtime::Engine::new(&config())?, false))
}

/// Creates an engine that only compiles, for child processes of [`crate::runtime::compile`]. Its code runs in engines
/// of [`Engine::new`].
pub(crate) fn compiler(threads: std::num::NonZeroU32) -> wasmtime::Result<wasmtime::Engine> {
    let mut config = config();
    config.parallel_compilation(threads.get() > 1);
    wasmtime::Engine::new(&config)
}

fn config() -> Config {
    let mut config = Config::new();
    config.wasm_features(WasmFeatures::all(), false);
    config.wasm_features(FEATURES, true);
    config.concurrency_support(true);
    config.epoch_interruption(true);
    config.wasm_backtrace_max_frames(std::num::NonZeroUsize::new(32));
    config
}

/// Returns the settings of the pooling allocator. Keeping a small part of each slot resident, together with a page map
/// scan, makes a fresh call twice as cheap as either alone.
fn pooling_config(options: &EngineOptions) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::default();
    // The allocator only counts core instances, so there are enough for every component to have as many as it may.
    let core_instances = u32::try_from(options.max_core_instances).unwrap_or(u32::MAX);
    pool.total_component_instances(options.instances)
        .total_core_instances(options.instances.saturating_mul(core_instances))
        .total_memories(options.instances)
        .total_tables(options.instances.saturating_mul(2))
        .total_stacks(options.instances.saturating_mul(2))
        .max_core_instance_size(10 << 20)
        .max_component_instance_size(10 << 20)
        .max_core_instances_per_component(1000)
        .max_memories_per_component(32)
        .max_tables_per_component(32)
        .table_elements(usize::try_from(options.max_tables).unwrap_or(usize::MAX))
        .max_memory_size(usize::try_from(options.max_memory).unwrap_or(usize::MAX))
        .linear_memory_keep_resident(256 << 10)
        .table_keep_resident(64 << 10)
        .pagemap_scan(Enabled::Auto);
    pool
}

fn link(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<HostState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    policy::link_preopens(&mut linker)?;
    file_stream::link(&mut linker)?;
    http::link(&mut linker)?;
    program::link(&mut linker)?;
    Contract::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    Ok(linker)
}

/// Increments the epoch while guests run, until the engine is dropped.
fn start_epochs(engine: &wasmtime::Engine, cpu_scheduler: CpuScheduler) -> io::Result<EpochTimer> {
    let engine = engine.clone();
    EpochTimer::start(EPOCH_TICK, move || {
        engine.increment_epoch();
        cpu_scheduler.tick()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_with_many_core_instances_leave_as_many_to_all_others() {
        let options = EngineOptions { instances: 100, ..EngineOptions::default() };
        assert_eq!(pooling_config(&options).get_total_core_instances(), 3_000);
        let options = options.with_room_for(&Limits { instances: 50, ..Limits::default() });
        assert_eq!(pooling_config(&options).get_total_core_instances(), 5_000);
        let options = options.with_room_for(&Limits { instances: u64::MAX, ..Limits::default() });
        assert_eq!(pooling_config(&options).get_total_core_instances(), u32::MAX);
    }
}
