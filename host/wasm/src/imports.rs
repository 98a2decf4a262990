//! What the host offers to components: one file per interface of `wit/imports.wit`.
//!
//! Each import returns a WIT result, never a Rust error: whatever a guest asks for, it gets an answer and its store stays usable.
//! Calls that may run other components (sub agents, tools) run as tasks of their own, because a store must not be polled inside another.

mod agents;
mod artifacts;
mod config;
mod log;
mod memory;
mod model;
mod session;
mod tools;

use hatchery_core::{AgentContext, CallContext, RunError, StoreError};
use std::sync::Arc;
use wasmtime::component::{Accessor, HasSelf};

use crate::convert::{BadValue, ToWit, wit};
use crate::policy::Want;
use crate::relay::Relay;
use crate::store::{Caller, HostState};

/// How asynchronous imports reach the store's data.
type Access<T> = Accessor<T, HasSelf<HostState>>;

impl wit::Host for HostState {}

impl HostState {
    /// The call that the guest runs for.
    fn context(&self) -> Result<&CallContext, wit::Error> {
        match &self.caller {
            Caller::Loader => Err(fault("NO_SESSION", "there is no session while a component describes itself")),
            Caller::Model => Err(fault("NO_SESSION", "there is no session while a component's model is asked")),
            Caller::Call(cx) => Ok(cx),
            Caller::Agent(cx, _) => Ok(&cx.call),
        }
    }
}

impl HostState {
    /// Whether the component may do this.
    fn check(&self, want: Want<'_>) -> Result<(), wit::Error> {
        self.grants.check(&self.component, want).map_err(|denial| denial.report(&self.output))
    }
}

/// The same, from an asynchronous import, with the call that the guest runs for.
fn allowed<T>(accessor: &Access<T>, want: Want<'_>) -> Result<CallContext, wit::Error> {
    accessor.with(|mut access| {
        let state = access.get();
        let cx = state.context()?.clone();
        state.check(want)?;
        Ok(cx)
    })
}

/// The call that the guest runs for, from an asynchronous import.
fn context<T>(accessor: &Access<T>) -> Result<CallContext, wit::Error> {
    accessor.with(|mut access| access.get().context().cloned())
}

/// The run of a custom agent that the guest is.
fn agent<T>(accessor: &Access<T>) -> Result<(AgentContext, Arc<Relay>), wit::Error> {
    accessor.with(|mut access| match &access.get().caller {
        Caller::Agent(cx, relay) => Ok((cx.clone(), relay.clone())),
        Caller::Loader | Caller::Model | Caller::Call(_) => Err(fault(
            "NOT_AN_AGENT",
            "only a custom agent can run other agents; a tool or callback can transfer to one",
        )),
    })
}

fn fault(code: &str, message: impl Into<String>) -> wit::Error {
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
        fault("BAD_INPUT", error.to_string())
    }
}
