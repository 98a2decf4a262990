//! A loaded component: one revision of one file, compiled, linked and described. Immutable; runs keep it alive.

mod agent;
mod callback;
mod code_executor;
mod examples;
mod exports;
mod functions;
pub(crate) mod hook;
mod instruction;
mod live_model;
mod manifest;
mod manifest_size;
mod model;
mod plugin;
mod required_permissions;
mod settings;
mod summarizer;
mod sync_agent;
mod tool;
mod toolset;

use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{
    CallContext, Callback, CodeExecutor, CustomAgent, ExampleProvider, InstructionProvider, ItemKind, JsonMap, Model,
    Plugin, RunError, Summarizer, Tool, Toolset,
};
use hatchery_engine::toolsets::StaticToolset;
use serde_json::Value;
use wasmtime::ResourcesRequired;

use crate::contract::convert::{BadValue, EstimateSize, ParsedSize, parse_json, truncate_error, wit};
use crate::contract::version::{Contract, OFFERED};
use crate::error::{CallError, LoadError};
use crate::policy::{GrantReport, Grants, RequestedGrants, WasiEnvironment};
use crate::runtime::credentials::CredentialAccess;
use crate::runtime::engine::Engine;
use crate::runtime::http::Egress;
use crate::runtime::limits::{Limit, Limits};
use crate::runtime::store::call_statistics::ComponentUsage;
use crate::runtime::store::memory::MemoryReservation;
use crate::runtime::store::{ActiveCalls, CallOrigin, Instantiate, Sandbox, run_key};
use callback::ComponentCallback;
use exports::{Exports, Profile};
use functions::{FunctionTool, Functions};
pub use hook::Hook;
pub(crate) use instruction::InstructionScope;
use manifest::ComponentManifest;

pub(crate) use manifest::{AgentSpec, DescribedTool};
pub(crate) use model::PREFIX as MODEL_PREFIX;
use required_permissions::required_by_agents;
pub(crate) use required_permissions::{RequiredPermission, required_permissions};
pub use settings::ComponentSettings;

/// The compiled code of a revision.
pub(crate) struct Executable {
    pub(crate) component: wasmtime::component::Component,
    /// The program of a development component.
    pub(crate) program: Option<Bytes>,
    /// Bytes that the core instances of an instance take, besides their memories and tables.
    pub(crate) instance_size: u64,
}

/// A revision of a component that is ready to run.
pub struct Component {
    name: Arc<str>,
    sha256: String,
    contract: Contract,
    requests: Option<RequestedGrants>,
    settings: ComponentSettings,
    sandbox: Sandbox,
    exports: Exports,
    manifest: ComponentManifest,
}

impl Component {
    /// Links compiled code and calls `describe` in an instance that is dropped afterwards.
    ///
    /// # Errors
    /// If a granted resource is missing, an import or export does not match the contract, or `describe` fails or
    /// names an item twice.
    pub(crate) async fn describe(
        engine: Arc<Engine>,
        name: &str,
        sha256: String,
        contract: Contract,
        requests: Option<RequestedGrants>,
        code: &Executable,
        settings: ComponentSettings,
    ) -> Result<Self, LoadError> {
        let failed = |error: wasmtime::Error| {
            let reason = match contract.later_version() {
                Some(later) => format!(
                    "it needs `hatchery:agent@{later}`, but this host offers {OFFERED}; update the host, or rebuild it with an \
                     earlier SDK: {error:#}"
                ),
                None => format!("{error:#}"),
            };
            LoadError::Compile { component: name.into(), reason }
        };
        let pre = engine.linker().instantiate_pre(&code.component).map_err(failed)?;
        let exports = Exports::find(&pre, &contract).map_err(failed)?;
        let sandbox = sandbox(engine, name.into(), Arc::new(pre), code.program.clone(), code.instance_size, &settings)?;
        let manifest = if contract.has_plain_functions() {
            let functions = Functions::find(sandbox.engine.wasm(), &code.component);
            ComponentManifest::try_from(functions.with_descriptions(name, &settings.descriptions))
                .map_err(|reason| LoadError::Functions { component: name.into(), reason })?
        } else {
            let described =
                sandbox.run(CallOrigin::Describe, |store, instance| Box::pin(exports.describe(store, instance))).await;
            let manifest = described.map_err(|error| error.to_string()).and_then(ComponentManifest::try_from);
            manifest.map_err(|reason| LoadError::Describe { component: name.into(), reason })?
        };
        Ok(Self { name: name.into(), sha256, contract, requests, settings, sandbox, exports, manifest })
    }

    /// Returns this revision with other settings, without running its code. Keeps the manifest; if it depends on the
    /// configuration, [`Self::describe_again`] is needed.
    ///
    /// # Errors
    /// If a granted resource is missing.
    pub(crate) fn with_settings(&self, settings: ComponentSettings) -> Result<Self, LoadError> {
        let Sandbox { engine, pre, program, instance_size, .. } = &self.sandbox;
        let (engine, name, pre) = (engine.clone(), self.name.clone(), pre.clone());
        Ok(Self {
            name: self.name.clone(),
            sha256: self.sha256.clone(),
            contract: self.contract.clone(),
            requests: self.requests.clone(),
            sandbox: sandbox(engine, name, pre, program.clone(), *instance_size, &settings)?,
            exports: self.exports.clone(),
            manifest: self.manifest.clone(),
            settings,
        })
    }

    /// Describes this revision again.
    ///
    /// # Errors
    /// Like [`Component::describe`].
    pub(crate) async fn describe_again(&self, settings: ComponentSettings) -> Result<Self, LoadError> {
        let Sandbox { engine, pre, program, instance_size, .. } = &self.sandbox;
        let (component, program, instance_size) = (pre.component().clone(), program.clone(), *instance_size);
        let code = Executable { component, program, instance_size };
        let (sha256, contract, requests) = (self.sha256.clone(), self.contract.clone(), self.requests.clone());
        Self::describe(engine.clone(), &self.name, sha256, contract, requests, &code, settings).await
    }

    /// Returns the name of the file without `.wasm`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the hexadecimal SHA-256 of the file.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns the interfaces that it was built against.
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    pub fn settings(&self) -> &ComponentSettings {
        &self.settings
    }

    /// Compares its requested grants, and those that its agents need, with its grants.
    pub fn grant_report(&self) -> GrantReport {
        self.grant_report_with(&self.settings.grants)
    }

    /// Compares its requested grants with `grants`.
    pub(crate) fn grant_report_with(&self, grants: &Grants) -> GrantReport {
        GrantReport::new(self.requests.as_ref(), &required_by_agents(self), grants)
    }

    /// Returns the limits of its calls.
    pub fn limits(&self) -> &Limits {
        &self.sandbox.limits
    }

    /// Returns the resource usage of its calls.
    pub fn usage(&self) -> ComponentUsage {
        self.sandbox.statistics.usage()
    }

    /// Returns the number of running calls.
    pub fn running_calls(&self) -> usize {
        self.sandbox.active_calls.running()
    }

    /// Returns the number of pooled instances.
    pub fn pooled_instances(&self) -> usize {
        self.sandbox.instance_pool.as_ref().map_or(0, |pool| pool.len())
    }

    /// Drops its pooled instances and stops pooling, because another revision has replaced it.
    pub(crate) fn retire(&self) {
        if let Some(pool) = &self.sandbox.instance_pool {
            pool.close();
        }
    }

    /// Cancels all calls, and later ones.
    pub(crate) fn cancel_calls(&self) {
        self.sandbox.active_calls.cancel_calls();
    }

    /// Returns its items by kind, each kind in the order in which the component lists them. Models are named without
    /// `component:NAME/`. The toolset of all tools is not included.
    pub fn items(&self) -> impl Iterator<Item = (ItemKind, &str)> {
        self.manifest.items()
    }

    /// Returns the names of its items of one kind, as in [`Self::items`].
    pub fn names(&self, kind: ItemKind) -> impl Iterator<Item = &str> {
        self.items().filter(move |(other, _)| *other == kind).map(|(_, name)| name)
    }

    /// Returns the names of its items of one kind. A component with tools is also one toolset, which has its name.
    pub(crate) fn names_with_toolset(&self, kind: ItemKind) -> Box<dyn Iterator<Item = &str> + '_> {
        match kind {
            ItemKind::Toolset => {
                let all_tools = self.names(ItemKind::Tool).next().map(|_| self.name());
                Box::new(all_tools.into_iter().chain(self.names(ItemKind::Toolset)))
            }
            kind => Box::new(self.names(kind)),
        }
    }

    /// Returns true if it exports this item.
    pub(crate) fn exports_item(&self, kind: ItemKind, name: &str) -> bool {
        self.names_with_toolset(kind).any(|item| item == name)
    }

    /// Returns the hooks of a callback.
    pub fn callback_points(&self, name: &str) -> &[Hook] {
        self.manifest.callbacks.iter().find(|callback| callback.name == name).map_or(&[], |callback| &callback.hooks)
    }

    /// Returns the hooks of a plugin.
    pub fn plugin_hooks(&self, name: &str) -> &[Hook] {
        self.manifest.plugins.iter().find(|plugin| plugin.name == name).map_or(&[], |plugin| &plugin.hooks)
    }

    /// Returns a tool by name.
    pub fn tool(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Tool>> {
        self.any_tool(self.manifest.tools.iter().find(|tool| tool.declaration.name == name)?)
    }

    /// Returns all tools as a toolset; `None` if it has none.
    pub fn toolset(self: &Arc<Self>) -> Option<Arc<dyn Toolset>> {
        let tools: Vec<_> = self.manifest.tools.iter().filter_map(|tool| self.any_tool(tool)).collect();
        (!tools.is_empty()).then(|| Arc::new(StaticToolset::new(&*self.name).tools(tools)) as _)
    }

    /// Returns one of its toolsets, whose tools are computed before each model call.
    pub fn named_toolset(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Toolset>> {
        let exports = self.exports.toolsets.clone()?;
        let name = self.manifest.toolsets.iter().find(|exported| *exported == name)?.clone();
        Some(Arc::new(toolset::ComponentToolset { component: self.clone(), exports, name }))
    }

    fn any_tool(self: &Arc<Self>, described: &DescribedTool) -> Option<Arc<dyn Tool>> {
        if let Some(function) = &described.function {
            let (component, declaration) = (self.clone(), described.declaration.clone());
            return Some(Arc::new(FunctionTool { component, declaration, function: function.clone() }));
        }
        Some(Arc::new(tool::ComponentTool {
            component: self.clone(),
            exports: self.exports.tools.clone()?,
            declaration: described.declaration.clone(),
            is_long_running: described.is_long_running,
            requires_confirmation: described.requires_confirmation,
            arguments: None,
        }))
    }

    /// Returns a callback by name.
    pub fn callback(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Callback>> {
        let exports = self.exports.callbacks.clone()?;
        let item = self.manifest.callbacks.iter().find(|callback| callback.name == name)?;
        let (component, hooked) = (self.clone(), item.clone());
        Some(match exports {
            Profile::Async(exports) => Arc::new(ComponentCallback { component, exports, hooked, arguments: None }),
            Profile::Sync(exports) => Arc::new(ComponentCallback { component, exports, hooked, arguments: None }),
        })
    }

    /// Returns a plugin by name, for use with arguments.
    pub fn plugin(self: &Arc<Self>, name: &str, args: JsonMap) -> Option<Arc<dyn Plugin>> {
        let exports = self.exports.plugins.clone()?;
        let item = self.manifest.plugins.iter().find(|plugin| plugin.name == name)?;
        let arguments = (!args.is_empty()).then(|| Arc::new(args));
        let (component, hooked) = (self.clone(), item.clone());
        Some(match exports {
            Profile::Async(exports) => Arc::new(ComponentCallback { component, exports, hooked, arguments }),
            Profile::Sync(exports) => Arc::new(ComponentCallback { component, exports, hooked, arguments }),
        })
    }

    /// Returns a code executor by name.
    pub fn code_executor(self: &Arc<Self>, name: &str) -> Option<Arc<dyn CodeExecutor>> {
        let exports = self.exports.code_executors.clone()?;
        let name = self.manifest.code_executors.iter().find(|offered| *offered == name)?.clone();
        Some(Arc::new(code_executor::ComponentCodeExecutor { component: self.clone(), exports, name }))
    }

    /// Returns a summarizer by name.
    pub fn summarizer(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Summarizer>> {
        let exports = self.exports.summarizers.clone()?;
        let name = self.manifest.summarizers.iter().find(|offered| *offered == name)?.clone();
        Some(Arc::new(summarizer::ComponentSummarizer { component: self.clone(), exports, name }))
    }

    /// Returns an example provider.
    pub fn examples(self: &Arc<Self>, name: &str) -> Option<Arc<dyn ExampleProvider>> {
        let exports = self.exports.examples.clone()?;
        let name = self.manifest.examples.iter().find(|offered| *offered == name)?.clone();
        Some(Arc::new(examples::ComponentExamples { component: self.clone(), exports, name }))
    }

    /// Returns a model by name.
    pub fn model(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Model>> {
        let offers = |names: &[String]| names.iter().any(|offered| offered == name);
        let exports = self.exports.models.clone().filter(|_| offers(&self.manifest.models));
        let live = self.exports.live_models.clone().filter(|_| offers(&self.manifest.live_models));
        let is_offered = exports.is_some() || live.is_some();
        is_offered
            .then(|| Arc::new(model::ComponentModel { component: self.clone(), exports, live, name: name.into() }) as _)
    }

    pub(crate) fn tools(&self) -> &[DescribedTool] {
        &self.manifest.tools
    }

    pub(crate) fn agents(&self) -> &[AgentSpec] {
        &self.manifest.agents
    }

    /// Returns the code of a custom agent.
    pub(crate) fn custom_agent(self: &Arc<Self>, name: &str) -> Option<Arc<dyn CustomAgent>> {
        let exports = self.exports.agents.clone()?;
        Some(Arc::new(agent::ComponentAgent { component: self.clone(), exports, name: name.into() }))
    }

    /// Returns the code of an agent's instruction, or of its global one.
    pub(crate) fn instruction(
        self: &Arc<Self>,
        agent: &str,
        scope: InstructionScope,
    ) -> Option<Arc<dyn InstructionProvider>> {
        let exports = self.exports.agents.clone()?;
        let component = self.clone();
        Some(Arc::new(instruction::ComponentInstruction { component, exports, agent: agent.into(), scope }))
    }

    /// Converts the result of a call of an item.
    fn convert_result<W: EstimateSize + ParsedSize, T>(
        &self,
        cx: &CallContext,
        kind: ItemKind,
        item: &str,
        result: Result<Result<W, wit::Error>, CallError>,
        convert: impl FnOnce(W) -> Result<T, BadValue>,
    ) -> Result<T, RunError> {
        let failed = |error: CallError| error.into_item_error(&self.name, kind, item);
        match result.map_err(failed)? {
            Ok(answer) => self.convert(cx, answer, convert).map_err(failed),
            Err(error) => {
                let (name, wit::Error { code, message }) = (format!("{}/{item}", self.name), truncate_error(error));
                Err(RunError::Extension { kind, name, code: code.into(), message })
            }
        }
    }

    /// Checks the size of an answer and converts it. Counts the memory that its JSON takes, which can be many times its
    /// text.
    fn convert<W: EstimateSize + ParsedSize, T>(
        &self,
        cx: &CallContext,
        answer: W,
        convert: impl FnOnce(W) -> Result<T, BadValue>,
    ) -> Result<T, CallError> {
        self.check_size(&answer)?;
        let _reservation = self.reserve_parsed(Some(run_key(cx)), answer.parsed_size())?;
        convert(answer).map_err(|error| CallError::Contract(error.to_string()))
    }

    /// Reserves memory for the JSON of an answer, which takes `bytes` after parsing, until the returned guard is
    /// dropped. `run` is the key of the run that it counts to. `None` if there is no JSON.
    ///
    /// # Errors
    /// If there is no memory for it.
    fn reserve_parsed(&self, run: Option<usize>, bytes: u64) -> Result<Option<MemoryReservation>, CallError> {
        if bytes == 0 {
            return Ok(None);
        }
        Ok(Some(self.sandbox.reserve_for(run, bytes)?))
    }

    /// Parses the result of a tool.
    fn parse_result(&self, json: String, cx: &CallContext) -> Result<Value, CallError> {
        self.convert(cx, json, |json| parse_json(&json, "the result"))
    }

    /// Fails if an answer exceeds `limits.result`.
    fn check_size(&self, answer: &impl EstimateSize) -> Result<(), CallError> {
        if answer.estimated_size() > self.sandbox.limits.result {
            return Err(self.sandbox.limits.exceeded(Limit::Result).into());
        }
        Ok(())
    }
}

/// Returns the bytes of all memories of a new instance.
fn initial_memory(code: &wasmtime::component::Component) -> u64 {
    /// Other page sizes need a WebAssembly feature that is not enabled.
    const PAGE: u64 = 64 << 10;
    // An upper bound: the largest memory times their number.
    let pages = |it: ResourcesRequired| u64::from(it.num_memories) * it.max_initial_memory_size.unwrap_or(0);
    code.resources_required().map_or(0, pages).saturating_mul(PAGE)
}

/// Creates the sandbox of a component.
fn sandbox(
    engine: Arc<Engine>,
    name: Arc<str>,
    pre: Arc<dyn Instantiate>,
    program: Option<Bytes>,
    instance_size: u64,
    settings: &ComponentSettings,
) -> Result<Sandbox, LoadError> {
    let wasi_environment = WasiEnvironment::new(&name, &settings.grants)?;
    let egress = Egress::new(name.clone(), settings.grants.clone(), settings.limits.clone(), settings.recorded.clone())
        .map_err(|reason| LoadError::Grants { component: name.to_string(), reason })?;
    let credentials = CredentialAccess::new(name.clone(), &settings.grants, settings.recorded.is_some());
    Ok(Sandbox {
        instance_pool: settings.warm.clone().map(|pool| engine.instance_pool(pool)),
        active_calls: ActiveCalls::default(),
        statistics: Arc::default(),
        permits: engine.permits_for(pre.component()),
        initial_memory: initial_memory(pre.component()),
        instance_size,
        engine,
        pre,
        component: name,
        config: Arc::new(settings.config.clone()),
        program,
        limits: settings.limits.clone(),
        grants: settings.grants.clone(),
        egress: Arc::new(egress),
        credentials: Arc::new(credentials),
        wasi_environment,
    })
}

#[cfg(test)]
pub(crate) mod tests;
