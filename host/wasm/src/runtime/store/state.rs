//! Data of a Wasmtime store: the origin, the grants and the usage of the current call.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{AgentContext, CallContext, JsonMap};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use wasmtime::ResourceLimiter;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

use super::Sandbox;
use super::call_statistics::CallStatistics;
use super::call_usage::CallUsage;
use super::memory::{InstanceMemory, MemoryError};
use super::meter::{Meter, resource_size};
use super::nesting::Nesting;
use super::pending_writes::PendingWrites;
use super::stdio::Stdio;
use crate::contract::progress::ProgressReporter;
use crate::contract::sub_agent_relay::SubAgentRelay;
use crate::guest_log::GuestLog;
use crate::policy::{Grants, Preopens, WasiEnvironment};
use crate::runtime::credentials::CredentialAccess;
use crate::runtime::http::{Http, RequestSender};

/// Resources of a guest that it does not open itself, such as its standard streams.
const HOST_RESOURCES: usize = 24;

/// The origin of a guest call.
pub(crate) enum CallOrigin {
    /// The description of the component, when it is loaded.
    Describe,
    /// A model request, which may come from outside of any session. Has the key of the run whose code sends it.
    Model(Option<usize>),
    /// A plugin's `close` hook, which runs outside of any session.
    Close,
    /// A call within a run, such as a call of a callback.
    Call(CallContext),
    /// A call of a tool, which can report progress.
    Tool(CallContext, ProgressReporter),
    /// A custom agent, with the events of its sub-agents.
    Agent(AgentContext, Arc<SubAgentRelay>),
}

impl CallOrigin {
    /// Returns the context of the call; `None` outside of runs.
    pub(crate) fn context(&self) -> Option<&CallContext> {
        match self {
            Self::Describe | Self::Model(_) | Self::Close => None,
            Self::Call(cx) | Self::Tool(cx, _) => Some(cx),
            Self::Agent(cx, _) => Some(&cx.call),
        }
    }

    /// Returns the key of the run that the call belongs to; `None` outside of runs.
    pub(super) fn run_key(&self) -> Option<usize> {
        match self {
            Self::Model(run) => *run,
            Self::Describe | Self::Close | Self::Call(_) | Self::Tool(..) | Self::Agent(..) => {
                Some(run_key(self.context()?))
            }
        }
    }
}

impl From<&CallContext> for CallOrigin {
    fn from(cx: &CallContext) -> Self {
        Self::Call(cx.clone())
    }
}

/// Returns the key of the run of a call, which is unique among the runs in progress. Agents that run as tools are runs
/// of their own.
pub(crate) fn run_key(cx: &CallContext) -> usize {
    Arc::as_ptr(&cx.invocation.usage) as usize
}

pub(crate) struct HostState {
    wasi: WasiCtx,
    table: ResourceTable,
    http: Http,
    meter: Meter,
    pub(crate) memory: Arc<InstanceMemory>,
    statistics: Arc<CallStatistics>,
    /// Bytes charged for the resources in `table`.
    resource_bytes: u64,
    /// `None` while the instance is pooled.
    pub(crate) origin: Option<CallOrigin>,
    pub(crate) component: Arc<str>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) credentials: Arc<CredentialAccess>,
    pub(crate) folders: Preopens,
    pub(crate) config: Arc<JsonMap>,
    /// The program of a development component.
    pub(crate) program: Option<Bytes>,
    pub(crate) log: GuestLog,
    pub(crate) writes: PendingWrites,
    pub(crate) usage: Arc<CallUsage>,
    pub(crate) nesting: Nesting,
    /// Held while the call reads sessions or the memory of the user.
    pub(crate) reads: Arc<Mutex<()>>,
    /// Cancels the runs of apps that the call has started, by their ids.
    pub(crate) runs: HashMap<String, CancellationToken>,
}

impl Drop for HostState {
    fn drop(&mut self) {
        self.log.flush();
        self.record_peak_memory();
    }
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
    pub(super) fn new(sandbox: &Sandbox, origin: CallOrigin, log: GuestLog) -> Self {
        let bare;
        let wasi_environment = match origin {
            // A description must not depend on grants.
            CallOrigin::Describe => {
                bare = WasiEnvironment::for_describe();
                &bare
            }
            CallOrigin::Model(_)
            | CallOrigin::Close
            | CallOrigin::Call(_)
            | CallOrigin::Tool(..)
            | CallOrigin::Agent(..) => &sandbox.wasi_environment,
        };
        let limits = &sandbox.limits;
        let memory = InstanceMemory::new(limits.clone(), sandbox.engine.memory().clone(), origin.run_key());
        let usage = Arc::new(CallUsage::new(limits.clone(), log.clone(), memory.clone()));
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles as usize + HOST_RESOURCES);
        Self {
            wasi: wasi_environment.wasi(Stdio::new(&log, "stdout"), Stdio::new(&log, "stderr")),
            folders: wasi_environment.preopens(),
            table,
            http: Http::new(sandbox.egress.clone(), &origin, log.clone(), usage.clone()),
            meter: Meter::new(limits.clone(), memory.clone()),
            memory,
            statistics: sandbox.statistics.clone(),
            resource_bytes: 0,
            origin: Some(origin),
            component: sandbox.component.clone(),
            grants: sandbox.grants.clone(),
            credentials: sandbox.credentials.clone(),
            config: sandbox.config.clone(),
            program: sandbox.program.clone(),
            log,
            writes: PendingWrites::new(limits.clone()),
            usage,
            nesting: Nesting::current(),
            reads: Arc::default(),
            runs: HashMap::new(),
        }
    }

    /// Starts the next call of a warm instance, and drops the data of the last one. Its memory and tables remain
    /// charged.
    ///
    /// # Errors
    /// If the run of the call has no memory left for the instance.
    pub(super) fn begin_call(&mut self, sandbox: &Sandbox, origin: CallOrigin) -> Result<(), MemoryError> {
        self.memory.move_to_run(origin.run_key())?;
        self.log.reset(origin.context());
        self.usage = Arc::new(CallUsage::new(sandbox.limits.clone(), self.log.clone(), self.memory.clone()));
        self.http = Http::new(sandbox.egress.clone(), &origin, self.log.clone(), self.usage.clone());
        self.origin = Some(origin);
        self.writes = PendingWrites::new(sandbox.limits.clone());
        self.nesting = Nesting::current();
        Ok(())
    }

    /// Returns true if no host call of the guest is in progress. Every request and response holds a reference to
    /// `usage`, besides this state and `http`.
    pub(super) fn is_released(&self) -> bool {
        Arc::strong_count(&self.usage) == 2
    }

    /// Drops the origin of the call, before the instance is pooled, and logs the last lines of its output.
    pub(super) fn end_call(&mut self) {
        self.record_peak_memory();
        self.origin = None;
        self.log.reset(None);
        self.http.drop_invocation();
        self.runs.clear();
        self.writes.release();
        // This cannot fail without a run.
        let _ = self.memory.move_to_run(None);
    }

    /// Records the peak memory of the call in progress, unless it describes the component.
    fn record_peak_memory(&self) {
        if !matches!(self.origin, None | Some(CallOrigin::Describe)) {
            self.statistics.record_peak_memory(self.memory.peak());
        }
    }

    /// Returns the key of the run that the call belongs to; `None` outside of runs.
    pub(crate) fn run_key(&self) -> Option<usize> {
        self.origin.as_ref().and_then(CallOrigin::run_key)
    }

    /// Returns true if the guest may send HTTP requests to any host.
    pub(crate) fn can_send(&self) -> bool {
        self.http.can_send()
    }

    /// Returns the sender of the call's HTTP requests.
    pub(crate) fn request_sender(&self) -> RequestSender {
        self.http.sender()
    }

    /// Charges the growth of a resource. Dropped resources are only noticed when memory runs out, or at the next
    /// epoch tick.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn charge_resources(&mut self, bytes: u64) -> Result<(), MemoryError> {
        match self.memory.charge(bytes) {
            Ok(()) => self.resource_bytes += bytes,
            Err(_) => self.recount_resources()?,
        }
        Ok(())
    }

    /// Recounts the size of all resources.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(super) fn recount_resources(&mut self) -> Result<(), MemoryError> {
        let bytes = self.table.iter_mut().map(|resource| resource_size(resource)).sum::<u64>();
        if let Some(more) = bytes.checked_sub(self.resource_bytes) {
            self.memory.charge(more)?;
        } else {
            self.memory.release(self.resource_bytes - bytes);
        }
        self.resource_bytes = bytes;
        Ok(())
    }

    pub(crate) fn resources(&mut self) -> &mut ResourceTable {
        &mut self.table
    }

    pub(super) fn meter(&mut self) -> &mut dyn ResourceLimiter {
        &mut self.meter
    }
}
