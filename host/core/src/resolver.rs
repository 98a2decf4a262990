//! Lookup of agents, tools, callbacks and other items by name.

use std::collections::BTreeSet;
use std::sync::Arc;

use thiserror::Error;

use crate::agent::Agent;
use crate::callback::Callback;
use crate::code::CodeExecutor;
use crate::examples::ExampleProvider;
use crate::item::ItemKind;
use crate::json::JsonMap;
use crate::plugin::Plugin;
use crate::suggestion::{MAX_LISTED, suggestion};
use crate::summarizer::Summarizer;
use crate::text::quoted_list;
use crate::tool::{Tool, Toolset};

/// Finds items by name: `component/item`, or `item` if that is unambiguous.
///
/// Called while agents and settings are resolved, which can be at the start of a run and in its task. Methods must
/// return quickly: they may neither block nor wait for the network. Each call may return a new object.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Arc;
///
/// use hatchery_core::{Agent, Callback, ItemKind, ItemResolver, ResolveError, Tool};
///
/// /// Offers tools and nothing else.
/// #[derive(Default)]
/// struct Tools(HashMap<String, Arc<dyn Tool>>);
///
/// impl Tools {
///     fn unknown(&self, kind: ItemKind, name: &str) -> ResolveError {
///         let known = if kind == ItemKind::Tool { self.0.keys().cloned().collect() } else { Vec::new() };
///         ResolveError::Unknown { kind, name: name.into(), known }
///     }
/// }
///
/// impl ItemResolver for Tools {
///     fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, ResolveError> {
///         self.0.get(name).cloned().ok_or_else(|| self.unknown(ItemKind::Tool, name))
///     }
///
///     fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, ResolveError> {
///         Err(self.unknown(ItemKind::Callback, name))
///     }
///
///     fn agent(&self, name: &str) -> Result<Agent, ResolveError> {
///         Err(self.unknown(ItemKind::Agent, name))
///     }
/// }
///
/// let error = Tools::default().tool("roll_die").err().unwrap();
/// assert_eq!(error.to_string(), "tool `roll_die` not found; available: none");
/// ```
pub trait ItemResolver: Send + Sync {
    /// Returns a tool.
    ///
    /// # Errors
    /// If no tool has this name, or the name is ambiguous.
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, ResolveError>;

    /// Returns a callback.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`].
    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, ResolveError>;

    /// Returns an agent with its sub-agents.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`].
    fn agent(&self, name: &str) -> Result<Agent, ResolveError>;

    /// Returns a toolset. The default has none.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`].
    fn toolset(&self, name: &str) -> Result<Arc<dyn Toolset>, ResolveError> {
        Err(none(ItemKind::Toolset, name))
    }

    /// Creates the toolset that an entry of an agent's tools names, with the arguments of the entry. The default
    /// has none.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`], and if the arguments are invalid. [`ResolveError::Unknown`] if no
    /// toolset has the name; a tool may have it.
    fn create_toolset(&self, name: &str, args: JsonMap) -> Result<Arc<dyn Toolset>, ResolveError> {
        let _ = args;
        Err(none(ItemKind::Toolset, name))
    }

    /// Creates a plugin with these arguments. The default has none.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`], and if the arguments are invalid.
    fn plugin(&self, name: &str, args: JsonMap) -> Result<Arc<dyn Plugin>, ResolveError> {
        let _ = args;
        Err(none(ItemKind::Plugin, name))
    }

    /// Returns a code executor. The default has none.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`].
    fn code_executor(&self, name: &str) -> Result<Arc<dyn CodeExecutor>, ResolveError> {
        Err(none(ItemKind::CodeExecutor, name))
    }

    /// Returns a summarizer. The default has none.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`].
    fn summarizer(&self, name: &str) -> Result<Arc<dyn Summarizer>, ResolveError> {
        Err(none(ItemKind::Summarizer, name))
    }

    /// Returns an example provider. The default has none.
    ///
    /// # Errors
    /// As [`ItemResolver::tool`].
    fn examples(&self, name: &str) -> Result<Arc<dyn ExampleProvider>, ResolveError> {
        Err(none(ItemKind::Examples, name))
    }
}

/// Returns the end of the message for an unknown name: the known names, and a similar one, unless it is the only one. A
/// long list gives way to the similar name. For `component/item` only the items of the component are listed, or the
/// components if it has none.
fn alternatives(kind: ItemKind, name: &str, known: &[String]) -> String {
    let similar = if known.len() > 1 { suggestion(name, known.iter().map(String::as_str)) } else { String::new() };
    if known.len() > MAX_LISTED && !similar.is_empty() {
        return similar;
    }
    let Some(component) = component_of(name) else {
        return format!("; available: {}{similar}", quoted_list(known));
    };
    let items: Vec<_> = known.iter().filter(|known| component_of(known) == Some(component)).collect();
    if !items.is_empty() {
        return format!("; available: {}{similar}", quoted_list(&items));
    }
    let components: BTreeSet<_> = known.iter().filter_map(|known| component_of(known)).collect();
    let items = kind.plural();
    if components.is_empty() {
        return format!("; no component with {items} is loaded");
    }
    let components = quoted_list(&components);
    format!("; no component `{component}` with {items} is loaded; components with {items}: {components}{similar}")
}

/// Returns the component of `component/item`.
fn component_of(name: &str) -> Option<&str> {
    name.split_once('/').map(|(component, _)| component)
}

fn none(kind: ItemKind, name: &str) -> ResolveError {
    ResolveError::Unknown { kind, name: name.into(), known: Vec::new() }
}

/// The reason why an item is not found or cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// There is no item of this name.
    #[error("{} `{name}` not found{}", kind.label(), alternatives(*kind, name, known))]
    Unknown {
        /// The kind of item.
        kind: ItemKind,
        name: String,
        /// The names of existing items.
        known: Vec<String>,
    },
    /// Several components offer an item of this name.
    #[error("{} `{name}` is offered by several components; write one of {}", kind.label(), quoted_list(candidates))]
    Ambiguous {
        /// The kind of item.
        kind: ItemKind,
        name: String,
        /// The qualified names.
        candidates: Vec<String>,
    },
    /// The item exists but cannot be used, such as an agent that refers to a tool that does not exist.
    #[error("{} `{name}` cannot be used: {reason}", kind.label())]
    Unusable {
        /// The kind of item.
        kind: ItemKind,
        name: String,
        reason: String,
    },
    /// The item exists, but needs grants that its component does not have.
    #[error("{} `{name}` cannot be used: {reason}", kind.label())]
    MissingGrants {
        /// The kind of item.
        kind: ItemKind,
        name: String,
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_known_names_gives_way_to_a_similar_one() {
        let error = |name: &str, count: usize| {
            let others = (1..count).map(|index| format!("item_{index:02}"));
            let known = std::iter::once("roll_die".to_owned()).chain(others).collect();
            ResolveError::Unknown { kind: ItemKind::Tool, name: name.into(), known }.to_string()
        };
        assert_eq!(error("rol_die", 21), "tool `rol_die` not found; did you mean `roll_die`?");
        let short = error("rol_die", 20);
        assert!(short.starts_with("tool `rol_die` not found; available: `roll_die`, `item_01`"), "{short}");
        assert!(short.ends_with("; did you mean `roll_die`?"), "{short}");
        assert!(error("nothing", 30).starts_with("tool `nothing` not found; available: `roll_die`, "));
    }

    #[test]
    fn the_item_of_a_component_is_only_compared_with_items_of_components() {
        let error = |name: &str, known: &[&str]| {
            let known = known.iter().map(|known| (*known).to_owned()).collect();
            ResolveError::Unknown { kind: ItemKind::Tool, name: name.into(), known }.to_string()
        };
        let known = ["dice/check_prime", "dice/roll_die", "mcp:files", "exit_loop", "shop/buy"];
        assert_eq!(
            error("dice/throw", &known),
            "tool `dice/throw` not found; available: `dice/check_prime`, `dice/roll_die`"
        );
        assert_eq!(
            error("trip-tools/find_flights", &known),
            "tool `trip-tools/find_flights` not found; no component `trip-tools` with tools is loaded; components with tools: \
             `dice`, `shop`"
        );
        assert!(error("dcie/roll_die", &known).ends_with("`dice`, `shop`; did you mean `dice/roll_die`?"));
        assert_eq!(error("a/b", &["exit_loop"]), "tool `a/b` not found; no component with tools is loaded");
    }
}
