//! A static catalog: native agents, tools, callbacks and other items by name, for programs that embed the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, CallContext, Callback, CodeExecutor, CodeInput, CodeOutput, ExampleProvider, ItemKind, ItemResolver,
    JsonMap, Plugin, ResolveError, Summarizer, Tool, ToolError, Toolset,
};

use crate::tools::builtin;

/// An [`ItemResolver`] with items that are registered by the program, and the built-in tools. A later item of the same
/// kind and name replaces an earlier one; built-in tools cannot be replaced.
#[derive(Default)]
pub struct StaticCatalog {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    toolsets: BTreeMap<String, Arc<dyn Toolset>>,
    callbacks: BTreeMap<String, Arc<dyn Callback>>,
    plugins: BTreeMap<String, Arc<dyn Plugin>>,
    agents: BTreeMap<String, Agent>,
    code_executors: BTreeMap<String, Arc<dyn CodeExecutor>>,
    summarizers: BTreeMap<String, Arc<dyn Summarizer>>,
    examples: BTreeMap<String, Arc<dyn ExampleProvider>>,
}

impl StaticCatalog {
    /// Adds a tool under its own name.
    #[must_use]
    pub fn with_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.insert(tool.declaration().name.clone(), tool);
        self
    }

    /// Adds a toolset under its own name.
    #[must_use]
    pub fn with_toolset(mut self, toolset: Arc<dyn Toolset>) -> Self {
        self.toolsets.insert(toolset.name().into(), toolset);
        self
    }

    /// Adds a callback under its own name.
    #[must_use]
    pub fn with_callback(mut self, callback: Arc<dyn Callback>) -> Self {
        self.callbacks.insert(callback.name().into(), callback);
        self
    }

    /// Adds a plugin under its own name. It takes no arguments.
    #[must_use]
    pub fn with_plugin(mut self, plugin: Arc<dyn Plugin>) -> Self {
        self.plugins.insert(plugin.name().into(), plugin);
        self
    }

    /// Adds an agent under its own name.
    #[must_use]
    pub fn with_agent(mut self, agent: Agent) -> Self {
        self.agents.insert(agent.name.clone(), agent);
        self
    }

    /// Adds a code executor under its own name. Agents share it, so the program closes it.
    #[must_use]
    pub fn with_code_executor(mut self, executor: Arc<dyn CodeExecutor>) -> Self {
        self.code_executors.insert(executor.name().into(), executor);
        self
    }

    /// Adds a summarizer under `name`.
    #[must_use]
    pub fn with_summarizer(mut self, name: impl Into<String>, summarizer: Arc<dyn Summarizer>) -> Self {
        self.summarizers.insert(name.into(), summarizer);
        self
    }

    /// Adds a provider of examples under `name`.
    #[must_use]
    pub fn with_examples(mut self, name: impl Into<String>, examples: Arc<dyn ExampleProvider>) -> Self {
        self.examples.insert(name.into(), examples);
        self
    }
}

impl ItemResolver for StaticCatalog {
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, ResolveError> {
        builtin::tool(name).or_else(|| self.tools.get(name).cloned()).ok_or_else(|| {
            let known = builtin::tools().names().map(Into::into).chain(self.tools.keys().cloned()).collect();
            ResolveError::Unknown { kind: ItemKind::Tool, name: name.into(), known }
        })
    }

    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, ResolveError> {
        find(&self.callbacks, ItemKind::Callback, name)
    }

    fn agent(&self, name: &str) -> Result<Agent, ResolveError> {
        find(&self.agents, ItemKind::Agent, name)
    }

    fn toolset(&self, name: &str) -> Result<Arc<dyn Toolset>, ResolveError> {
        find(&self.toolsets, ItemKind::Toolset, name)
    }

    fn plugin(&self, name: &str, args: JsonMap) -> Result<Arc<dyn Plugin>, ResolveError> {
        let plugin = find(&self.plugins, ItemKind::Plugin, name)?;
        if !args.is_empty() {
            let reason = "it takes no arguments".into();
            return Err(ResolveError::Unusable { kind: ItemKind::Plugin, name: name.into(), reason });
        }
        Ok(plugin)
    }

    fn summarizer(&self, name: &str) -> Result<Arc<dyn Summarizer>, ResolveError> {
        find(&self.summarizers, ItemKind::Summarizer, name)
    }

    fn examples(&self, name: &str) -> Result<Arc<dyn ExampleProvider>, ResolveError> {
        find(&self.examples, ItemKind::Examples, name)
    }

    fn code_executor(&self, name: &str) -> Result<Arc<dyn CodeExecutor>, ResolveError> {
        let executor = find(&self.code_executors, ItemKind::CodeExecutor, name)?;
        Ok(Arc::new(SharedExecutor(executor)))
    }
}

/// An executor that agents share: closing one of their apps does not close it.
struct SharedExecutor(Arc<dyn CodeExecutor>);

#[async_trait]
impl CodeExecutor for SharedExecutor {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn execute(&self, input: CodeInput, cx: &CallContext) -> Result<CodeOutput, ToolError> {
        self.0.execute(input, cx).await
    }
}

fn find<T: Clone>(items: &BTreeMap<String, T>, kind: ItemKind, name: &str) -> Result<T, ResolveError> {
    let unknown = || ResolveError::Unknown { kind, name: name.into(), known: items.keys().cloned().collect() };
    items.get(name).cloned().ok_or_else(unknown)
}
