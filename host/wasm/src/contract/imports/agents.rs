//! `agents`: run sub agents, hand over, end loops.

use wasmtime::component::{HasSelf, StreamReader};

use super::{Access, Reach, agent, fault};
use crate::contract::bindings::hatchery::agent::agents::{Host, HostWithStore};
use crate::contract::convert::wit;
use crate::contract::relay::SubAgent;
use crate::runtime::store::HostState;
use crate::runtime::store::nesting::MOST_AT_ONCE;

impl Host for HostState {
    fn transfer(&mut self, agent: String) -> Result<(), wit::Error> {
        self.context()?.actions().transfer_to_agent = Some(agent);
        Ok(())
    }

    fn escalate(&mut self) -> Result<(), wit::Error> {
        self.context()?.actions().escalate = Some(true);
        Ok(())
    }

    fn skip_summarization(&mut self) -> Result<(), wit::Error> {
        self.context()?.actions().skip_summarization = Some(true);
        Ok(())
    }
}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn run(accessor: &Access<T>, name: String) -> Result<StreamReader<wit::Event>, wit::Error> {
        let events = run(accessor, name).await?;
        accessor
            .with(|access| StreamReader::new(access, events))
            .map_err(|error| fault("LIMIT_REACHED", format!("no further stream can be opened: {error:#}")))
    }
}

/// Starts an agent below the custom agent that the guest is.
pub(super) async fn run(mut store: impl Reach, name: String) -> Result<SubAgent, wit::Error> {
    let (cx, relay) = agent(&mut store)?;
    let (grants, nesting) = store.reach(|state| (state.grants.clone(), state.nesting.clone()));
    let place = nesting.place();
    let place = place.ok_or_else(|| {
        fault("LIMIT_REACHED", format!("agent `{name}` is not run: {MOST_AT_ONCE} calls run already; wait for some"))
    })?;
    Ok(relay.start(&cx, name, grants, nesting, place).await?)
}
