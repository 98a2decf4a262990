//! The sandbox of a call: a store of its own with what the component is granted and no more, its limits, and the one place that decides
//! when a guest is stopped.
//!
//! Two clocks run. CPU is the time that the store's future was really being polled, so waiting for a model costs nothing. Wall time and
//! cancellation are watched from outside: whatever the guest does, its store is dropped. Guests that compute for long take turns, so that
//! they do not keep the threads from anything else (`turn`).
//!
//! A store serves one call, or, where the operator wants it, one call after the other (`warm`). It never serves two at a time: what a
//! guest writes and what it computes could not be told apart, and the host would not know on whose behalf it is asked.

mod clock;
pub(crate) mod kept;
pub(crate) mod memory;
pub(crate) mod meter;
pub(crate) mod nesting;
pub(crate) mod output;
mod revision;
mod state;
pub(crate) mod stream;
pub(crate) mod tally;
mod turn;
mod warm;

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hatchery_core::{CallContext, JsonMap};
use tokio_util::sync::CancellationToken;
use wasmtime::component::{Accessor, Instance, InstancePre, ResourceTableError};
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, UpdateDeadline};
use wasmtime_wasi_http::FieldMapError;

use crate::error::CallError;
use crate::policy::{Grants, WasiEnvironment};
use crate::runtime::engine::Engine;
use crate::runtime::http::Egress;
use crate::runtime::limits::{DESCRIBE_WALL, Limit, LimitHit, Limits};
use clock::{Clock, Stop};
use memory::MemoryError;
use output::Output;
pub(crate) use revision::Revision;
pub(crate) use state::{Caller, HostState};
pub(crate) use turn::Turns;
use warm::Live;
pub(crate) use warm::Pool;

/// Most bytes that one host call may copy out of a guest, as a multiple of the result limit: strings are copied before they are measured.
const COPY_FACTOR: u64 = 4;

/// What a component is, as far as its calls need it.
pub(crate) struct Sandbox {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pre: InstancePre<HostState>,
    pub(crate) component: Arc<str>,
    pub(crate) config: Arc<JsonMap>,
    pub(crate) limits: Limits,
    pub(crate) grants: Arc<Grants>,
    pub(crate) egress: Arc<Egress>,
    /// Instances that wait for a call, if the operator wants any.
    pub(crate) warm: Option<Arc<Pool>>,
    pub(crate) revision: Revision,
    /// How many of the engine's places an instance takes: a component with many memories takes several.
    pub(crate) places: u32,
    /// What the memories of an instance begin with, bytes.
    pub(crate) initial_memory: u64,
    pub(crate) wasi_environment: WasiEnvironment,
}

impl Sandbox {
    /// Runs `work` with a fresh instance that is its own, under the component's limits.
    pub(crate) async fn run<R, F, Work>(&self, caller: Caller, work: Work) -> Result<R, CallError>
    where
        F: Future<Output = wasmtime::Result<R>> + Send,
        Work: FnOnce(Store<HostState>, Instance) -> F + Send,
        R: Send,
    {
        let watch = self.watch(&caller);
        let (clock, output) = (watch.clock.clone(), Output::new(self.component.clone(), &caller, &self.limits));
        let guest = async {
            let Live { store, instance, _slot, .. } = self.fresh(caller, clock, output.clone()).await?;
            work(store, instance).await.map_err(Fault::Guest)
        };
        self.watched(watch, &output, guest).await
    }

    /// Calls a function of the guest, under the component's limits: in an instance that waits for a call if there is one, else in a fresh
    /// one. `load` finds the function, `work` calls it.
    pub(crate) async fn call<G, R>(
        &self,
        cx: &CallContext,
        load: impl FnOnce(&mut Store<HostState>, &Instance) -> wasmtime::Result<G>,
        work: impl AsyncFnOnce(&Accessor<HostState>, G) -> wasmtime::Result<R>,
    ) -> Result<R, CallError> {
        let caller = Caller::Call(cx.clone());
        let watch = self.watch(&caller);
        let (clock, waiting) = (watch.clock.clone(), self.warm.as_ref().and_then(|pool| pool.take()));
        let output = match &waiting {
            Some(live) => live.output.clone(),
            None => Output::new(self.component.clone(), &caller, &self.limits),
        };
        let guest = async {
            let mut live = match waiting {
                Some(mut live) => {
                    live.store.data_mut().begin(self, caller).map_err(|error| Fault::Call(error.into()))?;
                    arm(&mut live.store, clock);
                    live
                }
                None => self.fresh(caller, clock, output.clone()).await?,
            };
            let guest = load(&mut live.store, &live.instance).map_err(Fault::Guest)?;
            let held = live.store.concurrent_state_table_size();
            let called = live.store.run_concurrent(async move |accessor| {
                let answer = work(accessor, guest).await?;
                let is_at_rest = poll_fn(|cx| Poll::Ready(accessor.poll_no_interesting_tasks(cx).is_ready())).await;
                wasmtime::error::Ok((answer, is_at_rest))
            });
            let (answer, is_at_rest) = called.await.flatten().map_err(Fault::Guest)?;
            // A stream or a call of the host that the guest still holds would go on as the caller who asked for it.
            let is_released = live.store.data().is_released() && live.store.concurrent_state_table_size() <= held;
            if is_at_rest && is_released {
                self.keep(live);
            }
            Ok(answer)
        };
        self.watched(watch, &output, guest).await
    }

    /// Keeps an instance for the next call, if the operator wants that and nobody waits for its place.
    fn keep(&self, mut live: Live) {
        if let Some(pool) = &self.warm
            && !self.engine.is_short()
        {
            live.store.data_mut().end();
            pool.keep(live);
            // Somebody may have come to wait meanwhile, and found nothing to take.
            if self.engine.is_short() {
                self.engine.give_up_one();
            }
        }
    }

    /// What ends a call.
    fn watch(&self, caller: &Caller) -> Watch {
        let (wall, limit) = match caller {
            Caller::Loader if self.limits.wall > DESCRIBE_WALL => (DESCRIBE_WALL, Limit::Describe),
            Caller::Loader | Caller::Call(_) => (self.limits.wall, Limit::Wall),
            Caller::Model | Caller::Agent(..) => (self.limits.agent_wall, Limit::AgentWall),
        };
        let cancel = match caller {
            // Whoever asks ends the call by dropping it.
            Caller::Loader | Caller::Model => CancellationToken::new(),
            Caller::Call(cx) => cx.invocation.cancel.clone(),
            Caller::Agent(cx, _) => cx.call.invocation.cancel.clone(),
        };
        let clock = Clock::new(self.limits.cpu, wall, cancel.clone(), self.engine.turns().clone());
        Watch { clock: Arc::new(clock), cancel, wall, limit }
    }

    /// Runs a guest until it ends or must end. Dropping it ends its store.
    async fn watched<R>(
        &self,
        watch: Watch,
        output: &Output,
        guest: impl Future<Output = Result<R, Fault>>,
    ) -> Result<R, CallError> {
        let Watch { clock, cancel, wall, limit } = watch;
        let _running = self.revision.enter();
        let guest = clock::metered(clock, guest);
        let result = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(CallError::Cancelled),
            () = self.revision.ended() => Err(CallError::Replaced),
            result = guest => result.map_err(|fault| self.explain(fault, limit, output)),
            () = tokio::time::sleep(wall) => Err(self.limits.hit(limit).into()),
        };
        if let Err(error) = &result
            && let Some(limit) = error.limit()
        {
            output.report_limit(limit, error);
        }
        result
    }

    async fn fresh(&self, caller: Caller, clock: Arc<Clock>, output: Output) -> Result<Live, Fault> {
        let slot = self.engine.slot(self.places).await.map_err(Fault::Call)?;
        self.engine.room(self.initial_memory).await.map_err(Fault::Call)?;
        let mut store = self.store(caller, clock, output.clone());
        let instance = self.pre.instantiate_async(&mut store).await.map_err(Fault::Guest)?;
        Ok(Live { store, instance, output, served: 0, _slot: slot })
    }

    fn store(&self, caller: Caller, clock: Arc<Clock>, output: Output) -> Store<HostState> {
        let mut store = Store::new(self.engine.wasm(), HostState::new(self, caller, output));
        store.limiter(HostState::meter);
        store.set_hostcall_fuel(usize::try_from(self.limits.result.saturating_mul(COPY_FACTOR)).unwrap_or(usize::MAX));
        store.set_max_component_handles(self.limits.handles as usize);
        arm(&mut store, clock);
        store
    }

    /// Says in our words why wasmtime gave up on a guest.
    fn explain(&self, fault: Fault, wall: Limit, output: &Output) -> CallError {
        let error = match fault {
            Fault::Call(error) => return error,
            Fault::Guest(error) => error,
        };
        if let Some(hit) = error.downcast_ref::<LimitHit>() {
            return hit.clone().into();
        }
        if let Some(error) = error.downcast_ref::<MemoryError>() {
            return error.clone().into();
        }
        if let Some(ResourceTableError::Full) = error.downcast_ref() {
            return self.limits.hit(Limit::Handles).into();
        }
        if let Some(FieldMapError::TotalSizeTooBig | FieldMapError::TooManyFields) = error.downcast_ref() {
            return self.limits.hit(Limit::Headers).into();
        }
        if let Some(stop) = error.downcast_ref::<Stop>() {
            return match stop {
                Stop::Cancelled => CallError::Cancelled,
                Stop::Cpu => self.limits.hit(Limit::Cpu).into(),
                Stop::Wall => self.limits.hit(wall).into(),
            };
        }
        if error.is::<PoolConcurrencyLimitError>() {
            return self.engine.exhausted();
        }
        let text = format!("{error:#}");
        // wasmtime has no types for these.
        if text.contains("instance count too high") {
            return self.limits.hit(Limit::Instances).into();
        }
        if text.contains("store handle limit exceeded") {
            return self.limits.hit(Limit::Handles).into();
        }
        if text.contains("fuel allocated for hostcalls has been exhausted") {
            return self.limits.hit(Limit::Result).into();
        }
        tracing::debug!(component = &*self.component, "a call failed: {text}");
        let reason = match error.downcast_ref::<Trap>() {
            Some(trap) => trap.to_string(),
            None => error.root_cause().to_string(),
        };
        CallError::Trapped { reason, output: output.last_words() }
    }
}

/// Makes the guest look at this clock from the next tick on.
fn arm(store: &mut Store<HostState>, clock: Arc<Clock>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |mut store| {
        clock.check()?;
        store.data_mut().count_resources()?;
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(clock.clone().next_turn())))
    });
}

/// What ends a call that does not end by itself.
struct Watch {
    clock: Arc<Clock>,
    cancel: CancellationToken,
    wall: Duration,
    /// What to say when `wall` is over.
    limit: Limit,
}

/// What ends a guest early.
enum Fault {
    Call(CallError),
    Guest(wasmtime::Error),
}
