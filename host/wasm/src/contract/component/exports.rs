//! The interfaces that a component exports.

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use super::offer::Described;
use crate::contract::bindings::exports::hatchery::agent::{
    guest_agents, guest_callbacks, guest_code_executors, guest_examples, guest_models, guest_plugins,
    guest_summarizers, guest_tools, sync_guest_agents, sync_guest_callbacks, sync_guest_tools,
};
use crate::contract::version::Contract;
use crate::runtime::store::HostState;

/// Where the functions of agents are.
#[derive(Clone)]
pub(super) enum AgentExports {
    Async(guest_agents::GuestIndices),
    Sync(sync_guest_agents::GuestIndices),
}

/// Where the functions of tools are.
#[derive(Clone)]
pub(super) enum ToolExports {
    Async(guest_tools::GuestIndices),
    Sync(sync_guest_tools::GuestIndices),
}

/// Where the functions of callbacks are.
#[derive(Clone)]
pub(super) enum CallbackExports {
    Async(guest_callbacks::GuestIndices),
    Sync(sync_guest_callbacks::GuestIndices),
}

/// Where the functions of each interface are; nothing for those that the component does not have.
#[derive(Clone)]
pub(super) struct Exports {
    pub(super) agents: Option<AgentExports>,
    pub(super) tools: Option<ToolExports>,
    pub(super) callbacks: Option<CallbackExports>,
    pub(super) plugins: Option<guest_plugins::GuestIndices>,
    pub(super) code_executors: Option<guest_code_executors::GuestIndices>,
    pub(super) summarizers: Option<guest_summarizers::GuestIndices>,
    pub(super) examples: Option<guest_examples::GuestIndices>,
    pub(super) models: Option<guest_models::GuestIndices>,
}

impl Exports {
    pub(super) fn of(pre: &InstancePre<HostState>, contract: &Contract) -> wasmtime::Result<Self> {
        let has = |interface: &str| contract.offers(interface);
        // The contract was read before: there are never both.
        macro_rules! either {
            ($kind:ident, $asynchronous:ident, $plain:ident, $name:literal) => {
                if has($name) {
                    Some($kind::Async($asynchronous::GuestIndices::new(pre)?))
                } else if has(concat!("sync-", $name)) {
                    Some($kind::Sync($plain::GuestIndices::new(pre)?))
                } else {
                    None
                }
            };
        }
        Ok(Self {
            agents: either!(AgentExports, guest_agents, sync_guest_agents, "guest-agents"),
            tools: either!(ToolExports, guest_tools, sync_guest_tools, "guest-tools"),
            callbacks: either!(CallbackExports, guest_callbacks, sync_guest_callbacks, "guest-callbacks"),
            plugins: has("guest-plugins").then(|| guest_plugins::GuestIndices::new(pre)).transpose()?,
            code_executors: has("guest-code-executors")
                .then(|| guest_code_executors::GuestIndices::new(pre))
                .transpose()?,
            summarizers: has("guest-summarizers").then(|| guest_summarizers::GuestIndices::new(pre)).transpose()?,
            examples: has("guest-examples").then(|| guest_examples::GuestIndices::new(pre)).transpose()?,
            models: has("guest-models").then(|| guest_models::GuestIndices::new(pre)).transpose()?,
        })
    }

    /// Calls each `describe` that there is.
    pub(super) async fn describe(
        &self,
        mut store: Store<HostState>,
        instance: Instance,
    ) -> wasmtime::Result<Described> {
        macro_rules! describe {
            ($interface:ident) => {
                match &self.$interface {
                    Some(indices) => indices.load(&mut store, &instance)?.call_describe(&mut store).await?,
                    None => Vec::new(),
                }
            };
        }
        macro_rules! describe_either {
            ($interface:ident, $kind:ident) => {
                match &self.$interface {
                    Some($kind::Async(indices)) => {
                        indices.load(&mut store, &instance)?.call_describe(&mut store).await?
                    }
                    Some($kind::Sync(indices)) => {
                        indices.load(&mut store, &instance)?.call_describe(&mut store).await?
                    }
                    None => Vec::new(),
                }
            };
        }
        Ok(Described {
            agents: describe_either!(agents, AgentExports),
            tools: describe_either!(tools, ToolExports),
            callbacks: describe_either!(callbacks, CallbackExports),
            plugins: describe!(plugins),
            code_executors: describe!(code_executors),
            summarizers: describe!(summarizers),
            examples: describe!(examples),
            models: describe!(models),
        })
    }
}
