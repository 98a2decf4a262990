//! Indices of the interfaces that a component exports.

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use super::manifest::RawManifest;
use crate::contract::bindings::exports::hatchery::agent::{
    guest_agents, guest_callbacks, guest_code_executors, guest_examples, guest_live_models, guest_models,
    guest_plugins, guest_summarizers, guest_tools, guest_toolsets, sync_guest_agents, sync_guest_callbacks,
    sync_guest_code_executors, sync_guest_examples, sync_guest_live_models, sync_guest_models, sync_guest_plugins,
    sync_guest_summarizers, sync_guest_tools, sync_guest_toolsets,
};
use crate::contract::version::Contract;
use crate::runtime::store::HostState;

/// The indices of an interface, by the profile in which the component exports it.
#[derive(Clone)]
pub(super) enum Profile<A, S> {
    Async(A),
    Sync(S),
}

pub(super) type AgentExports = Profile<guest_agents::GuestIndices, sync_guest_agents::GuestIndices>;
pub(super) type ToolExports = Profile<guest_tools::GuestIndices, sync_guest_tools::GuestIndices>;
pub(super) type ToolsetExports = Profile<guest_toolsets::GuestIndices, sync_guest_toolsets::GuestIndices>;
pub(super) type CallbackExports = Profile<guest_callbacks::GuestIndices, sync_guest_callbacks::GuestIndices>;
pub(super) type PluginExports = Profile<guest_plugins::GuestIndices, sync_guest_plugins::GuestIndices>;
pub(super) type CodeExecutorExports =
    Profile<guest_code_executors::GuestIndices, sync_guest_code_executors::GuestIndices>;
pub(super) type SummarizerExports = Profile<guest_summarizers::GuestIndices, sync_guest_summarizers::GuestIndices>;
pub(super) type ExampleExports = Profile<guest_examples::GuestIndices, sync_guest_examples::GuestIndices>;
pub(super) type ModelExports = Profile<guest_models::GuestIndices, sync_guest_models::GuestIndices>;
pub(super) type LiveModelExports = Profile<guest_live_models::GuestIndices, sync_guest_live_models::GuestIndices>;

/// The indices of each interface; `None` if the component does not export it.
#[derive(Clone)]
pub(super) struct Exports {
    pub(super) agents: Option<AgentExports>,
    pub(super) tools: Option<ToolExports>,
    pub(super) toolsets: Option<ToolsetExports>,
    pub(super) callbacks: Option<CallbackExports>,
    pub(super) plugins: Option<PluginExports>,
    pub(super) code_executors: Option<CodeExecutorExports>,
    pub(super) summarizers: Option<SummarizerExports>,
    pub(super) examples: Option<ExampleExports>,
    pub(super) models: Option<ModelExports>,
    pub(super) live_models: Option<LiveModelExports>,
}

/// Calls a function of the interface in the profile in which the component exports it. Its generated types share no
/// trait.
macro_rules! call_guest {
    ($component:expr, $cx:expr, $exports:expr, $function:ident($($arg:ident),*)) => {
        match &$exports {
            $crate::contract::component::exports::Profile::Async(exports) => {
                let call = $component.sandbox.call($cx, exports.loader(), |accessor, guest| {
                    Box::pin(async move { guest.$function(accessor, $($arg),*).await })
                });
                call.await
            }
            $crate::contract::component::exports::Profile::Sync(exports) => {
                let call = $component.sandbox.call($cx, exports.loader(), |accessor, guest| {
                    Box::pin(async move { guest.$function(accessor, $($arg),*).await })
                });
                call.await
            }
        }
    };
}

pub(super) use call_guest;

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
    sync_guest_code_executors,
    sync_guest_examples,
    sync_guest_plugins,
    sync_guest_summarizers,
    sync_guest_tools,
    sync_guest_toolsets
);

impl Exports {
    /// Finds the functions of the interfaces that the contract lists.
    pub(super) fn find(pre: &InstancePre<HostState>, contract: &Contract) -> wasmtime::Result<Self> {
        let has = |interface: &str| contract.exports_interface(interface);
        // [`Contract::read`] refuses components that export both.
        macro_rules! find {
            ($async_module:ident, $sync_module:ident, $name:literal) => {
                if has($name) {
                    Some(Profile::Async($async_module::GuestIndices::new(pre)?))
                } else if has(concat!("sync-", $name)) {
                    Some(Profile::Sync($sync_module::GuestIndices::new(pre)?))
                } else {
                    None
                }
            };
        }
        Ok(Self {
            agents: find!(guest_agents, sync_guest_agents, "guest-agents"),
            tools: find!(guest_tools, sync_guest_tools, "guest-tools"),
            toolsets: find!(guest_toolsets, sync_guest_toolsets, "guest-toolsets"),
            callbacks: find!(guest_callbacks, sync_guest_callbacks, "guest-callbacks"),
            plugins: find!(guest_plugins, sync_guest_plugins, "guest-plugins"),
            code_executors: find!(guest_code_executors, sync_guest_code_executors, "guest-code-executors"),
            summarizers: find!(guest_summarizers, sync_guest_summarizers, "guest-summarizers"),
            examples: find!(guest_examples, sync_guest_examples, "guest-examples"),
            models: find!(guest_models, sync_guest_models, "guest-models"),
            live_models: find!(guest_live_models, sync_guest_live_models, "guest-live-models"),
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
                    Some(Profile::Async(indices)) => {
                        indices.load(&mut store, &instance)?.call_describe(&mut store).await?
                    }
                    Some(Profile::Sync(indices)) => {
                        indices.load(&mut store, &instance)?.call_describe(&mut store).await?
                    }
                    None => Vec::new(),
                }
            };
        }
        Ok(RawManifest {
            agents: describe!(agents),
            tools: describe!(tools),
            toolsets: describe!(toolsets),
            callbacks: describe!(callbacks),
            plugins: describe!(plugins),
            code_executors: describe!(code_executors),
            summarizers: describe!(summarizers),
            examples: describe!(examples),
            models: describe!(models),
            live_models: describe!(live_models),
        })
    }
}
