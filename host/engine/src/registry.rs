//! Native agents, tools, callbacks and code executors by name: the catalog of a program that embeds the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use hatchery_core::{Agent, Callback, CodeExecutor, ItemKind, Lookup, LookupError, Tool};

use crate::builtin;

/// Stores things by name and finds them again, the built-in tools among them. A later registration of a name takes the place of an
/// earlier one.
#[derive(Default)]
pub struct Registry {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    callbacks: BTreeMap<String, Arc<dyn Callback>>,
    agents: BTreeMap<String, Agent>,
    code_executors: BTreeMap<String, Arc<dyn CodeExecutor>>,
}

impl Registry {
    /// Adds a tool under its own name.
    #[must_use]
    pub fn with_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.insert(tool.declaration().name.clone(), tool);
        self
    }

    /// Adds a callback under its own name.
    #[must_use]
    pub fn with_callback(mut self, callback: Arc<dyn Callback>) -> Self {
        self.callbacks.insert(callback.name().into(), callback);
        self
    }

    /// Adds an agent under its own name.
    #[must_use]
    pub fn with_agent(mut self, agent: Agent) -> Self {
        self.agents.insert(agent.name.clone(), agent);
        self
    }

    /// Adds a code executor under its own name.
    #[must_use]
    pub fn with_code_executor(mut self, executor: Arc<dyn CodeExecutor>) -> Self {
        self.code_executors.insert(executor.name().into(), executor);
        self
    }
}

impl Lookup for Registry {
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, LookupError> {
        builtin::tool(name).or_else(|| self.tools.get(name).cloned()).ok_or_else(|| {
            let known = builtin::NAMES.iter().map(|name| (*name).into()).chain(self.tools.keys().cloned()).collect();
            LookupError::Unknown { kind: ItemKind::Tool, name: name.into(), known }
        })
    }

    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, LookupError> {
        self.callbacks.get(name).cloned().ok_or_else(|| LookupError::Unknown {
            kind: ItemKind::Callback,
            name: name.into(),
            known: self.callbacks.keys().cloned().collect(),
        })
    }

    fn agent(&self, name: &str) -> Result<Agent, LookupError> {
        self.agents.get(name).cloned().ok_or_else(|| LookupError::Unknown {
            kind: ItemKind::Agent,
            name: name.into(),
            known: self.agents.keys().cloned().collect(),
        })
    }

    fn code_executor(&self, name: &str) -> Result<Arc<dyn CodeExecutor>, LookupError> {
        self.code_executors.get(name).cloned().ok_or_else(|| LookupError::Unknown {
            kind: ItemKind::CodeExecutor,
            name: name.into(),
            known: self.code_executors.keys().cloned().collect(),
        })
    }
}
