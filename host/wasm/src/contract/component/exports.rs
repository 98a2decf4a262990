//! Indices of the interfaces that a component exports.

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use super::manifest::RawManifest;
use crate::contract::bindings::exports::hatchery::agent::{
    guest_agents, guest_callbacks, guest_code_executors, guest_examples, guest_models, guest_plugins,
    guest_summarizers, guest_tools, guest_toolsets, sync_guest_agents, sync_guest_callbacks, sync_guest_tools,
};
use crate::contract::version::Contract;
use crate::runtime::store::HostState;

#[derive(Clone)]
pub(super) enum AgentExports {
    Async(guest_agents::GuestIndices),
    Sync(sync_guest_agents::GuestIndices),
}

#[derive(Clone)]
pub(super) enum ToolExports {
    Async(guest_tools::GuestIndices),
    Sync(sync_guest_tools::GuestIndices),
}

#[derive(Clone)]
pub(super) enum CallbackExports {
    Async(guest_callbacks::GuestIndices),
    Sync(sync_guest_callbacks::GuestIndices),
}

/// The indices of each interface; `None` if the component does not export it.
#[derive(Clone)]
pub(super) struct Exports {
    pub(super) agents: Option<AgentExports>,
    pub(super) tools: Option<ToolExports>,
    pub(super) toolsets: Option<guest_toolsets::GuestIndices>,
    pub(super) callbacks: Option<CallbackExports>,
    pub(super) plugins: Option<guest_plugins::GuestIndices>,
    pub(super) code_executors: Option<guest_code_executors::GuestIndices>,
    pub(super) summarizers: Option<guest_summarizers::GuestIndices>,
    pub(super) examples: Option<guest_examples::GuestIndices>,
    pub(super) models: Option<guest_models::GuestIndices>,
}

/// The functions of one interface, found in the compiled component.
pub(super) trait Indices: Sync {
    /// The functions in an instance.
    type Guest: Send;

    /// Finds the functions in an instance. Passed to [`Sandbox::call`](crate::runtime::store::Sandbox::call) by
    /// [`Indices::loader`].
    fn load_guest(&self, store: &mut Store<HostState>, instance: &Instance) -> wasmtime::Result<Self::Guest>;

    /// Returns [`Self::load_guest`] as a closure.
    fn loader(&self) -> impl FnOnce(&mut Store<HostState>, &Instance) -> wasmtime::Result<Self::Guest> + Send {
        |store, instance| self.load_guest(store, instance)
    }
}

macro_rules! indices {
    ($($module:ident),+) => {
        $(impl Indices for $module::GuestIndices {
            type Guest = $module::Guest;

            fn load_guest(&self, store: &mut Store<HostState>, instance: &Instance) -> wasmtime::Result<Self::Guest> {
                self.load(store, instance)
            }
        })+
    };
}

indices!(
    guest_agents,
    guest_callbacks,
    guest_code_executors,
    guest_examples,
    guest_plugins,
    guest_summarizers,
    guest_tools,
    guest_toolsets,
    sync_guest_agents,
    sync_guest_callbacks,
    sync_guest_tools
);

impl Exports {
    pub(super) fn of(pre: &InstancePre<HostState>, contract: &Contract) -> wasmtime::Result<Self> {
        let has = |interface: &str| contract.exports_interface(interface);
        // [`Contract::read`] refuses components that export both.
        macro_rules! either {
            ($kind:ident, $async_module:ident, $sync_module:ident, $name:literal) => {
                if has($name) {
                    Some($kind::Async($async_module::GuestIndices::new(pre)?))
                } else if has(concat!("sync-", $name)) {
                    Some($kind::Sync($sync_module::GuestIndices::new(pre)?))
                } else {
                    None
                }
            };
        }
        Ok(Self {
            agents: either!(AgentExports, guest_agents, sync_guest_agents, "guest-agents"),
            tools: either!(ToolExports, guest_tools, sync_guest_tools, "guest-tools"),
            toolsets: has("guest-toolsets").then(|| guest_toolsets::GuestIndices::new(pre)).transpose()?,
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

    /// Calls `describe` of each interface.
    pub(super) async fn describe(
        &self,
        mut store: Store<HostState>,
        instance: Instance,
    ) -> wasmtime::Result<RawManifest> {
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
        Ok(RawManifest {
            agents: describe_either!(agents, AgentExports),
            tools: describe_either!(tools, ToolExports),
            toolsets: describe!(toolsets),
            callbacks: describe_either!(callbacks, CallbackExports),
            plugins: describe!(plugins),
            code_executors: describe!(code_executors),
            summarizers: describe!(summarizers),
            examples: describe!(examples),
            models: describe!(models),
        })
    }
}
