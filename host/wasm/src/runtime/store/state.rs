//! What a guest's store holds: on whose behalf it runs, what it may do, and what it has done so far.

use std::sync::Arc;

use hatchery_core::{AgentContext, CallContext, JsonMap};
use wasmtime::ResourceLimiter;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

use super::Sandbox;
use super::kept::Kept;
use super::memory::{InstanceMemory, MemoryError};
use super::meter::{Meter, resource_size};
use super::nesting::Nesting;
use super::output::Output;
use super::tally::Tally;
use crate::contract::relay::Relay;
use crate::policy::{Grants, Preopens, WasiEnvironment};
use crate::runtime::http::Http;

/// Resources that a guest has beside those that it opens, such as its standard streams.
const HOST_RESOURCES: usize = 24;

/// On whose behalf a call runs.
pub(crate) enum Caller {
    /// Nobody's: the component describes itself.
    Loader,
    /// Somebody's who asks a model of the component: there may be no session.
    Model,
    /// A tool, callback or anything else that is called in a run.
    Call(CallContext),
    /// A custom agent, with the events that it may relay.
    Agent(AgentContext, Arc<Relay>),
}

impl Caller {
    /// Tells the run that the call belongs to from all others that go on, agents that run as tools included.
    fn run(&self) -> Option<usize> {
        let invocation = match self {
            Self::Loader | Self::Model => return None,
            Self::Call(cx) => &cx.invocation,
            Self::Agent(cx, _) => &cx.call.invocation,
        };
        Some(Arc::as_ptr(&invocation.spent) as usize)
    }
}

/// What a store holds.
pub(crate) struct HostState {
    wasi: WasiCtx,
    table: ResourceTable,
    http: Http,
    meter: Meter,
    pub(crate) memory: Arc<InstanceMemory>,
    /// What the resources in `table` were counted to take.
    resource_bytes: u64,
    pub(crate) caller: Caller,
    /// The component's name, for the audit log.
    pub(crate) component: Arc<str>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) folders: Preopens,
    pub(crate) config: Arc<JsonMap>,
    pub(crate) output: Output,
    /// The state that the call has set.
    pub(crate) kept: Kept,
    /// What the call has used of others.
    pub(crate) tally: Arc<Tally>,
    /// How many tools, each called by the next, wait for this call.
    pub(crate) nesting: Nesting,
}

impl WasiView for HostState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for HostState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.http.view(&mut self.table)
    }
}

impl HostState {
    pub(super) fn new(sandbox: &Sandbox, caller: Caller, output: Output) -> Self {
        let bare;
        let wasi_environment = match caller {
            // What a component says of itself must not depend on what it is granted.
            Caller::Loader => {
                bare = WasiEnvironment::bare();
                &bare
            }
            Caller::Model | Caller::Call(_) | Caller::Agent(..) => &sandbox.wasi_environment,
        };
        let limits = &sandbox.limits;
        let memory = InstanceMemory::new(limits.clone(), sandbox.engine.memory().clone(), caller.run());
        let tally = Arc::new(Tally::new(limits.clone(), output.clone(), memory.clone()));
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles as usize + HOST_RESOURCES);
        Self {
            wasi: wasi_environment.wasi(output.stream("stdout"), output.stream("stderr")),
            folders: wasi_environment.folders(),
            table,
            http: Http::new(sandbox.egress.clone(), &caller, output.clone(), tally.clone()),
            meter: Meter::new(limits.clone(), memory.clone()),
            memory,
            resource_bytes: 0,
            caller,
            component: sandbox.component.clone(),
            grants: sandbox.grants.clone(),
            config: sandbox.config.clone(),
            output,
            kept: Kept::new(limits.clone()),
            tally,
            nesting: Nesting::current(),
        }
    }

    /// Begins the next call of the same instance: what was held for the one before is gone. What memory and tables take stays counted.
    ///
    /// # Errors
    /// When the run of the call has no memory left for the instance.
    pub(super) fn begin(&mut self, sandbox: &Sandbox, caller: Caller) -> Result<(), MemoryError> {
        self.memory.move_to_run(caller.run())?;
        self.output.renew(&caller);
        self.tally = Arc::new(Tally::new(sandbox.limits.clone(), self.output.clone(), self.memory.clone()));
        self.http = Http::new(sandbox.egress.clone(), &caller, self.output.clone(), self.tally.clone());
        self.caller = caller;
        self.kept = Kept::new(sandbox.limits.clone());
        self.nesting = Nesting::current();
        Ok(())
    }

    /// True when nothing that the call has asked for goes on: each request and each answer of a model holds the call's counters, beside
    /// this state and its `http`.
    pub(super) fn is_released(&self) -> bool {
        Arc::strong_count(&self.tally) == 2
    }

    /// Lets go of the call that has ended, while the instance waits for the next.
    pub(super) fn end(&mut self) {
        self.caller = Caller::Loader;
        // This cannot fail: it belongs to no run then.
        let _ = self.memory.move_to_run(None);
    }

    /// True if the guest may send HTTP requests to any host.
    pub(crate) fn may_send(&self) -> bool {
        self.http.may_send()
    }

    /// Charges what a resource has grown by. Resources that are gone are only noticed when there is no memory left, or with the next tick.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn charge_resources(&mut self, bytes: u64) -> Result<(), MemoryError> {
        match self.memory.charge(bytes) {
            Ok(()) => self.resource_bytes += bytes,
            Err(_) => self.count_resources()?,
        }
        Ok(())
    }

    /// Counts what all resources take now.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn count_resources(&mut self) -> Result<(), MemoryError> {
        let bytes = self.table.iter_mut().map(|resource| resource_size(resource)).sum::<u64>();
        if let Some(more) = bytes.checked_sub(self.resource_bytes) {
            self.memory.charge(more)?;
        } else {
            self.memory.release(self.resource_bytes - bytes);
        }
        self.resource_bytes = bytes;
        Ok(())
    }

    /// What the guest has handles of.
    pub(crate) fn resources(&mut self) -> &mut ResourceTable {
        &mut self.table
    }

    pub(super) fn meter(&mut self) -> &mut dyn ResourceLimiter {
        &mut self.meter
    }
}
