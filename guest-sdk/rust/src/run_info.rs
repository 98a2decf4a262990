//! Information about the run of a call: [`RunInfo`], its remaining limits, and its plugins.

use crate::bindings::wit::{session, types};

/// The call in which code runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunInfo {
    pub app: String,
    pub user: String,
    /// Id of the session.
    pub session: String,
    /// Id of the run.
    pub invocation_id: String,
    /// The agent that the code runs for.
    pub agent: String,
    pub branch: Option<String>,
    /// Id of the function call, in tools and tool callbacks.
    pub function_call_id: Option<String>,
    /// Delivery of model responses to the client.
    pub streaming_mode: StreamingMode,
    /// True if the run can pause and be continued later.
    pub is_resumable: bool,
    /// The number of runs that this run is nested in: 0 for the run of a user's message.
    pub depth: u32,
    /// The remaining limits of the run.
    pub remaining: RemainingLimits,
}

/// Delivery of model responses to the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StreamingMode {
    /// As one response.
    #[default]
    None,
    /// As partial responses while they arrive.
    Sse,
    /// As partial responses of a live connection in both directions.
    Bidi,
}

/// How much a run may still use. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemainingLimits {
    pub model_calls: Option<u64>,
    /// Tokens of model calls.
    pub tokens: Option<u64>,
    /// Stored events.
    pub events: Option<u64>,
    /// Bytes of the JSON of events.
    pub bytes: Option<u64>,
}

/// A plugin of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PluginInfo {
    pub name: String,
    /// Names of its hooks; empty for a plugin of the host.
    pub hooks: Vec<String>,
    /// The component that exports it; `None` for a plugin of the host.
    pub component: Option<String>,
}

impl From<types::PluginInfo> for PluginInfo {
    fn from(types::PluginInfo { name, hooks, component }: types::PluginInfo) -> Self {
        Self { name, hooks, component }
    }
}

impl From<session::Info> for RunInfo {
    fn from(info: session::Info) -> Self {
        Self {
            app: info.app,
            user: info.user,
            session: info.session,
            invocation_id: info.invocation_id,
            agent: info.agent,
            branch: info.branch,
            function_call_id: info.function_call_id,
            streaming_mode: info.streaming_mode.into(),
            is_resumable: info.is_resumable,
            depth: info.depth,
            remaining: info.remaining.into(),
        }
    }
}

impl From<session::StreamingMode> for StreamingMode {
    fn from(mode: session::StreamingMode) -> Self {
        match mode {
            session::StreamingMode::None => Self::None,
            session::StreamingMode::Sse => Self::Sse,
            session::StreamingMode::Bidi => Self::Bidi,
        }
    }
}

impl From<session::RemainingLimits> for RemainingLimits {
    fn from(remaining: session::RemainingLimits) -> Self {
        let session::RemainingLimits { model_calls, tokens, events, bytes } = remaining;
        Self { model_calls, tokens, events, bytes }
    }
}
