//! Builders of workflow agents (sequential, parallel, loop) and of custom agents.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{Agent, AgentContext, AgentKind, CustomAgent, CustomAgentSpec, Model, ModelRef, RunError, Tool};

use super::common::{AgentFields, builder, check_tools};
use super::error::BuildError;
use crate::tools::IntoTool;

/// Builds an agent that runs its sub-agents in order.
#[must_use]
pub struct SequentialAgentBuilder {
    fields: AgentFields,
}

builder!(SequentialAgentBuilder);

/// Creates a builder of an agent that runs its sub-agents in order.
pub fn sequential(name: impl Into<String>) -> SequentialAgentBuilder {
    SequentialAgentBuilder { fields: AgentFields::new(name) }
}

impl SequentialAgentBuilder {
    /// Builds the agent.
    ///
    /// # Errors
    /// If the name is invalid or a sub-agent cannot be built.
    pub fn build(self) -> Result<Agent, BuildError> {
        self.fields.build(AgentKind::Sequential)
    }
}

/// Builds an agent that runs its sub-agents concurrently.
#[must_use]
pub struct ParallelAgentBuilder {
    fields: AgentFields,
}

builder!(ParallelAgentBuilder);

/// Creates a builder of an agent that runs its sub-agents concurrently, each in its own branch.
pub fn parallel(name: impl Into<String>) -> ParallelAgentBuilder {
    ParallelAgentBuilder { fields: AgentFields::new(name) }
}

impl ParallelAgentBuilder {
    /// Builds the agent.
    ///
    /// # Errors
    /// If the name is invalid or a sub-agent cannot be built.
    pub fn build(self) -> Result<Agent, BuildError> {
        self.fields.build(AgentKind::Parallel)
    }
}

/// Builds an agent that runs its sub-agents repeatedly.
#[must_use]
pub struct LoopAgentBuilder {
    fields: AgentFields,
    max_iterations: Option<u32>,
}

builder!(LoopAgentBuilder);

/// Creates a builder of an agent that runs its sub-agents in order, repeatedly, until one escalates.
pub fn loop_agent(name: impl Into<String>) -> LoopAgentBuilder {
    LoopAgentBuilder { fields: AgentFields::new(name), max_iterations: None }
}

impl LoopAgentBuilder {
    /// Limits the number of rounds.
    pub fn max_iterations(mut self, rounds: u32) -> Self {
        self.max_iterations = Some(rounds);
        self
    }

    /// Builds the agent.
    ///
    /// # Errors
    /// If the name is invalid or a sub-agent cannot be built.
    pub fn build(self) -> Result<Agent, BuildError> {
        self.fields.build(AgentKind::Loop { max_iterations: self.max_iterations })
    }
}

/// Builds an agent that runs code.
#[must_use]
pub struct CustomAgentBuilder {
    fields: AgentFields,
    custom: CustomAgentSpec,
}

builder!(CustomAgentBuilder);

/// Creates a builder of an agent that runs a closure. The closure emits events with [`AgentContext::emit`] and similar
/// methods. An error ends the run.
pub fn custom<F, R>(name: impl Into<String>, code: F) -> CustomAgentBuilder
where
    F: Fn(AgentContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), RunError>> + Send + 'static,
{
    let custom = CustomAgentSpec { code: Arc::new(Code(code)), model: None, tools: Vec::new() };
    CustomAgentBuilder { fields: AgentFields::new(name), custom }
}

impl CustomAgentBuilder {
    /// Sets the model of the code by name.
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.custom.model = Some(ModelRef::Named(name.into()));
        self
    }

    /// Sets the model of the code as an object.
    pub fn model_instance(mut self, name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        self.custom.model = Some(ModelRef::Object(name.into(), model));
        self
    }

    /// Adds a tool that the code may call.
    pub fn tool(mut self, tool: impl IntoTool) -> Self {
        self.custom.tools.push(tool.into_tool());
        self
    }

    /// Adds tools that the code may call.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.custom.tools.extend(tools);
        self
    }

    /// Builds the agent.
    ///
    /// # Errors
    /// If a name is invalid, two tools have the same name, or a sub-agent cannot be built.
    pub fn build(self) -> Result<Agent, BuildError> {
        check_tools(&self.fields.name, &self.custom.tools)?;
        self.fields.build(AgentKind::Custom(self.custom))
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
