//! The moments of a run at which the code of a callback or a plugin can be called.

/// A moment of a run. Its name is that of the contract's function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// When the user has said something; plugins only.
    OnUserMessage,
    /// Before the agent of a run; plugins only.
    BeforeRun,
    /// Before an event is stored; plugins only.
    OnEvent,
    /// After a run that did not fail; plugins only.
    AfterRun,
    /// After a run that failed; plugins only.
    OnRunError,
    /// Before an agent runs.
    BeforeAgent,
    /// After an agent has run.
    AfterAgent,
    /// When an agent has failed.
    OnAgentError,
    /// Before a model call.
    BeforeModel,
    /// After a model response.
    AfterModel,
    /// When a model call has failed.
    OnModelError,
    /// Before a tool call.
    BeforeTool,
    /// After a tool call.
    AfterTool,
    /// When a tool call has failed.
    OnToolError,
}

impl Hook {
    /// Those that plugins can have.
    pub const OF_PLUGINS: &'static [Self] = &[
        Self::OnUserMessage,
        Self::BeforeRun,
        Self::OnEvent,
        Self::AfterRun,
        Self::OnRunError,
        Self::BeforeAgent,
        Self::AfterAgent,
        Self::OnAgentError,
        Self::BeforeModel,
        Self::AfterModel,
        Self::OnModelError,
        Self::BeforeTool,
        Self::AfterTool,
        Self::OnToolError,
    ];

    /// Those that callbacks can be made for.
    pub const OF_CALLBACKS: &'static [Self] = &[
        Self::BeforeAgent,
        Self::AfterAgent,
        Self::OnAgentError,
        Self::BeforeModel,
        Self::AfterModel,
        Self::OnModelError,
        Self::BeforeTool,
        Self::AfterTool,
        Self::OnToolError,
    ];

    /// Its name, such as `before-agent`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnUserMessage => "on-user-message",
            Self::BeforeRun => "before-run",
            Self::OnEvent => "on-event",
            Self::AfterRun => "after-run",
            Self::OnRunError => "on-run-error",
            Self::BeforeAgent => "before-agent",
            Self::AfterAgent => "after-agent",
            Self::OnAgentError => "on-agent-error",
            Self::BeforeModel => "before-model",
            Self::AfterModel => "after-model",
            Self::OnModelError => "on-model-error",
            Self::BeforeTool => "before-tool",
            Self::AfterTool => "after-tool",
            Self::OnToolError => "on-tool-error",
        }
    }

    /// Names in a list, for messages.
    pub(crate) fn names(hooks: &[Self]) -> String {
        hooks.iter().map(|hook| format!("`{}`", hook.name())).collect::<Vec<_>>().join(", ")
    }
}
