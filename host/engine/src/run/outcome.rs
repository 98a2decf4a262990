//! The outcome of an agent's run.

use hatchery_core::AgentId;

/// The result of an agent's run that has not failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentOutcome {
    /// The agent is finished.
    Done,
    /// The agent escalated without a final response: the agent that transferred to it continues.
    Escalated,
    /// The agent waits for the result of a call, and so does everything after it.
    Paused,
    /// Another agent continues instead.
    Transfer(AgentId),
}
