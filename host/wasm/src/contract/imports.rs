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
mod sync;
mod tools;

use hatchery_core::{AgentContext, CallContext, RunError, StoreError};
use std::sync::Arc;
use wasmtime::component::{Accessor, HasSelf};

use crate::contract::convert::{BadValue, ToWit, wit};
use crate::contract::relay::Relay;
use crate::policy::Permission;
use crate::runtime::store::memory::Held;
use crate::runtime::store::{Caller, HostState};

pub use model::Answer;

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
    fn check(&self, permission: Permission<'_>) -> Result<(), wit::Error> {
        self.grants.check(&self.component, permission).map_err(|denial| denial.report(&self.output))
    }
}

/// The store's data, from an asynchronous import or from a plain one: what a capability does is the same for both.
trait Reach: Send {
    fn reach<R>(&mut self, look: impl FnOnce(&mut HostState) -> R) -> R;
}

impl<T> Reach for &Access<T> {
    fn reach<R>(&mut self, look: impl FnOnce(&mut HostState) -> R) -> R {
        self.with(|mut access| look(access.get()))
    }
}

impl Reach for &mut HostState {
    fn reach<R>(&mut self, look: impl FnOnce(&mut HostState) -> R) -> R {
        look(self)
    }
}

/// The call that the guest runs for, if the component may do this.
fn allowed(store: &mut impl Reach, permission: Permission<'_>) -> Result<CallContext, wit::Error> {
    store.reach(|state| {
        let cx = state.context()?.clone();
        state.check(permission)?;
        Ok(cx)
    })
}

/// The call that the guest runs for.
fn context(store: &mut impl Reach) -> Result<CallContext, wit::Error> {
    store.reach(|state| state.context().cloned())
}

/// The run of a custom agent that the guest is.
fn agent(store: &mut impl Reach) -> Result<(AgentContext, Arc<Relay>), wit::Error> {
    store.reach(|state| match &state.caller {
        Caller::Agent(cx, relay) => Ok((cx.clone(), relay.clone())),
        Caller::Loader | Caller::Model | Caller::Call(_) => Err(fault(
            "NOT_AN_AGENT",
            "only a custom agent can run other agents; a tool or callback can transfer to one",
        )),
    })
}

/// Counts bytes that the host holds for the guest to the instance's memory, until the returned guard is dropped.
fn hold(store: &mut impl Reach, bytes: u64) -> Result<Held, wit::Error> {
    store.reach(|state| state.tally.hold(bytes)).map_err(|error| fault("LIMIT_REACHED", error.to_string()))
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
