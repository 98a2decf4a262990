//! What a guest's store holds: on whose behalf it runs, what it may do, and what it has done so far.

use std::sync::Arc;

use hatchery_core::{AgentContext, CallContext, JsonMap};
use wasmtime::ResourceLimiter;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

use super::Sandbox;
use super::kept::Kept;
use super::nesting::Nesting;
use super::output::Output;
use super::tally::Tally;
use crate::error::CallError;
use crate::http::Http;
use crate::limits::Meter;
use crate::policy::Grants;
use crate::relay::Relay;

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

/// What a store holds.
pub(crate) struct HostState {
    wasi: WasiCtx,
    table: ResourceTable,
    http: Http,
    meter: Meter,
    pub(crate) caller: Caller,
    /// The component's name, for the audit log.
    pub(crate) component: Arc<str>,
    pub(crate) grants: Arc<Grants>,
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
    /// # Errors
    /// When a folder that the component is granted has gone.
    pub(super) fn new(sandbox: &Sandbox, caller: Caller, output: Output) -> Result<Self, CallError> {
        let wasi = sandbox.surroundings.wasi(output.stream("stdout"), output.stream("stderr"))?;
        let tally = Arc::new(Tally::new(sandbox.limits.clone()));
        Ok(Self {
            wasi,
            table: ResourceTable::new(),
            http: Http::new(sandbox.egress.clone(), &caller, output.clone(), tally.clone()),
            meter: Meter::new(sandbox.limits.clone()),
            caller,
            component: sandbox.component.clone(),
            grants: sandbox.grants.clone(),
            config: sandbox.config.clone(),
            output,
            kept: Kept::new(sandbox.limits.clone()),
            tally,
            nesting: Nesting::current(),
        })
    }

    /// Begins the next call of the same instance: what was held for the one before is gone. What memory and tables take stays counted.
    pub(super) fn begin(&mut self, sandbox: &Sandbox, caller: Caller) {
        self.output.renew(&caller);
        self.tally = Arc::new(Tally::new(sandbox.limits.clone()));
        self.http = Http::new(sandbox.egress.clone(), &caller, self.output.clone(), self.tally.clone());
        self.caller = caller;
        self.kept = Kept::new(sandbox.limits.clone());
        self.nesting = Nesting::current();
    }

    /// True when nothing that the call has asked for goes on: each request and each answer of a model holds the call's counters, beside
    /// this state and its `http`.
    pub(super) fn is_released(&self) -> bool {
        Arc::strong_count(&self.tally) == 2
    }

    /// Lets go of the call that has ended, while the instance waits for the next.
    pub(super) fn end(&mut self) {
        self.caller = Caller::Loader;
    }

    /// What the guest has handles of.
    pub(crate) fn resources(&mut self) -> &mut ResourceTable {
        &mut self.table
    }

    pub(super) fn meter(&mut self) -> &mut dyn ResourceLimiter {
        &mut self.meter
    }
}
