//! The hooks of callbacks and plugins, by the names of the contract's functions.

use hatchery_core::HookPoint;

use crate::contract::bindings::hatchery::agent::specs::{AgentSpec, LlmAgent};

/// A hook of a component's callback or plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Runs when a message of the user arrives; plugins only.
    OnUserMessage,
    /// Runs before the agent of a run; plugins only.
    BeforeRun,
    /// Runs before an event is stored; plugins only.
    OnEvent,
    /// Runs after a run that succeeded; plugins only.
    AfterRun,
    /// Runs after a run that failed; plugins only.
    OnRunError,
    /// Runs when the host stops or the plugin is replaced; plugins only.
    Close,
    /// Runs at a point of an agent, a model call or a tool call.
    At(HookPoint),
}

impl Hook {
    /// Returns the hooks that callbacks can have.
    pub fn callback_hooks() -> Vec<Self> {
        HookPoint::ALL.iter().copied().map(Self::At).collect()
    }

    /// Returns the hooks that plugins can have.
    pub fn plugin_hooks() -> Vec<Self> {
        let run_hooks =
            [Self::OnUserMessage, Self::BeforeRun, Self::OnEvent, Self::AfterRun, Self::OnRunError, Self::Close];
        run_hooks.into_iter().chain(Self::callback_hooks()).collect()
    }

    /// Returns its name in the contract, such as `before-agent`.
    pub fn name(self) -> String {
        match self {
            Self::OnUserMessage => "on-user-message".into(),
            Self::BeforeRun => "before-run".into(),
            Self::OnEvent => "on-event".into(),
            Self::AfterRun => "after-run".into(),
            Self::OnRunError => "on-run-error".into(),
            Self::Close => "close".into(),
            Self::At(point) => point.name().replace('_', "-"),
        }
    }

    /// Returns the names in a list, for messages.
    pub(crate) fn names(hooks: &[Self]) -> String {
        hooks.iter().map(|hook| format!("`{}`", hook.name())).collect::<Vec<_>>().join(", ")
    }
}

impl AgentSpec {
    /// Returns the names of its callbacks at the points of agents.
    pub(crate) fn callbacks(&self) -> impl Iterator<Item = (HookPoint, &str)> {
        by_point([
            (HookPoint::BeforeAgent, &self.before_agent),
            (HookPoint::AfterAgent, &self.after_agent),
            (HookPoint::OnAgentError, &self.on_agent_error),
        ])
    }
}

impl LlmAgent {
    /// Returns the names of its callbacks at the points of model and tool calls.
    pub(crate) fn callbacks(&self) -> impl Iterator<Item = (HookPoint, &str)> {
        by_point([
            (HookPoint::BeforeModel, &self.before_model),
            (HookPoint::AfterModel, &self.after_model),
            (HookPoint::OnModelError, &self.on_model_error),
            (HookPoint::BeforeTool, &self.before_tool),
            (HookPoint::AfterTool, &self.after_tool),
            (HookPoint::OnToolError, &self.on_tool_error),
        ])
    }
}

fn by_point<const N: usize>(lists: [(HookPoint, &Vec<String>); N]) -> impl Iterator<Item = (HookPoint, &str)> {
    lists.into_iter().flat_map(|(point, names)| names.iter().map(move |name| (point, name.as_str())))
}
