//! The sandbox of a call: a Wasmtime store with the grants of the component, its limits, and the one
//! place that decides when a guest is interrupted.
//!
//! Two clocks run. CPU time is the time in which the store's future was polled, so waiting for a model costs nothing.
//! Wall time and cancellation are watched from outside of the guest, which ends when its store is dropped. Guests that
//! compute for long share the processors by time slices, so that they do not block other tasks ([`cpu_scheduler`]).
//!
//! A store serves one call, or, if the operator configures a pool, one call after the other ([`instance_pool`]). It
//! never serves two at a time: their log output and CPU time could not be distinguished, and the host would not know
//! which caller an import is called for.

mod active_calls;
pub(crate) mod call_statistics;
pub(crate) mod call_usage;
mod clock;
mod cpu_scheduler;
pub(crate) mod file_stream;
mod instance_pool;
pub(crate) mod memory;
pub(crate) mod meter;
pub(crate) mod nesting;
pub(crate) mod pending_writes;
mod state;
mod stdio;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use hatchery_core::{AgentContext, CallContext, JsonMap, Span, SpanOperation, TimeKind};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use wasmtime::component::{Accessor, Component, Instance, InstancePre, ResourceTableError};
use wasmtime::{PoolConcurrencyLimitError, Store, UpdateDeadline};
use wasmtime_wasi_http::FieldMapError;

use crate::error::CallError;
use crate::guest_log::GuestLog;
use crate::policy::{Grants, WasiEnvironment};
use crate::runtime::crash::Crash;
use crate::runtime::credentials::CredentialAccess;
use crate::runtime::engine::Engine;
use crate::runtime::http::Egress;
use crate::runtime::limits::{DESCRIBE_TIMEOUT, Limit, LimitExceeded, Limits};
pub(crate) use active_calls::ActiveCalls;
pub(crate) use call_statistics::CallStatistics;
use clock::{Clock, InterruptReason};
pub(crate) use cpu_scheduler::CpuScheduler;
pub(crate) use instance_pool::InstancePool;
use instance_pool::WarmInstance;
use memory::{InstanceMemory, MemoryError, MemoryReservation};
pub(crate) use state::{CallOrigin, HostState, run_key};

/// Maximum number of bytes that one host call may copy out of a guest, as a multiple of `limits.result`. Strings are
/// copied before they are measured.
const COPY_FACTOR: u64 = 4;

/// Bytes of core instances that do not count to the memory of an instance. A component with an interpreter of Python
/// takes two thirds of it.
const FREE_INSTANCE_SIZE: u64 = 1 << 20;

/// A call into a guest. These futures are boxed because the compiler otherwise proves again for each caller that
/// everything below it is `Send`, which took most of the time to compile this crate.
pub(crate) type GuestFuture<'a, R> = BoxFuture<'a, wasmtime::Result<R>>;

/// A component that is linked and can be instantiated: Wasmtime's `InstancePre` as a trait object, which saves time of
/// the compiler as [`GuestFuture`] does.
pub(crate) trait Instantiate: Send + Sync {
    /// Returns the compiled component.
    fn component(&self) -> &Component;

    /// Creates an instance in a store.
    fn instantiate<'a>(&'a self, store: &'a mut Store<HostState>) -> GuestFuture<'a, Instance>;
}

impl Instantiate for InstancePre<HostState> {
    fn component(&self) -> &Component {
        self.component()
    }

    fn instantiate<'a>(&'a self, store: &'a mut Store<HostState>) -> GuestFuture<'a, Instance> {
        Box::pin(self.instantiate_async(store))
    }
}

/// The data that all calls of one revision of a component share.
pub(crate) struct Sandbox {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pre: Arc<dyn Instantiate>,
    pub(crate) component: Arc<str>,
    pub(crate) config: Arc<JsonMap>,
    /// The program of a development component.
    pub(crate) program: Option<Bytes>,
    pub(crate) limits: Limits,
    pub(crate) grants: Arc<Grants>,
    pub(crate) egress: Arc<Egress>,
    pub(crate) credentials: Arc<CredentialAccess>,
    /// `None` if each call gets a fresh instance.
    pub(crate) instance_pool: Option<Arc<InstancePool>>,
    pub(crate) active_calls: ActiveCalls,
    pub(crate) statistics: Arc<CallStatistics>,
    /// Permits of the engine that an instance takes. A component with many memories takes several.
    pub(crate) permits: u32,
    /// Bytes of all memories of a new instance.
    pub(crate) initial_memory: u64,
    /// Bytes of its core instances, besides their memories and tables.
    pub(crate) instance_size: u64,
    pub(crate) wasi_environment: WasiEnvironment,
}

impl Sandbox {
    /// Runs `work` with a fresh instance, under the component's limits.
    pub(crate) fn run<'a, R: Send + 'a>(
        &'a self,
        origin: CallOrigin,
        work: impl FnOnce(Store<HostState>, Instance) -> GuestFuture<'a, R> + Send + 'a,
    ) -> BoxFuture<'a, Result<R, CallError>> {
        let (origin, span) = self.start_span(origin);
        Box::pin(async move {
            let limits = self.call_limits(&origin);
            let span = self.guest_span(span, &limits);
            let log = GuestLog::new(self.component.clone(), origin.context(), &self.limits);
            let (clock, guest_log) = (limits.clock.clone(), log.clone());
            let guest = async move {
                let _permits = self.reserve().await?;
                let (store, instance) = self.instantiate(origin, clock, guest_log).await?;
                work(store, instance).await.map_err(GuestError::Guest)
            };
            span.finish(self.run_limited(limits, &log, Box::pin(guest)).await)
        })
    }

    /// Calls a function of the guest, under the component's limits. Uses a warm instance if the pool has one, else a
    /// fresh one. `load` finds the function, `work` calls it.
    pub(crate) fn call<'a, G: Send + 'a, R: Send + 'a>(
        &'a self,
        origin: impl Into<CallOrigin>,
        load: impl FnOnce(&mut Store<HostState>, &Instance) -> wasmtime::Result<G> + Send + 'a,
        work: impl FnOnce(&Accessor<HostState>, G) -> GuestFuture<'_, R> + Send + 'a,
    ) -> BoxFuture<'a, Result<R, CallError>> {
        let (origin, span) = self.start_span(origin.into());
        Box::pin(async move {
            let limits = self.call_limits(&origin);
            let span = self.guest_span(span, &limits);
            let (clock, waiting) = (limits.clock.clone(), self.instance_pool.as_ref().and_then(|pool| pool.take()));
            let log = match &waiting {
                Some(warm) => warm.log.clone(),
                None => GuestLog::new(self.component.clone(), origin.context(), &self.limits),
            };
            let guest_log = log.clone();
            let guest = async move {
                let mut warm = self.resume_or_instantiate(waiting, origin, clock, guest_log).await?;
                let store = warm.store.get();
                let guest = load(store, &warm.instance).map_err(GuestError::Guest)?;
                let handles = store.concurrent_state_table_size();
                let call = store.run_concurrent(async move |accessor| {
                    let answer = work(accessor, guest).await?;
                    let no_tasks = poll_fn(|cx| Poll::Ready(accessor.poll_no_interesting_tasks(cx).is_ready()));
                    wasmtime::error::Ok((answer, no_tasks.await))
                });
                let (answer, has_no_tasks) = call.await.flatten().map_err(GuestError::Guest)?;
                // A stream or a host call that the guest still holds would continue for the caller that started it.
                let is_released = store.data().is_released() && store.concurrent_state_table_size() <= handles;
                if has_no_tasks && is_released {
                    self.return_to_pool(warm);
                }
                Ok(answer)
            };
            span.finish(self.run_limited(limits, &log, Box::pin(guest)).await)
        })
    }

    /// Begins the span of a call. The spans of the caller begin inside of it from then on.
    fn start_span(&self, origin: CallOrigin) -> (CallOrigin, Span) {
        let context = origin.context().map(CallContext::span).cloned().unwrap_or_default();
        let mut span = context.start(SpanOperation::Guest, &self.component);
        span.record(|data| data.set("hatchery.component", self.component.clone()));
        if !span.is_recorded() {
            return (origin, span);
        }
        let inside = span.context().clone();
        let origin = match origin {
            CallOrigin::Call(cx) => CallOrigin::Call(cx.with_span(inside)),
            CallOrigin::Tool(cx, reporter) => CallOrigin::Tool(cx.with_span(inside), reporter),
            CallOrigin::Agent(AgentContext { call, sink }, relay) => {
                CallOrigin::Agent(AgentContext { call: call.with_span(inside), sink }, relay)
            }
            origin @ (CallOrigin::Describe | CallOrigin::Model(_) | CallOrigin::Close) => origin,
        };
        (origin, span)
    }

    /// Joins the span of a call with the clock and the statistics that end with it.
    fn guest_span(&self, span: Span, limits: &CallLimits) -> GuestSpan {
        let statistics = limits.is_counted.then(|| (self.statistics.clone(), limits.limit));
        GuestSpan { span, clock: limits.clock.clone(), started: Instant::now(), statistics }
    }

    /// Prepares an instance for a call: the waiting one, or a new one if there is none.
    async fn resume_or_instantiate(
        &self,
        waiting: Option<WarmInstance>,
        origin: CallOrigin,
        clock: Arc<Clock>,
        log: GuestLog,
    ) -> Result<WarmInstance, GuestError> {
        let Some(mut warm) = waiting else {
            let permits = self.reserve().await?;
            let (store, instance) = self.instantiate(origin, clock, log.clone()).await?;
            return Ok(WarmInstance { store: Box::new(store), instance, log, served: 0, _permits: permits });
        };
        let store = warm.store.get();
        store.data_mut().begin_call(self, origin).map_err(|error| GuestError::Host(error.into()))?;
        install_epoch_callback(store, clock);
        Ok(warm)
    }

    /// Keeps an instance for the next call, if there is a pool and no call waits for its permits.
    fn return_to_pool(&self, mut warm: WarmInstance) {
        if let Some(pool) = &self.instance_pool
            && !self.engine.is_short()
        {
            warm.store.get().data_mut().end_call();
            pool.put(warm);
            // A call may have started to wait concurrently, and found nothing to evict.
            if self.engine.is_short() {
                self.engine.evict_oldest();
            }
        }
    }

    /// Returns the limits of a call, and starts its clock.
    fn call_limits(&self, origin: &CallOrigin) -> CallLimits {
        let (wall, limit) = match origin {
            CallOrigin::Describe if self.limits.wall > DESCRIBE_TIMEOUT => (DESCRIBE_TIMEOUT, Limit::Describe),
            CallOrigin::Describe | CallOrigin::Close | CallOrigin::Call(_) | CallOrigin::Tool(..) => {
                (self.limits.wall, Limit::Wall)
            }
            CallOrigin::Model(_) | CallOrigin::Agent(..) => (self.limits.agent_wall, Limit::AgentWall),
        };
        let cancel = match origin {
            // The caller ends the call by dropping it.
            CallOrigin::Describe | CallOrigin::Model(_) | CallOrigin::Close => CancellationToken::new(),
            CallOrigin::Call(cx) | CallOrigin::Tool(cx, _) => cx.invocation.cancel.clone(),
            CallOrigin::Agent(cx, _) => cx.call.invocation.cancel.clone(),
        };
        let clock = Clock::new(self.limits.cpu, wall, cancel.clone(), &self.engine);
        let is_counted = !matches!(origin, CallOrigin::Describe);
        CallLimits { clock: Arc::new(clock), cancel, wall, limit, is_counted }
    }

    /// Runs a guest until it returns or exceeds a limit. Dropping the future drops the store.
    async fn run_limited<R>(
        &self,
        limits: CallLimits,
        log: &GuestLog,
        guest: BoxFuture<'_, Result<R, GuestError>>,
    ) -> Result<R, CallError> {
        let CallLimits { clock, cancel, wall, limit, is_counted: _ } = limits;
        let _running = self.active_calls.enter();
        let guest = clock::measure_cpu(clock, guest);
        let result = async {
            self.check_active(&cancel)?;
            // The guest first: most calls end with their first poll, and do not wait for anything else.
            let result = tokio::select! {
                biased;
                result = guest => result.map_err(|error| self.classify_error(error, limit, log)),
                () = cancel.cancelled() => Err(CallError::Cancelled),
                () = self.active_calls.cancelled() => Err(CallError::Replaced),
                () = tokio::time::sleep(wall) => Err(self.limits.exceeded(limit).into()),
            };
            self.check_active(&cancel).and(result)
        };
        let result = result.await;
        if let Err(error) = &result
            && let Some(limit) = error.limit()
        {
            log.report_limit(limit, error);
            self.statistics.count_limit(limit);
        }
        result
    }

    /// Fails if a call is cancelled by `cancel`, or because its component was replaced.
    fn check_active(&self, cancel: &CancellationToken) -> Result<(), CallError> {
        if cancel.is_cancelled() {
            return Err(CallError::Cancelled);
        }
        if self.active_calls.is_cancelled() { Err(CallError::Replaced) } else { Ok(()) }
    }

    /// Waits for the permits and the memory of an instance.
    async fn reserve(&self) -> Result<OwnedSemaphorePermit, GuestError> {
        let permits = self.engine.acquire_permits(self.permits).await.map_err(GuestError::Host)?;
        let bytes = self.initial_memory.saturating_add(self.counted_instance_size());
        self.engine.wait_for_memory(bytes).await.map_err(GuestError::Host)?;
        Ok(permits)
    }

    /// Reserves memory for the values that the host creates from the answer of a call, until the returned guard is
    /// dropped. It counts like the memory of an instance that is called in the run with this key.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn reserve_for(&self, run: Option<usize>, bytes: u64) -> Result<MemoryReservation, MemoryError> {
        InstanceMemory::new(self.limits.clone(), self.engine.memory().clone(), run).reserve(bytes)
    }

    fn instantiate(
        &self,
        origin: CallOrigin,
        clock: Arc<Clock>,
        log: GuestLog,
    ) -> BoxFuture<'_, Result<(Store<HostState>, Instance), GuestError>> {
        Box::pin(async move {
            let mut store = self.store(origin, clock, log);
            let counted = store.data().memory.charge(self.counted_instance_size());
            counted.map_err(|error| GuestError::Host(error.into()))?;
            let instance = self.pre.instantiate(&mut store).await.map_err(GuestError::Guest)?;
            Ok((store, instance))
        })
    }

    /// Returns the bytes of the core instances of an instance that count to its memory.
    fn counted_instance_size(&self) -> u64 {
        self.instance_size.saturating_sub(FREE_INSTANCE_SIZE)
    }

    fn store(&self, origin: CallOrigin, clock: Arc<Clock>, log: GuestLog) -> Store<HostState> {
        let mut store = Store::new(self.engine.wasm(), HostState::new(self, origin, log));
        store.limiter(HostState::meter);
        store.set_hostcall_fuel(self.max_copied());
        store.set_max_component_handles(self.limits.handles as usize);
        install_epoch_callback(&mut store, clock);
        store
    }

    /// Returns the maximum number of bytes that one host call may copy out of a guest.
    pub(crate) fn max_copied(&self) -> usize {
        usize::try_from(self.limits.result.saturating_mul(COPY_FACTOR)).unwrap_or(usize::MAX)
    }

    /// Maps an error of Wasmtime to a limit, a cancellation or a trap. `wall` is the limit to report for a timeout.
    fn classify_error(&self, error: GuestError, wall: Limit, log: &GuestLog) -> CallError {
        let error = match error {
            GuestError::Host(error) => return error,
            GuestError::Guest(error) => error,
        };
        if let Some(exceeded) = error.downcast_ref::<LimitExceeded>() {
            return exceeded.clone().into();
        }
        if let Some(error) = error.downcast_ref::<MemoryError>() {
            return error.clone().into();
        }
        if let Some(ResourceTableError::Full) = error.downcast_ref() {
            return self.limits.exceeded(Limit::Handles).into();
        }
        if let Some(FieldMapError::TotalSizeTooBig | FieldMapError::TooManyFields) = error.downcast_ref() {
            return self.limits.exceeded(Limit::Headers).into();
        }
        if let Some(reason) = error.downcast_ref::<InterruptReason>() {
            return match reason {
                InterruptReason::Cancelled => CallError::Cancelled,
                InterruptReason::Cpu => self.limits.exceeded(Limit::Cpu).into(),
                InterruptReason::Wall => self.limits.exceeded(wall).into(),
            };
        }
        if error.is::<PoolConcurrencyLimitError>() {
            return self.engine.busy_error();
        }
        let text = format!("{error:#}");
        // Wasmtime has no types for these.
        if text.contains("instance count too high") {
            return self.limits.exceeded(Limit::Instances).into();
        }
        if text.contains("store handle limit exceeded") {
            return self.limits.exceeded(Limit::Handles).into();
        }
        if text.contains("fuel allocated for hostcalls has been exhausted") {
            return self.limits.exceeded(Limit::Result).into();
        }
        tracing::debug!(component = &*self.component, "a call failed: {text}");
        CallError::Trapped(Crash::new(&error, log.stderr_tail()))
    }
}

/// Interrupts the guest at each epoch tick from now on: checks its clock and the size of its resources, then yields
/// until it has a time slice.
fn install_epoch_callback(store: &mut Store<HostState>, clock: Arc<Clock>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |mut store| {
        clock.check()?;
        store.data_mut().recount_resources()?;
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(clock.clone().next_slice())))
    });
}

/// The span of a call, and the clock that measures its CPU time.
struct GuestSpan {
    span: Span,
    clock: Arc<Clock>,
    started: Instant,
    /// Where the call counts, with the limit of its wall time. `None` for a call that describes the component.
    statistics: Option<(Arc<CallStatistics>, Limit)>,
}

impl GuestSpan {
    /// Ends the span with the result of the call.
    fn finish<R>(mut self, result: Result<R, CallError>) -> Result<R, CallError> {
        if let Err(error) = &result {
            self.span.fail(error.code(), || error.for_callers());
        }
        self.span.end();
        result
    }
}

impl Drop for GuestSpan {
    /// A call that is dropped, because its run has ended, has used time as well.
    fn drop(&mut self) {
        let spent = self.clock.spent();
        if let Some((statistics, limit)) = &self.statistics {
            statistics.count_call(*limit, self.started.elapsed(), spent);
        }
        self.span.context().add_time(TimeKind::GuestCpu, spent);
        self.span.record(|data| data.set("hatchery.guest.cpu_ns", u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX)));
    }
}

/// The limits of one call that are enforced from outside of the guest.
struct CallLimits {
    clock: Arc<Clock>,
    cancel: CancellationToken,
    wall: Duration,
    /// The limit to report when `wall` has passed.
    limit: Limit,
    /// False for a call that describes the component.
    is_counted: bool,
}

/// The error of a call before it is classified.
enum GuestError {
    Host(CallError),
    Guest(wasmtime::Error),
}
