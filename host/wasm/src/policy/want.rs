//! What the code of a component can ask its host for, and whether it may.

use std::sync::Arc;

use hatchery_core::state::Scope;

use super::pattern::Pattern;
use super::{Access, Denial, Grants};
use crate::convert::wit;
use crate::store::output::plain;

/// Something that needs a grant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Want<'a> {
    /// To ask the model of this name.
    Model(&'a str),
    /// To search the user's memory.
    Memory,
    /// To use artifacts.
    Artifacts(Access),
    /// To use a state key.
    State(Access, &'a str),
    /// To call the tool of this full name.
    Tool(&'a str),
}

impl Grants {
    /// Whether `component`, to which these belong, may do so.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn check(&self, component: &Arc<str>, want: Want<'_>) -> Result<(), Denial> {
        if want.is_granted(self, component) {
            return Ok(());
        }
        Err(Denial::new(component, want.action(), want.grant()))
    }

    /// True for a state key that its code may read.
    pub(crate) fn shows_state(&self, key: &str) -> bool {
        self.allows_state(Access::Read, key)
    }

    /// An event without state that its code may not read.
    pub(crate) fn visible(&self, mut event: wit::Event) -> wit::Event {
        event.actions.state_delta.retain(|(key, _)| self.shows_state(key));
        event
    }

    fn allows_state(&self, access: Access, key: &str) -> bool {
        match (Scope::of(key).0, access) {
            (Scope::Session | Scope::Temp, _) => true,
            (Scope::User | Scope::App, Access::Read) => any(&self.state.read, key) || any(&self.state.write, key),
            (Scope::User | Scope::App, Access::Write) => any(&self.state.write, key),
        }
    }
}

fn any(patterns: &[Pattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}

impl Want<'_> {
    fn is_granted(self, grants: &Grants, component: &str) -> bool {
        match self {
            Self::Model(name) => any(&grants.models, name),
            Self::Memory => grants.memory,
            Self::Artifacts(access) => grants.artifacts.is_some_and(|granted| granted >= access),
            Self::State(access, key) => grants.allows_state(access, key),
            Self::Tool(name) => {
                let is_own = name.split_once('/').is_some_and(|(owner, _)| owner == component);
                is_own || any(&grants.tools, name)
            }
        }
    }

    /// What it is, after "may not".
    fn action(self) -> String {
        match self {
            Self::Model(name) => format!("ask the model `{}`", shown(name)),
            Self::Memory => "search the user's memory".into(),
            Self::Artifacts(Access::Read) => "read artifacts".into(),
            Self::Artifacts(Access::Write) => "save and delete artifacts".into(),
            Self::State(Access::Read, key) => format!("read the state key `{}`", shown(key)),
            Self::State(Access::Write, key) => format!("set the state key `{}`", shown(key)),
            Self::Tool(name) => format!("call the tool `{}`", shown(name)),
        }
    }

    /// The line that grants it and no more.
    fn grant(self) -> String {
        match self {
            Self::Model(name) => format!("models: [{}]", exactly(name)),
            Self::Memory => "memory: true".into(),
            Self::Artifacts(access) => format!("artifacts: {access}"),
            Self::State(access, key) => format!("state: {{{access}: [{}]}}", exactly(key)),
            Self::Tool(name) => format!("tools: [{}]", exactly(name)),
        }
    }
}

/// A pattern for one name, as YAML.
fn exactly(name: &str) -> String {
    quoted(&Pattern::exactly(name))
}

/// A text as YAML, which takes quoted text as JSON has it.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The begin of what a guest says, for a message.
fn shown(name: &str) -> String {
    let begin = name.get(..name.floor_char_boundary(128)).unwrap_or(name);
    let dots = if begin.len() < name.len() { "…" } else { "" };
    format!("{}{dots}", plain(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(state: &str) -> Grants {
        serde_json::from_str(&format!("{{\"state\": {state}}}")).unwrap()
    }

    #[test]
    fn state_of_the_session_needs_no_grant() {
        let none = Grants::default();
        for key in ["visits", "temp:x", "users", ""] {
            assert!(none.allows_state(Access::Write, key), "{key}");
        }
        for key in ["user:visits", "app:theme", "app:user:x"] {
            assert!(!none.allows_state(Access::Read, key), "{key}");
        }
    }

    #[test]
    fn what_may_be_set_may_be_read() {
        let some = grants(r#"{"read": ["app:theme"], "write": ["user:*"]}"#);
        assert!(some.allows_state(Access::Read, "app:theme") && !some.allows_state(Access::Write, "app:theme"));
        assert!(some.allows_state(Access::Read, "user:a") && some.allows_state(Access::Write, "user:a"));
        assert!(!some.allows_state(Access::Read, "app:themes"));
    }

    #[test]
    fn a_name_cannot_smuggle_lines_or_stars_into_the_grant() {
        let name = "m\"]\n    memory: true\n*";
        assert_eq!(Want::Model(name).grant(), r#"models: ["m\"]\n    memory: true\n\\*"]"#);
        assert_eq!(Want::Model(name).action(), r#"ask the model `m"]\n    memory: true\n*`"#);
        assert!(Want::Model(&"x".repeat(10_000)).action().len() < 200);
    }

    #[test]
    fn only_the_component_s_own_tools_are_free() {
        let none = Grants::default();
        assert!(Want::Tool("search/find").is_granted(&none, "search"));
        for name in ["search2/find", "find", "agent:search", "search"] {
            assert!(!Want::Tool(name).is_granted(&none, "search"), "{name}");
        }
    }
}
