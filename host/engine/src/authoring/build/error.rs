//! Errors of agent builders.

use hatchery_core::TreeError;
use thiserror::Error;

/// An error of an agent builder. The message names the agent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BuildError {
    /// The agent's name cannot be used.
    #[error(transparent)]
    Name(#[from] TreeError),
    /// A tool has a name that models cannot call.
    #[error("agent `{agent}`: tool name `{tool}` {reason}")]
    ToolName { agent: String, tool: String, reason: &'static str },
    /// Two tools have the same name.
    #[error(
        "agent `{agent}`: two tools are named `{tool}` to the model: {first} and {second}; rename one, or leave it out"
    )]
    DuplicateTool {
        agent: String,
        tool: String,
        /// Position and description of the first.
        first: String,
        /// Position and description of the second.
        second: String,
    },
    /// A schema is invalid.
    #[error("agent `{agent}`: `{key}` is not a JSON Schema: {reason}")]
    Schema {
        agent: String,
        /// `input_schema` or `output_schema`.
        key: &'static str,
        reason: String,
    },
    /// A setting of model calls is invalid.
    #[error("agent `{agent}`: `config`: {reason}")]
    Config {
        agent: String,
        /// Names the setting.
        reason: String,
    },
}
