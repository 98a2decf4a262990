//! The kinds of items that are resolved by name.

/// The kind of an item that a component or the host offers under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ItemKind {
    Tool,
    Callback,
    Agent,
    /// A set of tools.
    Toolset,
    Plugin,
    CodeExecutor,
    Summarizer,
    /// An example provider.
    Examples,
    Model,
}

impl ItemKind {
    /// Returns the kind as text, such as `code executor`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Callback => "callback",
            Self::Agent => "agent",
            Self::Toolset => "toolset",
            Self::Plugin => "plugin",
            Self::CodeExecutor => "code executor",
            Self::Summarizer => "summarizer",
            Self::Examples => "example provider",
            Self::Model => "model",
        }
    }

    /// Returns the plural of the kind as text, such as `code executors`.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Callback => "callbacks",
            Self::Agent => "agents",
            Self::Toolset => "toolsets",
            Self::Plugin => "plugins",
            Self::CodeExecutor => "code executors",
            Self::Summarizer => "summarizers",
            Self::Examples => "example providers",
            Self::Model => "models",
        }
    }
}
