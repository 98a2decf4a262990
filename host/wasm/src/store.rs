//! The sandbox of one call: a fresh store with nothing granted (no environment, files or network; clocks and random numbers only), its
//! limits, and the one place that decides when a guest is stopped.
//!
//! Two clocks run. CPU is the time that the store's future was really being polled, so waiting for a model costs nothing. Wall time and
//! cancellation are watched from outside: whatever the guest does, its store is dropped.

mod clock;
pub(crate) mod kept;
mod nesting;
pub(crate) mod output;
mod state;

use std::future::Future;
use std::sync::Arc;

use hatchery_core::JsonMap;
use tokio_util::sync::CancellationToken;
use wasmtime::component::{Instance, InstancePre};
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, UpdateDeadline};

use crate::engine::Engine;
use crate::error::CallError;
use crate::http::Egress;
use crate::limits::{DESCRIBE_WALL, Limit, LimitHit, Limits};
use crate::policy::Grants;
use clock::{Clock, Stop};
use output::Output;
pub(crate) use state::{Caller, HostState};

/// Most bytes that one host call may copy out of a guest, as a multiple of the result limit: strings are copied before they are measured.
const COPY_FACTOR: u64 = 4;

/// Ids of streams, tasks and resources that a guest may hold at one time.
const MAX_HANDLES: usize = 10_000;

/// What a component is, as far as its calls need it.
pub(crate) struct Sandbox {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pre: InstancePre<HostState>,
    pub(crate) component: Arc<str>,
    pub(crate) config: Arc<JsonMap>,
    pub(crate) limits: Limits,
    pub(crate) grants: Arc<Grants>,
    pub(crate) egress: Arc<Egress>,
}

impl Sandbox {
    /// Runs `work` with a fresh instance, under the component's limits.
    pub(crate) async fn run<R, F, Work>(&self, caller: Caller, work: Work) -> Result<R, CallError>
    where
        F: Future<Output = wasmtime::Result<R>> + Send,
        Work: FnOnce(Store<HostState>, Instance) -> F + Send,
        R: Send,
    {
        let (wall, limit) = match &caller {
            Caller::Loader if self.limits.wall > DESCRIBE_WALL => (DESCRIBE_WALL, Limit::Describe),
            Caller::Loader | Caller::Call(_) => (self.limits.wall, Limit::Wall),
            Caller::Model | Caller::Agent(..) => (self.limits.agent_wall, Limit::AgentWall),
        };
        let cancel = match &caller {
            // Whoever asks ends the call by dropping it.
            Caller::Loader | Caller::Model => CancellationToken::new(),
            Caller::Call(cx) => cx.invocation.cancel.clone(),
            Caller::Agent(cx, _) => cx.call.invocation.cancel.clone(),
        };
        let clock = Arc::new(Clock::new(self.limits.cpu, wall, cancel.clone()));
        let output = Output::new(self.component.clone(), &caller, &self.limits);
        let guest = clock::metered(clock.clone(), self.guest(caller, clock.clone(), output.clone(), work));
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(CallError::Cancelled),
            result = guest => result.map_err(|fault| self.explain(fault, limit, &output)),
            () = tokio::time::sleep(wall) => Err(self.limits.hit(limit).into()),
        }
    }

    async fn guest<R, F, Work>(&self, caller: Caller, clock: Arc<Clock>, output: Output, work: Work) -> Result<R, Fault>
    where
        F: Future<Output = wasmtime::Result<R>> + Send,
        Work: FnOnce(Store<HostState>, Instance) -> F + Send,
        R: Send,
    {
        let _slot = self.engine.slot().await.map_err(Fault::Call)?;
        let mut store = self.store(caller, clock, output);
        let instance = self.pre.instantiate_async(&mut store).await.map_err(Fault::Guest)?;
        work(store, instance).await.map_err(Fault::Guest)
    }

    fn store(&self, caller: Caller, clock: Arc<Clock>, output: Output) -> Store<HostState> {
        let state = HostState::new(self, caller, output);
        let mut store = Store::new(self.engine.wasm(), state);
        store.limiter(HostState::meter);
        store.set_hostcall_fuel(usize::try_from(self.limits.result.saturating_mul(COPY_FACTOR)).unwrap_or(usize::MAX));
        store.set_max_component_handles(MAX_HANDLES);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |_| {
            clock.check()?;
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
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
        // wasmtime has no types for these two.
        if text.contains("instance count too high") {
            return self.limits.hit(Limit::Instances).into();
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

/// What ends a guest early.
enum Fault {
    Call(CallError),
    Guest(wasmtime::Error),
}
