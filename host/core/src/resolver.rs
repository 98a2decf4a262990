//! Finding agents, tools, callbacks and the rest by name: the door between those who offer them and those who use them.

use std::sync::Arc;

use thiserror::Error;

use crate::agent::Agent;
use crate::callback::Callback;
use crate::code::CodeExecutor;
use crate::content::JsonMap;
use crate::examples::ExampleProvider;
use crate::item::ItemKind;
use crate::plugin::Plugin;
use crate::summarizer::Summarizer;
use crate::tool::{Tool, Toolset};

/// Finds things by name: `component/item`, or just `item` when that is unambiguous.
pub trait ItemResolver: Send + Sync {
    /// The tool of this name.
    ///
    /// # Errors
    /// When there is none, or the name is ambiguous.
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, ResolveError>;

    /// The callback of this name.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`].
    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, ResolveError>;

    /// The agent of this name with everything below it.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`].
    fn agent(&self, name: &str) -> Result<Agent, ResolveError>;

    /// The toolset of this name: by default there are none.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`].
    fn toolset(&self, name: &str) -> Result<Arc<dyn Toolset>, ResolveError> {
        Err(none(ItemKind::Toolset, name))
    }

    /// The plugin of this name, made for these arguments (a JSON object): by default there are none.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`], and when the plugin cannot be made of the arguments.
    fn plugin(&self, name: &str, args: JsonMap) -> Result<Arc<dyn Plugin>, ResolveError> {
        let _ = args;
        Err(none(ItemKind::Plugin, name))
    }

    /// The code executor of this name: by default there are none.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`].
    fn code_executor(&self, name: &str) -> Result<Arc<dyn CodeExecutor>, ResolveError> {
        Err(none(ItemKind::CodeExecutor, name))
    }

    /// The summarizer of this name: by default there are none.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`].
    fn summarizer(&self, name: &str) -> Result<Arc<dyn Summarizer>, ResolveError> {
        Err(none(ItemKind::Summarizer, name))
    }

    /// The provider of examples of this name: by default there are none.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`].
    fn examples(&self, name: &str) -> Result<Arc<dyn ExampleProvider>, ResolveError> {
        Err(none(ItemKind::Examples, name))
    }
}

fn none(kind: ItemKind, name: &str) -> ResolveError {
    ResolveError::Unknown { kind, name: name.into(), known: Vec::new() }
}

/// Why something is not found.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResolveError {
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
    Unusable {
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
