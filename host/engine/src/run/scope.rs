//! The scope of an agent: its branch, its part of the replay and its event sink.

use std::sync::Arc;

use hatchery_core::{EventSink, SpanContext};

use super::Replay;

/// The branch of parallel agents that an agent runs in, such as `fan_out.left`. `None` outside of parallel agents.
pub(crate) type Branch = Option<Arc<str>>;

/// The parameters of one agent's run, in addition to the [`RunContext`](super::RunContext).
#[derive(Clone)]
pub(crate) struct AgentScope {
    pub(crate) branch: Branch,
    pub(crate) replay: Arc<Replay>,
    pub(crate) sink: Arc<dyn EventSink>,
    /// Parent of the agent's span.
    pub(crate) span: SpanContext,
}
