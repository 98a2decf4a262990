//! A loaded component: one revision of one file, compiled, linked and described. Immutable; whoever runs it holds it.

mod agent;
mod callback;
mod instruction;
mod tool;

use std::sync::Arc;

use hatchery_core::agent::InstructionProvider;
use hatchery_core::{Callback, CustomAgent, FunctionDeclaration, JsonMap, Tool};
use wasmtime::component::InstancePre;

use crate::bindings::exports::hatchery::agent::{guest_agents, guest_callbacks, guest_tools};
use crate::convert::{FromWit, Weigh};
use crate::engine::Engine;
use crate::error::{CallError, LoadError};
use crate::limits::{Limit, Limits};
use crate::store::{Caller, HostState, Sandbox};
use crate::version::Contract;

pub(crate) use guest_agents::AgentSpec;

/// Most agents of one component.
const MAX_AGENTS: usize = 256;

/// Most tools of one component, and most callbacks.
const MAX_ITEMS: usize = 1000;

/// What a component is given beside its code.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ComponentSettings {
    /// What its calls may use.
    pub limits: Limits,
    /// What it reads through the `config` interface.
    pub config: JsonMap,
}

/// A component, ready to run.
pub struct Component {
    name: Arc<str>,
    sha256: String,
    contract: Contract,
    sandbox: Sandbox,
    exports: Exports,
    agents: Vec<AgentSpec>,
    tools: Vec<DescribedTool>,
    callbacks: Vec<DescribedCallback>,
}

/// Which interfaces it has.
struct Exports {
    agents: Option<guest_agents::GuestIndices>,
    tools: Option<guest_tools::GuestIndices>,
    callbacks: Option<guest_callbacks::GuestIndices>,
}

struct DescribedTool {
    declaration: Arc<FunctionDeclaration>,
    is_long_running: bool,
}

struct DescribedCallback {
    name: String,
    points: Vec<String>,
}

impl Component {
    /// Links compiled code and asks it what it offers, in a throw-away instance.
    ///
    /// # Errors
    /// When an import or export does not fit the contract, or `describe` fails or names something twice.
    pub(crate) async fn describe(
        engine: Arc<Engine>,
        name: &str,
        sha256: String,
        contract: Contract,
        code: &wasmtime::component::Component,
        settings: ComponentSettings,
    ) -> Result<Self, LoadError> {
        let failed =
            |error: wasmtime::Error| LoadError::Compile { component: name.into(), reason: format!("{error:#}") };
        let pre = engine.linker().instantiate_pre(code).map_err(failed)?;
        let exports = Exports::of(&pre, &contract).map_err(failed)?;
        let name: Arc<str> = name.into();
        let sandbox = Sandbox {
            engine,
            pre,
            component: name.clone(),
            config: Arc::new(settings.config),
            limits: settings.limits,
        };
        let mut component = Self {
            name,
            sha256,
            contract,
            sandbox,
            exports,
            agents: Vec::new(),
            tools: Vec::new(),
            callbacks: Vec::new(),
        };
        component
            .ask()
            .await
            .map_err(|reason| LoadError::Describe { component: component.name.to_string(), reason })?;
        Ok(component)
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

    /// What its calls may use.
    pub fn limits(&self) -> &Limits {
        &self.sandbox.limits
    }

    /// Names of its agents, as it lists them.
    pub fn agent_names(&self) -> impl Iterator<Item = &str> {
        self.agents.iter().map(|agent| agent.name.as_str())
    }

    /// Names of its tools, as it lists them.
    pub fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.declaration.name.as_str())
    }

    /// Names of its callbacks, as it lists them.
    pub fn callback_names(&self) -> impl Iterator<Item = &str> {
        self.callbacks.iter().map(|callback| callback.name.as_str())
    }

    /// Where a callback may be used: `before-agent`, `after-agent` and so on.
    pub fn callback_points(&self, name: &str) -> &[String] {
        self.callbacks.iter().find(|callback| callback.name == name).map_or(&[], |callback| &callback.points)
    }

    /// One of its tools.
    pub fn tool(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Tool>> {
        let exports = self.exports.tools.clone()?;
        let found = self.tools.iter().find(|tool| tool.declaration.name == name)?;
        Some(Arc::new(tool::ComponentTool {
            component: self.clone(),
            exports,
            declaration: found.declaration.clone(),
            is_long_running: found.is_long_running,
        }))
    }

    /// One of its callbacks.
    pub fn callback(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Callback>> {
        let exports = self.exports.callbacks.clone()?;
        let found = self.callbacks.iter().find(|callback| callback.name == name)?;
        Some(Arc::new(callback::ComponentCallback {
            component: self.clone(),
            exports,
            name: found.name.clone(),
            points: found.points.clone(),
        }))
    }

    /// Declarations of its tools, and whether their results come later.
    pub fn tools(&self) -> impl Iterator<Item = (&Arc<FunctionDeclaration>, bool)> {
        self.tools.iter().map(|tool| (&tool.declaration, tool.is_long_running))
    }

    pub(crate) fn agents(&self) -> &[AgentSpec] {
        &self.agents
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

    /// Calls each `describe` that there is.
    async fn ask(&mut self) -> Result<(), String> {
        let exports = &self.exports;
        let described = self.sandbox.run(Caller::Loader, |mut store, instance| async move {
            let agents = match &exports.agents {
                Some(indices) => indices.load(&mut store, &instance)?.call_describe(&mut store).await?,
                None => Vec::new(),
            };
            let tools = match &exports.tools {
                Some(indices) => indices.load(&mut store, &instance)?.call_describe(&mut store).await?,
                None => Vec::new(),
            };
            let callbacks = match &exports.callbacks {
                Some(indices) => indices.load(&mut store, &instance)?.call_describe(&mut store).await?,
                None => Vec::new(),
            };
            Ok((agents, tools, callbacks))
        });
        let (agents, tools, callbacks) = described.await.map_err(|error| error.to_string())?;
        self.accept(agents, tools, callbacks)
    }

    /// Takes over what it says that it offers.
    fn accept(
        &mut self,
        agents: Vec<AgentSpec>,
        tools: Vec<guest_tools::ToolSpec>,
        callbacks: Vec<guest_callbacks::CallbackSpec>,
    ) -> Result<(), String> {
        few("agents", agents.len(), MAX_AGENTS)?;
        few("tools", tools.len(), MAX_ITEMS)?;
        few("callbacks", callbacks.len(), MAX_ITEMS)?;
        self.agents = agents;
        for tool in tools {
            let declaration = FunctionDeclaration::from_wit(tool.declaration).map_err(|error| error.to_string())?;
            self.tools.push(DescribedTool { declaration: Arc::new(declaration), is_long_running: tool.long_running });
        }
        let callbacks = callbacks.into_iter();
        self.callbacks = callbacks.map(|spec| DescribedCallback { name: spec.name, points: spec.points }).collect();
        unique("agent", self.agent_names())?;
        unique("tool", self.tool_names())?;
        unique("callback", self.callback_names())
    }

    /// An error when an answer is larger than the component may give.
    fn check_size(&self, answer: &impl Weigh) -> Result<(), CallError> {
        if answer.weigh() > self.sandbox.limits.result {
            return Err(self.sandbox.limits.hit(Limit::Result).into());
        }
        Ok(())
    }
}

impl Exports {
    fn of(pre: &InstancePre<HostState>, contract: &Contract) -> wasmtime::Result<Self> {
        let has = |interface: &str| contract.offers(interface);
        Ok(Self {
            agents: has("guest-agents").then(|| guest_agents::GuestIndices::new(pre)).transpose()?,
            tools: has("guest-tools").then(|| guest_tools::GuestIndices::new(pre)).transpose()?,
            callbacks: has("guest-callbacks").then(|| guest_callbacks::GuestIndices::new(pre)).transpose()?,
        })
    }
}

fn few(items: &str, count: usize, most: usize) -> Result<(), String> {
    if count > most {
        return Err(format!("it has {count} {items}, and a component may have {most}; make several components of it"));
    }
    Ok(())
}

fn unique<'a>(kind: &str, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if name.is_empty() || name.contains('/') {
            return Err(format!("`{name}` cannot name a {kind}: names are not empty and have no `/`"));
        }
        if !seen.insert(name) {
            return Err(format!("it has two {kind}s named `{name}`"));
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
