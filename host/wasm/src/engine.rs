//! The one way to make a wasmtime engine, for the host, the command line, tests and benches.
//!
//! Instances come from a pool that is reserved (address space, not memory) when the engine is made; where the reservation cannot be
//! had, each instance is allocated by itself, which makes a fresh call some 25 µs dearer. A full pool makes callers wait for a bounded
//! time instead of failing at once. A thread advances the epoch every 10 ms, so a guest is interrupted within that time.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, WasmFeatures};

use crate::bindings::Component as Contract;
use crate::error::{CallError, LoadError};
use crate::limits::Limits;
use crate::store::HostState;

/// How often a running guest looks whether it is to stop.
pub const EPOCH_TICK: Duration = Duration::from_millis(10);

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
    /// How long a call waits for a free instance before it fails with `COMPONENT_BUSY`.
    pub busy_wait: Duration,
    /// Whether to reserve a pool.
    pub pooling: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            instances: 1000,
            max_memory: limits.memory,
            max_tables: limits.tables,
            busy_wait: Duration::from_secs(5),
            pooling: true,
        }
    }
}

impl EngineOptions {
    /// With room for what `limits` allow.
    #[must_use]
    pub fn fitting(mut self, limits: &Limits) -> Self {
        self.max_memory = self.max_memory.max(limits.memory);
        self.max_tables = self.max_tables.max(limits.tables);
        self
    }
}

/// Compiles and runs components. Make one per process.
pub struct Engine {
    wasm: wasmtime::Engine,
    linker: Linker<HostState>,
    slots: Arc<Semaphore>,
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
        start_epochs(&wasm).map_err(|error| LoadError::Engine(format!("cannot start the epoch thread: {error}")))?;
        let slots = Arc::new(Semaphore::new(options.instances as usize));
        Ok(Arc::new(Self { wasm, linker, slots, options: options.clone(), pooled }))
    }

    /// wasmtime's engine.
    pub fn wasm(&self) -> &wasmtime::Engine {
        &self.wasm
    }

    /// True when instances come from a pool.
    pub fn is_pooled(&self) -> bool {
        self.pooled
    }

    /// Names the set of WebAssembly features, for the code cache.
    pub(crate) fn features() -> u64 {
        FEATURES.bits()
    }

    pub(crate) fn linker(&self) -> &Linker<HostState> {
        &self.linker
    }

    /// Waits for a free instance.
    pub(crate) async fn slot(&self) -> Result<OwnedSemaphorePermit, CallError> {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            return Ok(slot);
        }
        match tokio::time::timeout(self.options.busy_wait, self.slots.clone().acquire_owned()).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => Err(self.exhausted()),
        }
    }

    /// The error of a call that found no free instance.
    pub(crate) fn exhausted(&self) -> CallError {
        CallError::Busy { instances: self.options.instances, waited: self.options.busy_wait }
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
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    Contract::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    Ok(linker)
}

/// The thread ends when the engine is gone.
fn start_epochs(engine: &wasmtime::Engine) -> std::io::Result<()> {
    let weak = engine.weak();
    thread::Builder::new().name("epochs".into()).spawn(move || {
        loop {
            thread::sleep(EPOCH_TICK);
            let Some(engine) = weak.upgrade() else { break };
            engine.increment_epoch();
        }
    })?;
    Ok(())
}
