//! Builders of agents without a model: sequences, branches, loops and code.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{Agent, AgentContext, AgentKind, CustomAgent, CustomAgentSpec, Model, ModelRef, RunError, Tool};

use super::common::{Common, builder, check_tools};
use super::error::BuildError;
use super::tool::IntoTool;

/// Builds an agent that runs the agents below it in order.
#[must_use]
pub struct SequentialAgentBuilder {
    common: Common,
}

builder!(SequentialAgentBuilder);

/// An agent that runs the agents below it in order.
pub fn sequential(name: impl Into<String>) -> SequentialAgentBuilder {
    SequentialAgentBuilder { common: Common::new(name) }
}

impl SequentialAgentBuilder {
    /// The agent.
    ///
    /// # Errors
    /// When a name cannot be used, or an agent below it cannot be built.
    pub fn build(self) -> Result<Agent, BuildError> {
        self.common.build(AgentKind::Sequential)
    }
}

/// Builds an agent that runs the agents below it at the same time.
#[must_use]
pub struct ParallelAgentBuilder {
    common: Common,
}

builder!(ParallelAgentBuilder);

/// An agent that runs the agents below it at the same time, each in a branch of its own.
pub fn parallel(name: impl Into<String>) -> ParallelAgentBuilder {
    ParallelAgentBuilder { common: Common::new(name) }
}

impl ParallelAgentBuilder {
    /// The agent.
    ///
    /// # Errors
    /// When a name cannot be used, or an agent below it cannot be built.
    pub fn build(self) -> Result<Agent, BuildError> {
        self.common.build(AgentKind::Parallel)
    }
}

/// Builds an agent that runs the agents below it again and again.
#[must_use]
pub struct LoopAgentBuilder {
    common: Common,
    max_iterations: Option<u32>,
}

builder!(LoopAgentBuilder);

/// An agent that runs the agents below it in order, again and again, until one escalates.
pub fn loop_agent(name: impl Into<String>) -> LoopAgentBuilder {
    LoopAgentBuilder { common: Common::new(name), max_iterations: None }
}

impl LoopAgentBuilder {
    /// Ends the loop after so many rounds.
    pub fn max_iterations(mut self, rounds: u32) -> Self {
        self.max_iterations = Some(rounds);
        self
    }

    /// The agent.
    ///
    /// # Errors
    /// When a name cannot be used, or an agent below it cannot be built.
    pub fn build(self) -> Result<Agent, BuildError> {
        self.common.build(AgentKind::Loop { max_iterations: self.max_iterations })
    }
}

/// Builds an agent that is code.
#[must_use]
pub struct CustomAgentBuilder {
    common: Common,
    custom: CustomAgentSpec,
}

builder!(CustomAgentBuilder);

/// An agent that runs a closure. Its events go through [`AgentContext::emit`] and its like; an error ends the run.
pub fn custom<F, R>(name: impl Into<String>, code: F) -> CustomAgentBuilder
where
    F: Fn(AgentContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), RunError>> + Send + 'static,
{
    let custom = CustomAgentSpec { code: Arc::new(Code(code)), model: None, tools: Vec::new() };
    CustomAgentBuilder { common: Common::new(name), custom }
}

impl CustomAgentBuilder {
    /// The name of the model that its code asks.
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.custom.model = Some(ModelRef::Named(name.into()));
        self
    }

    /// The model that its code asks, as an object.
    pub fn model_instance(mut self, name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        self.custom.model = Some(ModelRef::Object(name.into(), model));
        self
    }

    /// A tool that its code may call.
    pub fn tool(mut self, tool: impl IntoTool) -> Self {
        self.custom.tools.push(tool.into_tool());
        self
    }

    /// Tools that its code may call.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.custom.tools.extend(tools);
        self
    }

    /// The agent.
    ///
    /// # Errors
    /// When a name cannot be used, two of its tools have one name, or an agent below it cannot be built.
    pub fn build(self) -> Result<Agent, BuildError> {
        check_tools(&self.common.name, &self.custom.tools)?;
        self.common.build(AgentKind::Custom(self.custom))
    }
}

struct Code<F>(F);

#[async_trait]
impl<F, R> CustomAgent for Code<F>
where
    F: Fn(AgentContext) -> R + Send + Sync,
    R: Future<Output = Result<(), RunError>> + Send + 'static,
{
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        (self.0)(cx).await
    }
}
