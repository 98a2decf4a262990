//! The common part of all agent builders.

use std::sync::Arc;

use hatchery_core::{Agent, AgentKind, Callbacks, Tool, check_agent_name};

use super::error::BuildError;
use crate::llm::tool_resolution;

/// The fields of every kind of agent.
pub(super) struct AgentFields {
    pub(super) name: String,
    pub(super) description: String,
    /// The sub-agents, or the error of the first that cannot be built.
    pub(super) sub_agents: Result<Vec<Agent>, BuildError>,
    pub(super) callbacks: Callbacks,
}

impl AgentFields {
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            sub_agents: Ok(Vec::new()),
            callbacks: Callbacks::default(),
        }
    }

    pub(super) fn add_sub_agent(&mut self, sub_agent: Result<Agent, BuildError>) {
        if let Ok(sub_agents) = &mut self.sub_agents {
            match sub_agent {
                Ok(sub_agent) => sub_agents.push(sub_agent),
                Err(error) => self.sub_agents = Err(error),
            }
        }
    }

    pub(super) fn build(self, kind: AgentKind) -> Result<Agent, BuildError> {
        check_agent_name(&self.name)?;
        Ok(Agent {
            name: self.name,
            description: self.description,
            kind,
            sub_agents: self.sub_agents?,
            callbacks: self.callbacks,
        })
    }
}

/// An agent or an agent builder.
pub trait IntoAgent {
    /// Builds the agent.
    ///
    /// # Errors
    /// As the builder's `build`.
    fn into_agent(self) -> Result<Agent, BuildError>;
}

impl IntoAgent for Agent {
    fn into_agent(self) -> Result<Agent, BuildError> {
        Ok(self)
    }
}

/// The methods of all agent builders.
macro_rules! builder {
    ($builder:ident) => {
        impl $builder {
            /// Sets the description. The models of other agents read it to decide on a transfer.
            pub fn description(mut self, text: impl Into<String>) -> Self {
                self.fields.description = text.into();
                self
            }

            /// Adds a sub-agent. A builder is built together with this one.
            pub fn sub_agent(mut self, agent: impl $crate::authoring::build::IntoAgent) -> Self {
                self.fields.add_sub_agent(agent.into_agent());
                self
            }

            $crate::authoring::build::callback::agent_hook_methods!(fields.callbacks);
        }

        impl $crate::authoring::build::IntoAgent for $builder {
            fn into_agent(self) -> Result<hatchery_core::Agent, $crate::authoring::build::BuildError> {
                self.build()
            }
        }
    };
}

pub(super) use builder;

/// Refuses tools with unusable names and two tools with the same name.
///
/// # Errors
/// [`BuildError::ToolName`] or [`BuildError::DuplicateTool`].
pub fn check_tools(agent: &str, tools: &[Arc<dyn Tool>]) -> Result<(), BuildError> {
    for (index, tool) in tools.iter().enumerate() {
        let name = &tool.declaration().name;
        let reserved = tool_resolution::RESERVED.contains(&name.as_str()).then_some("is reserved for a built-in tool");
        if let Some(reason) = reserved.or_else(|| invalid_name(name)) {
            return Err(BuildError::ToolName { agent: agent.into(), tool: name.clone(), reason });
        }
        let earlier = tools.iter().take(index).enumerate().find(|(_, earlier)| earlier.declaration().name == *name);
        if let Some((first_index, first)) = earlier {
            return Err(BuildError::DuplicateTool {
                agent: agent.into(),
                tool: name.clone(),
                first: describe(first_index, first.as_ref()),
                second: describe(index, tool.as_ref()),
            });
        }
    }
    Ok(())
}

fn describe(index: usize, tool: &dyn Tool) -> String {
    let number = index + 1;
    match tool.declaration().description.as_str() {
        "" => format!("number {number}"),
        description => format!("number {number} ({description:?})"),
    }
}

/// Returns the reason why no provider accepts a tool name, or a prefix of tool names. `None` if it is valid.
pub(crate) fn invalid_name(name: &str) -> Option<&'static str> {
    let mut chars = name.chars();
    match chars.next() {
        None => Some("is empty"),
        Some(first) if !(first.is_ascii_alphanumeric() || first == '_') => {
            Some("must start with a letter, a digit or `_`")
        }
        Some(_) if !chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')) => {
            Some("may hold only letters, digits, `_`, `-` and dots")
        }
        Some(_) => None,
    }
}
