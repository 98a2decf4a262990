//! What is wrong with an agent that is built.

use hatchery_core::TreeError;
use thiserror::Error;

/// Why a builder gives no agent. Each names the agent and what in it is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BuildError {
    /// The agent's name cannot be used.
    #[error(transparent)]
    Name(#[from] TreeError),
    /// A model could not call a tool by its name.
    #[error("agent `{agent}`: tool name `{tool}` {reason}")]
    ToolName {
        /// The agent.
        agent: String,
        /// The tool.
        tool: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Two tools have one name.
    #[error(
        "agent `{agent}`: two tools are named `{tool}` to the model: {first} and {second}; rename one, or leave it out"
    )]
    DuplicateTool {
        /// The agent.
        agent: String,
        /// The name.
        tool: String,
        /// Place and description of the first.
        first: String,
        /// Place and description of the second.
        second: String,
    },
    /// A schema is none.
    #[error("agent `{agent}`: `{key}` is no JSON Schema: {reason}")]
    Schema {
        /// The agent.
        agent: String,
        /// `input_schema` or `output_schema`.
        key: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting of model calls has a wrong value.
    #[error("agent `{agent}`: `config`: {reason}")]
    Config {
        /// The agent.
        agent: String,
        /// What is wrong, with the setting's name.
        reason: String,
    },
}
