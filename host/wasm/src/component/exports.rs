//! The interfaces that a component exports.

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use super::offer::Described;
use crate::bindings::exports::hatchery::agent::{
    guest_agents, guest_callbacks, guest_code_executors, guest_examples, guest_models, guest_plugins,
    guest_summarizers, guest_tools,
};
use crate::store::HostState;
use crate::version::Contract;

/// Where the functions of each interface are; nothing for those that the component does not have.
pub(super) struct Exports {
    pub(super) agents: Option<guest_agents::GuestIndices>,
    pub(super) tools: Option<guest_tools::GuestIndices>,
    pub(super) callbacks: Option<guest_callbacks::GuestIndices>,
    pub(super) plugins: Option<guest_plugins::GuestIndices>,
    pub(super) code_executors: Option<guest_code_executors::GuestIndices>,
    pub(super) summarizers: Option<guest_summarizers::GuestIndices>,
    pub(super) examples: Option<guest_examples::GuestIndices>,
    pub(super) models: Option<guest_models::GuestIndices>,
}

impl Exports {
    pub(super) fn of(pre: &InstancePre<HostState>, contract: &Contract) -> wasmtime::Result<Self> {
        let has = |interface: &str| contract.offers(interface);
        Ok(Self {
            agents: has("guest-agents").then(|| guest_agents::GuestIndices::new(pre)).transpose()?,
            tools: has("guest-tools").then(|| guest_tools::GuestIndices::new(pre)).transpose()?,
            callbacks: has("guest-callbacks").then(|| guest_callbacks::GuestIndices::new(pre)).transpose()?,
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
        Ok(Described {
            agents: describe!(agents),
            tools: describe!(tools),
            callbacks: describe!(callbacks),
            plugins: describe!(plugins),
            code_executors: describe!(code_executors),
            summarizers: describe!(summarizers),
            examples: describe!(examples),
            models: describe!(models),
        })
    }
}
