//! Data that all agents of a run share: the run context, the replay of an interrupted run, and the outcome of one
//! agent.
//!
//! The modules above use it in this order: `llm`, `agents`, [`runner`](crate::runner).

mod compaction;
mod context;
mod live_input;
mod lookup;
mod outcome;
mod pending_message;
mod pinned_models;
mod replay;
mod scope;

/// Maximum nesting depth of runs: of agents called as tools, and of apps that code runs.
pub(crate) const MAX_DEPTH: u32 = 16;

pub(crate) use context::RunContext;
pub(crate) use live_input::{ConversingFlag, LiveInput, MessageLog};
pub(crate) use lookup::{is_live, unknown_tool};
pub(crate) use outcome::AgentOutcome;
pub(crate) use pending_message::{LiveMessage, PendingMessage};
pub(crate) use pinned_models::PinnedModels;
pub(crate) use replay::{CallbackEventKind, Replay};
pub(crate) use scope::{AgentScope, Branch};
