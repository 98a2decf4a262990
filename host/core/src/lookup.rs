//! Finding agents, tools, callbacks and the rest by name: the door between those who offer them and those who use them.

use std::sync::Arc;

use thiserror::Error;

use crate::agent::Agent;
use crate::callback::Callback;
use crate::code::CodeExecutor;
use crate::content::JsonMap;
use crate::examples::ExampleProvider;
use crate::plugin::Plugin;
use crate::summarizer::Summarizer;
use crate::tool::{Tool, Toolset};

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

    /// The toolset of this name: by default there are none.
    ///
    /// # Errors
    /// As [`Lookup::tool`].
    fn toolset(&self, name: &str) -> Result<Arc<dyn Toolset>, LookupError> {
        Err(none(ItemKind::Toolset, name))
    }

    /// The plugin of this name, made for these arguments (a JSON object): by default there are none.
    ///
    /// # Errors
    /// As [`Lookup::tool`], and when the plugin cannot be made of the arguments.
    fn plugin(&self, name: &str, args: JsonMap) -> Result<Arc<dyn Plugin>, LookupError> {
        let _ = args;
        Err(none(ItemKind::Plugin, name))
    }

    /// The code executor of this name: by default there are none.
    ///
    /// # Errors
    /// As [`Lookup::tool`].
    fn code_executor(&self, name: &str) -> Result<Arc<dyn CodeExecutor>, LookupError> {
        Err(none(ItemKind::CodeExecutor, name))
    }

    /// The summarizer of this name: by default there are none.
    ///
    /// # Errors
    /// As [`Lookup::tool`].
    fn summarizer(&self, name: &str) -> Result<Arc<dyn Summarizer>, LookupError> {
        Err(none(ItemKind::Summarizer, name))
    }

    /// The provider of examples of this name: by default there are none.
    ///
    /// # Errors
    /// As [`Lookup::tool`].
    fn examples(&self, name: &str) -> Result<Arc<dyn ExampleProvider>, LookupError> {
        Err(none(ItemKind::Examples, name))
    }
}

fn none(kind: ItemKind, name: &str) -> LookupError {
    LookupError::Unknown { kind, name: name.into(), known: Vec::new() }
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
    /// A set of tools.
    Toolset,
    /// A plugin.
    Plugin,
    /// Something that runs a model's code.
    CodeExecutor,
    /// Something that makes summaries.
    Summarizer,
    /// Something that chooses examples.
    Examples,
}

impl ItemKind {
    /// The kind in a word.
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
