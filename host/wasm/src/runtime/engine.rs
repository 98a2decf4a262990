//! The one way to make a wasmtime engine, for the host, the command line, tests and benches.
//!
//! Instances come from a pool that is reserved (address space, not memory) when the engine is made; where the reservation cannot be
//! had, each instance is allocated by itself, which makes a fresh call some 25 µs dearer. When all instances are in use, those that only
//! wait for a call are given up; then a bounded number of callers waits for a bounded time, and the rest are told at once that the host
//! is busy. A thread advances the epoch every few milliseconds, so a guest is interrupted within that time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, WasmFeatures};

use crate::catalog::settings::Warm;
use crate::contract::bindings::Component as Contract;
use crate::error::{Busy, CallError, LoadError};
use crate::policy;
use crate::runtime::http;
use crate::runtime::limits::{Limits, machine};
use crate::runtime::store::memory::EngineMemory;
use crate::runtime::store::{HostState, Pool, Turns, stream};

/// How often a running guest looks whether it is to stop, and how long it may run before others have a turn.
const EPOCH_TICK: Duration = Duration::from_millis(2);

/// Memory that should be left for a new instance beside what it begins with, bytes.
const HEADROOM: u64 = 1 << 20;

/// Core instances that one component may bring on average; most have three.
const CORE_INSTANCES_PER_COMPONENT: u32 = 8;

/// What components may use of WebAssembly. Listed one by one, so that a newer wasmtime does not silently allow more.
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

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Most instances at one time; also the size of the pool.
    pub instances: u32,
    /// Most memory that any component may be given, bytes; [`Limits::memory`] can be lower, not higher.
    pub max_memory: u64,
    /// Most table elements that any component may be given.
    pub max_tables: u64,
    /// Most memory that all instances may have at one time, bytes. Half of what the process may use, so that the rest is there for
    /// sessions, code and the system.
    pub memory: u64,
    /// Most of it that the instances of one run may have. A quarter.
    pub run_memory: u64,
    /// How long a call waits for a free instance, or for memory, before it fails with `COMPONENT_BUSY`.
    pub busy_wait: Duration,
    /// Most calls that wait at one time; a further one fails at once.
    pub busy_queue: u32,
    /// Whether to reserve a pool.
    pub pooling: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        let limits = Limits::default();
        // Whole MiB, for messages.
        let memory = (machine::memory() / 2) >> 20 << 20;
        Self {
            memory,
            run_memory: Self::share_of_run(memory),
            instances: 1000,
            max_memory: limits.memory,
            max_tables: limits.tables,
            busy_wait: Duration::from_secs(5),
            busy_queue: 1000,
            pooling: true,
        }
    }
}

impl EngineOptions {
    /// Returns what one run may have of `memory` by default: a quarter, at most 1 GiB.
    pub(crate) fn share_of_run(memory: u64) -> u64 {
        /// More than a message needs whose calls keep within the default of `limits.memory`, sixteen at a time.
        const MOST: u64 = 1 << 30;
        ((memory / 4) >> 20 << 20).min(MOST)
    }

    /// With room for what `limits` allow.
    #[must_use]
    pub fn fitting(mut self, limits: &Limits) -> Self {
        self.max_memory = self.max_memory.max(limits.memory);
        self.max_tables = self.max_tables.max(limits.tables);
        // One instance must be able to have what it may have, where that is not more than all may have.
        self.run_memory = self.run_memory.max(limits.memory.min(self.memory));
        self
    }
}

/// Compiles and runs components. Make one per process.
pub struct Engine {
    wasm: wasmtime::Engine,
    linker: Linker<HostState>,
    slots: Arc<Semaphore>,
    memory: Arc<EngineMemory>,
    /// How many calls wait for an instance.
    waiting: AtomicUsize,
    /// Pools of instances that wait for a call.
    warm: Mutex<Vec<Weak<Pool>>>,
    turns: Turns,
    options: EngineOptions,
    pooled: bool,
}

impl Engine {
    /// An engine with its pool and its epoch thread.
    ///
    /// # Errors
    /// When wasmtime does not run on this machine.
    pub fn new(options: &EngineOptions) -> Result<Arc<Self>, LoadError> {
        let (wasm, pooled) = allocate(options).map_err(|error| LoadError::Engine(format!("{error:#}")))?;
        let linker = link(&wasm).map_err(|error| LoadError::Engine(format!("{error:#}")))?;
        let turns = Turns::new(thread::available_parallelism().map_or(1, usize::from));
        start_epochs(&wasm, turns.clone())
            .map_err(|error| LoadError::Engine(format!("cannot start the epoch thread: {error}")))?;
        let slots = Arc::new(Semaphore::new(options.instances as usize));
        let memory = EngineMemory::new(options.memory, options.run_memory);
        let (waiting, warm) = (AtomicUsize::new(0), Mutex::default());
        Ok(Arc::new(Self { wasm, linker, slots, memory, waiting, warm, turns, options: options.clone(), pooled }))
    }

    /// wasmtime's engine.
    pub fn wasm(&self) -> &wasmtime::Engine {
        &self.wasm
    }

    /// True when instances come from a pool.
    pub fn is_pooled(&self) -> bool {
        self.pooled
    }

    /// Says which of these limits is higher than the pool has room for; it counts from the next start on.
    pub(crate) fn pool_overflow(&self, limits: &Limits) -> Option<String> {
        let most = &self.options;
        let (key, most) = match () {
            () if !self.pooled => return None,
            () if limits.memory > most.max_memory => ("limits.memory", most.max_memory),
            () if limits.tables > most.max_tables => ("limits.tables", most.max_tables),
            () => return None,
        };
        Some(format!(
            "`{key}` in hatchery.yaml: no component gets more than {most} before the next start; restart the server"
        ))
    }

    /// Names the set of WebAssembly features, for the code cache.
    pub(crate) fn features() -> u64 {
        FEATURES.bits()
    }

    pub(crate) fn linker(&self) -> &Linker<HostState> {
        &self.linker
    }

    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// A pool for instances that wait for a call.
    pub(crate) fn pool(&self, settings: Warm) -> Arc<Pool> {
        let pool = Pool::new(settings);
        let mut pools = self.warm_pools();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        drop(pools);
        pool
    }

    /// How many places an instance of a component takes. The pool has a memory and two tables for each.
    pub(crate) fn places(&self, code: &Component) -> u32 {
        let needed = code.resources_required().map_or(1, |it| it.num_memories.max(it.num_tables.div_ceil(2)));
        needed.clamp(1, self.options.instances.max(1))
    }

    /// Waits for so many free places.
    pub(crate) async fn slot(&self, places: u32) -> Result<OwnedSemaphorePermit, CallError> {
        if let Ok(slot) = self.slots.clone().try_acquire_many_owned(places) {
            return Ok(slot);
        }
        let most = self.options.busy_queue;
        let waiting = Waiting::enter(&self.waiting);
        if waiting.before >= most as usize {
            return Err(self.busy(Busy::Queue(most)));
        }
        for _ in 0..places {
            self.give_up_one();
        }
        match tokio::time::timeout(self.options.busy_wait, self.slots.clone().acquire_many_owned(places)).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => Err(self.exhausted()),
        }
    }

    /// Waits until there is memory for a new instance that begins with `bytes`. Instances that wait for a call make room.
    ///
    /// # Errors
    /// When that takes too long, or too many calls wait already.
    pub(crate) async fn room(&self, bytes: u64) -> Result<(), CallError> {
        if self.memory.has_room(bytes.saturating_add(HEADROOM)) {
            return Ok(());
        }
        while !self.memory.has_room(bytes.saturating_add(HEADROOM)) && self.give_up_one() {}
        if self.memory.has_room(bytes) {
            return Ok(());
        }
        let waiting = Waiting::enter(&self.waiting);
        if waiting.before >= self.options.busy_queue as usize {
            return Err(self.memory.exhausted().into());
        }
        let room = self.memory.wait_for(bytes, || self.give_up_one());
        tokio::time::timeout(self.options.busy_wait, room).await.map_err(|_| self.memory.exhausted().into())
    }

    /// The memory of all instances.
    pub(crate) fn memory(&self) -> &Arc<EngineMemory> {
        &self.memory
    }

    /// Bytes of memory that all instances have now.
    pub fn memory_in_use(&self) -> u64 {
        self.memory.used()
    }

    /// True when calls wait for an instance, or memory runs out: then nothing is kept that is not in use.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.memory.is_short()
    }

    /// The error of a call that found no free instance.
    pub(crate) fn exhausted(&self) -> CallError {
        self.busy(Busy::Waited(self.options.busy_wait))
    }

    fn busy(&self, reason: Busy) -> CallError {
        CallError::Busy { instances: self.options.instances, reason }
    }

    /// Ends the instance that has waited longest for a call, of all components; false when none waits.
    pub(crate) fn give_up_one(&self) -> bool {
        let pools: Vec<_> = self.warm_pools().iter().filter_map(Weak::upgrade).collect();
        let waiting = pools.iter().filter_map(|pool| Some((pool.oldest()?, pool)));
        waiting.min_by_key(|(since, _)| *since).is_some_and(|(_, pool)| pool.give_up_one())
    }

    fn warm_pools(&self) -> MutexGuard<'_, Vec<Weak<Pool>>> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that waits for an instance; no longer, when this is dropped.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        Self { count, before: count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// With a pool if it can be had.
fn allocate(options: &EngineOptions) -> wasmtime::Result<(wasmtime::Engine, bool)> {
    if options.pooling {
        let mut config = config();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(options)));
        match wasmtime::Engine::new(&config) {
            Ok(engine) => return Ok((engine, true)),
            Err(error) => tracing::warn!("no pool of instances, so each call allocates its own: {error:#}"),
        }
    }
    Ok((wasmtime::Engine::new(&config())?, false))
}

/// An engine that only compiles, for processes of [`crate::runtime::compile`]. Its code runs in engines of [`Engine::new`].
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

/// A small resident part per slot with a page map scan makes a fresh call twice as cheap as either alone.
fn pool(options: &EngineOptions) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(options.instances)
        .total_core_instances(options.instances.saturating_mul(CORE_INSTANCES_PER_COMPONENT))
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
    policy::link(&mut linker)?;
    stream::link(&mut linker)?;
    http::link(&mut linker)?;
    Contract::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    Ok(linker)
}

/// The thread ends when the engine is gone.
fn start_epochs(engine: &wasmtime::Engine, turns: Turns) -> std::io::Result<()> {
    let weak = engine.weak();
    thread::Builder::new().name("epochs".into()).spawn(move || {
        loop {
            thread::sleep(EPOCH_TICK);
            let Some(engine) = weak.upgrade() else { break };
            engine.increment_epoch();
            turns.tick();
        }
    })?;
    Ok(())
}
