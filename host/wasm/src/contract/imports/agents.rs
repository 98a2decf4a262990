//! `agents`: sub-agents, transfer and escalation.

use wasmtime::component::{HasSelf, StreamReader};

use super::{Access, StoreAccess, agent, reserve, wit_error};
use crate::contract::bindings::hatchery::agent::agents::{Host, HostWithStore};
use crate::contract::convert::wit;
use crate::contract::stream;
use crate::contract::sub_agent_relay::SubAgent;
use crate::runtime::store::HostState;
use crate::runtime::store::nesting::MAX_CONCURRENT_CALLS;

impl Host for HostState {
    fn transfer(&mut self, agent: String) -> Result<(), wit::Error> {
        Ok(self.writable()?.transfer_to(&agent)?)
    }

    fn escalate(&mut self) -> Result<(), wit::Error> {
        self.writable()?.actions().escalate = Some(true);
        Ok(())
    }

    fn end_invocation(&mut self) -> Result<(), wit::Error> {
        self.writable()?.actions().end_invocation = Some(true);
        Ok(())
    }

    fn skip_summarization(&mut self) -> Result<(), wit::Error> {
        self.writable()?.actions().skip_summarization = Some(true);
        Ok(())
    }
}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn run(accessor: &Access<T>, name: String) -> Result<StreamReader<wit::Event>, wit::Error> {
        let events = run(accessor, name).await?;
        stream::open(accessor, events)
    }
}

/// Starts a sub-agent of the custom agent that calls.
pub(super) async fn run(mut store: impl StoreAccess, name: String) -> Result<SubAgent, wit::Error> {
    let (cx, relay) = agent(&mut store)?;
    let _reservation = reserve(&mut store, name.len() as u64)?;
    let (grants, nesting) = store.with_state(|state| (state.grants.clone(), state.nesting.clone()));
    let permit = nesting.try_acquire();
    let permit = permit.ok_or_else(|| {
        wit_error(
            "LIMIT_REACHED",
            format!("agent `{name}` is not run: {MAX_CONCURRENT_CALLS} calls run already; wait for some"),
        )
    })?;
    Ok(relay.start(&cx, name, grants, nesting, permit).await?)
}
