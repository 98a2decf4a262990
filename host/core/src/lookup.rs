//! Finding agents, tools and callbacks by name: the door between those who offer them and those who use them.

use std::sync::Arc;

use thiserror::Error;

use crate::agent::Agent;
use crate::callback::Callback;
use crate::tool::Tool;

/// Finds things by name: `component/item`, or just `item` when that is unambiguous.
pub trait Lookup: Send + Sync {
    /// The tool of this name.
    ///
    /// # Errors
    /// When there is none, or the name is ambiguous.
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, LookupError>;

    /// The callback of this name.
    ///
    /// # Errors
    /// As [`Lookup::tool`].
    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, LookupError>;

    /// The agent of this name with everything below it.
    ///
    /// # Errors
    /// As [`Lookup::tool`].
    fn agent(&self, name: &str) -> Result<Agent, LookupError>;
}

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ItemKind {
    /// A tool.
    Tool,
    /// A callback.
    Callback,
    /// An agent.
    Agent,
}

impl ItemKind {
    /// The kind in a word.
    pub fn label(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Callback => "callback",
            Self::Agent => "agent",
        }
    }
}

/// Why something is not found.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LookupError {
    /// There is nothing of this name.
    #[error("{} `{name}` not found; there is {}", kind.label(), list(known))]
    Unknown {
        /// What was looked for.
        kind: ItemKind,
        /// The name.
        name: String,
        /// Names that would be found.
        known: Vec<String>,
    },
    /// Several components offer it.
    #[error("{} `{name}` is offered by several components; write one of {}", kind.label(), list(candidates))]
    Ambiguous {
        /// What was looked for.
        kind: ItemKind,
        /// The name.
        name: String,
        /// The full names.
        candidates: Vec<String>,
    },
    /// It is there but cannot be used, such as an agent that names a tool that does not exist.
    #[error("{} `{name}` cannot be used: {reason}", kind.label())]
    Broken {
        /// What was looked for.
        kind: ItemKind,
        /// The name.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "none".into();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
