//! A loaded component: one revision of one file, compiled, linked and described. Immutable; whoever runs it holds it.

mod agent;
mod callback;
mod code_executor;
mod described_size;
mod examples;
mod exports;
mod functions;
pub(crate) mod hook;
mod instruction;
mod model;
mod offer;
mod plugin;
mod summarizer;
mod sync_agent;
mod tool;

use std::sync::Arc;

use hatchery_core::{
    Callback, CodeExecutor, CustomAgent, ExampleProvider, InstructionProvider, ItemKind, Model, Plugin, RunError,
    Summarizer, Tool, Toolset,
};
use wasmtime::ResourcesRequired;
use wasmtime::component::InstancePre;

use crate::catalog::names::described;
use crate::catalog::settings::ComponentSettings;
use crate::contract::convert::{BadValue, Weigh, bounded, wit};
use crate::contract::version::Contract;
use crate::error::{CallError, LoadError};
use crate::policy::{GrantReport, Grants, RequestedGrants, WasiEnvironment};
use crate::runtime::engine::Engine;
use crate::runtime::http::Egress;
use crate::runtime::limits::{Limit, Limits};
use crate::runtime::store::{Caller, HostState, Revision, Sandbox};
use callback::ComponentCallback;
use exports::{CallbackExports, Exports};
use functions::{FunctionTool, Functions};
pub use hook::Hook;
use offer::Offer;

pub(crate) use model::PREFIX as MODEL_PREFIX;
pub(crate) use offer::{AgentSpec, DescribedTool};

/// A component, ready to run.
pub struct Component {
    name: Arc<str>,
    sha256: String,
    contract: Contract,
    requests: Option<RequestedGrants>,
    settings: ComponentSettings,
    sandbox: Sandbox,
    exports: Exports,
    offer: Offer,
}

impl Component {
    /// Links compiled code and asks it what it offers, in a throw-away instance.
    ///
    /// # Errors
    /// When something that it is granted is not there, an import or export does not fit the contract, or `describe` fails or names something twice.
    pub(crate) async fn describe(
        engine: Arc<Engine>,
        name: &str,
        sha256: String,
        contract: Contract,
        requests: Option<RequestedGrants>,
        code: &wasmtime::component::Component,
        settings: ComponentSettings,
    ) -> Result<Self, LoadError> {
        let failed =
            |error: wasmtime::Error| LoadError::Compile { component: name.into(), reason: format!("{error:#}") };
        let pre = engine.linker().instantiate_pre(code).map_err(failed)?;
        let exports = Exports::of(&pre, &contract).map_err(failed)?;
        let sandbox = sandbox(engine, name.into(), pre, &settings)?;
        let offer = if contract.is_plain() {
            Offer::try_from(Functions::of(sandbox.engine.wasm(), code))
        } else {
            let described = sandbox.run(Caller::Loader, |store, instance| exports.describe(store, instance)).await;
            described.map_err(|error| error.to_string()).and_then(Offer::try_from)
        };
        let offer = offer.map_err(|reason| LoadError::Describe { component: name.into(), reason })?;
        Ok(Self { name: name.into(), sha256, contract, requests, settings, sandbox, exports, offer })
    }

    /// The same revision with other settings, without running any of its code. It offers what it described before, which may depend on its
    /// configuration: then it has to be described again.
    ///
    /// # Errors
    /// When something that it is granted is not there.
    pub(crate) fn with_settings(&self, settings: ComponentSettings) -> Result<Self, LoadError> {
        let Sandbox { engine, pre, .. } = &self.sandbox;
        Ok(Self {
            name: self.name.clone(),
            sha256: self.sha256.clone(),
            contract: self.contract.clone(),
            requests: self.requests.clone(),
            sandbox: sandbox(engine.clone(), self.name.clone(), pre.clone(), &settings)?,
            exports: self.exports.clone(),
            offer: self.offer.clone(),
            settings,
        })
    }

    /// Asks the same revision again what it offers, as with [`Component::describe`].
    ///
    /// # Errors
    /// As [`Component::describe`].
    pub(crate) async fn describe_again(&self, settings: ComponentSettings) -> Result<Self, LoadError> {
        let Sandbox { engine, pre, .. } = &self.sandbox;
        let (sha256, contract, requests) = (self.sha256.clone(), self.contract.clone(), self.requests.clone());
        Self::describe(engine.clone(), &self.name, sha256, contract, requests, pre.component(), settings).await
    }

    /// Its name: the file's name without `.wasm`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 of the file, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// What it was built against.
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// What the operator says of it.
    pub fn settings(&self) -> &ComponentSettings {
        &self.settings
    }

    /// What it requests, and what its agents are described with, against what it is granted.
    pub fn grant_report(&self) -> GrantReport {
        self.grant_report_with(&self.settings.grants)
    }

    /// What it requests against what it could be granted.
    pub(crate) fn grant_report_with(&self, grants: &Grants) -> GrantReport {
        GrantReport::new(self.requests.as_ref(), &described(self), grants)
    }

    /// What its calls may use.
    pub fn limits(&self) -> &Limits {
        &self.sandbox.limits
    }

    /// How many of its calls are running.
    pub fn running(&self) -> usize {
        self.sandbox.revision.running()
    }

    /// How many of its instances wait for a call.
    pub fn waiting(&self) -> usize {
        self.sandbox.warm.as_ref().map_or(0, |pool| pool.len())
    }

    /// Another revision has taken its place: no instance waits for a call any more.
    pub(crate) fn retire(&self) {
        if let Some(pool) = &self.sandbox.warm {
            pool.close();
        }
    }

    /// Ends all of its calls, and refuses further ones.
    pub(crate) fn cut_off(&self) {
        self.sandbox.revision.cut_off();
    }

    /// Names of its agents, as it lists them.
    pub fn agent_names(&self) -> impl Iterator<Item = &str> {
        self.offer.agents.iter().map(|agent| agent.name.as_str())
    }

    /// Names of its tools, as it lists them.
    pub fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.offer.tools.iter().map(|tool| tool.declaration.name.as_str())
    }

    /// Names of its callbacks, as it lists them.
    pub fn callback_names(&self) -> impl Iterator<Item = &str> {
        self.offer.callbacks.iter().map(|callback| callback.name.as_str())
    }

    /// Names of its plugins, as it lists them.
    pub fn plugin_names(&self) -> impl Iterator<Item = &str> {
        self.offer.plugins.iter().map(|plugin| plugin.name.as_str())
    }

    /// Names of its code executors, as it lists them.
    pub fn code_executor_names(&self) -> impl Iterator<Item = &str> {
        self.offer.code_executors.iter().map(String::as_str)
    }

    /// Names of its summarizers, as it lists them.
    pub fn summarizer_names(&self) -> impl Iterator<Item = &str> {
        self.offer.summarizers.iter().map(String::as_str)
    }

    /// Names of its providers of examples, as it lists them.
    pub fn example_names(&self) -> impl Iterator<Item = &str> {
        self.offer.examples.iter().map(String::as_str)
    }

    /// Names of its models, as it lists them, without `component:NAME/`.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        self.offer.models.iter().map(String::as_str)
    }

    /// Where a callback may be used.
    pub fn callback_points(&self, name: &str) -> &[Hook] {
        self.offer.callbacks.iter().find(|callback| callback.name == name).map_or(&[], |callback| &callback.hooks)
    }

    /// The hooks that a plugin has.
    pub fn plugin_hooks(&self, name: &str) -> &[Hook] {
        self.offer.plugins.iter().find(|plugin| plugin.name == name).map_or(&[], |plugin| &plugin.hooks)
    }

    /// One of its tools.
    pub fn tool(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Tool>> {
        self.any_tool(self.offer.tools.iter().find(|tool| tool.declaration.name == name)?)
    }

    /// All of its tools as a set; nothing when it has none.
    pub fn toolset(self: &Arc<Self>) -> Option<Arc<dyn Toolset>> {
        let tools: Vec<_> = self.offer.tools.iter().filter_map(|tool| self.any_tool(tool)).collect();
        (!tools.is_empty()).then(|| Arc::new(tool::ComponentTools { name: self.name.clone(), tools }) as _)
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
        }))
    }

    /// One of its callbacks.
    pub fn callback(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Callback>> {
        let exports = self.exports.callbacks.clone()?;
        let found = self.offer.callbacks.iter().find(|callback| callback.name == name)?;
        let (component, hooked) = (self.clone(), found.clone());
        Some(match exports {
            CallbackExports::Async(exports) => Arc::new(ComponentCallback { component, exports, hooked }),
            CallbackExports::Sync(exports) => Arc::new(ComponentCallback { component, exports, hooked }),
        })
    }

    /// One of its plugins.
    pub fn plugin(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Plugin>> {
        let exports = self.exports.plugins.clone()?;
        let found = self.offer.plugins.iter().find(|plugin| plugin.name == name)?;
        Some(Arc::new(ComponentCallback { component: self.clone(), exports, hooked: found.clone() }))
    }

    /// One of its code executors.
    pub fn code_executor(self: &Arc<Self>, name: &str) -> Option<Arc<dyn CodeExecutor>> {
        let exports = self.exports.code_executors.clone()?;
        let name = self.offer.code_executors.iter().find(|offered| *offered == name)?.clone();
        Some(Arc::new(code_executor::ComponentCodeExecutor { component: self.clone(), exports, name }))
    }

    /// One of its summarizers.
    pub fn summarizer(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Summarizer>> {
        let exports = self.exports.summarizers.clone()?;
        let name = self.offer.summarizers.iter().find(|offered| *offered == name)?.clone();
        Some(Arc::new(summarizer::ComponentSummarizer { component: self.clone(), exports, name }))
    }

    /// One of its providers of examples.
    pub fn examples(self: &Arc<Self>, name: &str) -> Option<Arc<dyn ExampleProvider>> {
        let exports = self.exports.examples.clone()?;
        let name = self.offer.examples.iter().find(|offered| *offered == name)?.clone();
        Some(Arc::new(examples::ComponentExamples { component: self.clone(), exports, name }))
    }

    /// One of its models.
    pub fn model(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Model>> {
        let exports = self.exports.models.clone()?;
        let name = self.offer.models.iter().find(|offered| *offered == name)?.clone();
        Some(Arc::new(model::ComponentModel { component: self.clone(), exports, name }))
    }

    pub(crate) fn tools(&self) -> &[DescribedTool] {
        &self.offer.tools
    }

    pub(crate) fn agents(&self) -> &[AgentSpec] {
        &self.offer.agents
    }

    /// The code of a custom agent.
    pub(crate) fn custom_agent(self: &Arc<Self>, name: &str) -> Option<Arc<dyn CustomAgent>> {
        let exports = self.exports.agents.clone()?;
        Some(Arc::new(agent::ComponentAgent { component: self.clone(), exports, name: name.into() }))
    }

    /// The code of an agent's instruction, or of its global one.
    pub(crate) fn instruction(self: &Arc<Self>, agent: &str, is_global: bool) -> Option<Arc<dyn InstructionProvider>> {
        let exports = self.exports.agents.clone()?;
        let component = self.clone();
        Some(Arc::new(instruction::ComputedInstruction { component, exports, agent: agent.into(), is_global }))
    }

    /// What one of its items has answered, checked and understood.
    fn answer<W: Weigh, T>(
        &self,
        kind: ItemKind,
        item: &str,
        answered: Result<Result<W, wit::Error>, CallError>,
        understand: impl FnOnce(W) -> Result<T, BadValue>,
    ) -> Result<T, RunError> {
        let broke = |error: CallError| error.into_item_error(&self.name, kind, item);
        match answered.map_err(broke)? {
            Ok(answer) => self.accept(answer, understand).map_err(broke),
            Err(error) => {
                let (name, wit::Error { code, message }) = (format!("{}/{item}", self.name), bounded(error));
                Err(RunError::Extension { kind, name, code: code.into(), message })
            }
        }
    }

    /// Understands an answer of the guest that is not too large.
    fn accept<W: Weigh, T>(
        &self,
        answer: W,
        understand: impl FnOnce(W) -> Result<T, BadValue>,
    ) -> Result<T, CallError> {
        self.check_size(&answer)?;
        understand(answer).map_err(|error| CallError::Contract(error.to_string()))
    }

    /// An error when an answer is larger than the component may give.
    fn check_size(&self, answer: &impl Weigh) -> Result<(), CallError> {
        if answer.weigh() > self.sandbox.limits.result {
            return Err(self.sandbox.limits.hit(Limit::Result).into());
        }
        Ok(())
    }
}

/// What the memories of an instance begin with, bytes.
fn initial_memory(code: &wasmtime::component::Component) -> u64 {
    /// Other sizes of pages are not among the features that components may use.
    const PAGE: u64 = 64 << 10;
    // The largest of them stands for each.
    let pages = |it: ResourcesRequired| u64::from(it.num_memories) * it.max_initial_memory_size.unwrap_or(0);
    code.resources_required().map_or(0, pages).saturating_mul(PAGE)
}

/// What calls of a component run in.
fn sandbox(
    engine: Arc<Engine>,
    name: Arc<str>,
    pre: InstancePre<HostState>,
    settings: &ComponentSettings,
) -> Result<Sandbox, LoadError> {
    let wasi_environment = WasiEnvironment::new(&name, &settings.grants)?;
    let egress = Egress::new(name.clone(), settings.grants.clone(), settings.limits.clone(), settings.recorded.clone())
        .map_err(|reason| LoadError::Grants { component: name.to_string(), reason })?;
    Ok(Sandbox {
        warm: settings.warm.clone().map(|warm| engine.pool(warm)),
        revision: Revision::default(),
        places: engine.places(pre.component()),
        initial_memory: initial_memory(pre.component()),
        engine,
        pre,
        component: name,
        config: Arc::new(settings.config.clone()),
        limits: settings.limits.clone(),
        grants: settings.grants.clone(),
        egress: Arc::new(egress),
        wasi_environment,
    })
}

#[cfg(test)]
pub(crate) mod tests;
