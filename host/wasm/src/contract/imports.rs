//! Imports of components: one file per interface of `wit/imports.wit`.
//!
//! Each import returns a WIT result, never a Rust error, which would poison the Wasmtime store. Calls that may run
//! other components (sub-agents, tools) run as their own tasks, because a Wasmtime store must not be polled inside
//! another.

mod agents;
mod artifacts;
mod clock;
mod config;
mod credentials;
mod http;
mod journal;
mod live;
mod log;
mod memory;
mod models;
mod plugins;
pub(crate) mod program;
mod runner;
mod session;
mod sessions;
mod sync;
mod tools;

use hatchery_core::{AgentContext, CallContext, RunError, StoreError};
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;
use wasmtime::component::{Accessor, HasSelf};

use crate::contract::convert::{BadValue, EstimateSize, ParsedSize, ToWit, wit};
use crate::contract::sub_agent_relay::SubAgentRelay;
use crate::policy::Permission;
use crate::runtime::store::memory::MemoryReservation;
use crate::runtime::store::{CallOrigin, HostState};

pub use http::Exchange;
pub use live::NestedLiveRun;
pub use models::ModelAnswer;
pub use runner::NestedRun;

/// The store access of asynchronous imports.
type Access<T> = Accessor<T, HasSelf<HostState>>;

impl wit::Host for HostState {}

impl HostState {
    /// Returns the context of the current call.
    fn context(&self) -> Result<&CallContext, wit::Error> {
        let message = match &self.origin {
            None => "no call is in progress",
            Some(CallOrigin::Describe) => "there is no session in `describe`",
            Some(CallOrigin::Model(_)) => "there is no session in a call of a component's model",
            Some(CallOrigin::Close) => "there is no session when a plugin is closed",
            Some(CallOrigin::Call(cx) | CallOrigin::Tool(cx, _)) => return Ok(cx),
            Some(CallOrigin::Agent(cx, _)) => return Ok(&cx.call),
        };
        Err(wit_error("NO_SESSION", message))
    }
}

impl HostState {
    /// Returns the context of the current call.
    ///
    /// # Errors
    /// `READ_ONLY` if the call only reads, as the call of an instruction does.
    fn writable(&self) -> Result<&CallContext, wit::Error> {
        let cx = self.context()?;
        cx.check_writable()?;
        Ok(cx)
    }

    /// Checks the grants of the component.
    fn check(&self, permission: Permission<'_>) -> Result<(), wit::Error> {
        self.grants.check(&self.component, permission).map_err(|denial| denial.report(&self.log))
    }
}

/// Access to the state of the Wasmtime store, from asynchronous and from synchronous imports, so that both share one
/// body.
trait StoreAccess: Send {
    fn with_state<R>(&mut self, f: impl FnOnce(&mut HostState) -> R) -> R;
}

impl<T> StoreAccess for &Access<T> {
    fn with_state<R>(&mut self, f: impl FnOnce(&mut HostState) -> R) -> R {
        self.with(|mut access| f(access.get()))
    }
}

impl StoreAccess for &mut HostState {
    fn with_state<R>(&mut self, f: impl FnOnce(&mut HostState) -> R) -> R {
        f(self)
    }
}

/// Returns the context of the current call, if the component is granted `permission`.
fn check_permission(store: &mut impl StoreAccess, permission: Permission<'_>) -> Result<CallContext, wit::Error> {
    store.with_state(|state| {
        let cx = state.context()?.clone();
        state.check(permission)?;
        Ok(cx)
    })
}

/// Returns the context of the current call, if the component is granted `permission`, the call may make changes, and no
/// other host has taken over the turn.
async fn check_change(store: &mut impl StoreAccess, permission: Permission<'_>) -> Result<CallContext, wit::Error> {
    let cx = check_permission(store, permission)?;
    cx.check_writable()?;
    cx.invocation.ensure_turn().await?;
    Ok(cx)
}

/// Waits until the call reads nothing else from the sessions and the memory of the user. The host holds all that a read
/// finds, however little of it the guest gets, so there is one at a time.
async fn begin_read(store: &mut impl StoreAccess) -> OwnedMutexGuard<()> {
    let reads = store.with_state(|state| state.reads.clone());
    reads.lock_owned().await
}

/// Returns the context of the current call.
fn context(store: &mut impl StoreAccess) -> Result<CallContext, wit::Error> {
    store.with_state(|state| state.context().cloned())
}

/// Returns the context and the relay of the custom agent that the guest runs as.
fn agent(store: &mut impl StoreAccess) -> Result<(AgentContext, Arc<SubAgentRelay>), wit::Error> {
    store.with_state(|state| match &state.origin {
        Some(CallOrigin::Agent(cx, relay)) => Ok((cx.clone(), relay.clone())),
        None
        | Some(
            CallOrigin::Describe
            | CallOrigin::Model(_)
            | CallOrigin::Close
            | CallOrigin::Call(_)
            | CallOrigin::Tool(..),
        ) => Err(wit_error(
            "NOT_AN_AGENT",
            "only a custom agent can run other agents; a tool or callback can transfer to one",
        )),
    })
}

/// Reserves memory for bytes that the host holds for the guest, until the returned guard is dropped.
fn reserve(store: &mut impl StoreAccess, bytes: u64) -> Result<MemoryReservation, wit::Error> {
    store
        .with_state(|state| state.usage.reserve(bytes))
        .map_err(|error| wit_error("LIMIT_REACHED", error.for_callers()))
}

/// Reserves memory for a value of the guest: its texts and bytes, and its JSON after parsing.
fn reserve_value(
    store: &mut impl StoreAccess,
    value: &(impl EstimateSize + ParsedSize),
) -> Result<MemoryReservation, wit::Error> {
    reserve(store, value.estimated_size().saturating_add(value.parsed_size()))
}

pub(crate) fn wit_error(code: &str, message: impl Into<String>) -> wit::Error {
    wit::Error { code: code.into(), message: message.into() }
}

impl From<RunError> for wit::Error {
    fn from(error: RunError) -> Self {
        error.to_wit()
    }
}

impl From<StoreError> for wit::Error {
    fn from(error: StoreError) -> Self {
        RunError::Store(error).into()
    }
}

impl From<BadValue> for wit::Error {
    fn from(error: BadValue) -> Self {
        wit_error("BAD_INPUT", error.to_string())
    }
}
