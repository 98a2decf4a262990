//! Permissions: the operations that need a grant, and the check of a permission against [`Grants`].

use std::sync::Arc;

use hatchery_core::{ItemKind, StateScope, escape_control, truncate_bytes};

use super::pattern::Pattern;
use super::{Access, Denial, Grants};
use crate::contract::convert::wit;

/// An operation that needs a grant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Permission<'a> {
    /// Call the model of this name.
    Model(&'a str),
    /// Search the user's memory, or also add to it.
    Memory(Access),
    /// Access artifacts.
    Artifacts(Access),
    /// Run the app of this name.
    Run(&'a str),
    /// Access the user's sessions of the app of this name.
    Sessions(Access, &'a str),
    /// Access a state key.
    State(Access, &'a str),
    /// Call the tool with this qualified name.
    Tool(&'a str),
    /// Use an item with this qualified name in an agent. A toolset is named by its component.
    Item(ItemKind, &'a str),
}

/// Prefix of the names of models that components export.
const COMPONENT_MODEL: &str = "component:";

impl Grants {
    /// Checks that these grants of `component` include `permission`.
    ///
    /// # Errors
    /// Returns the refusal, with the configuration lines that would grant the permission.
    pub(crate) fn check(&self, component: &Arc<str>, permission: Permission<'_>) -> Result<(), Denial> {
        if permission.is_granted(self, component) {
            if let Some((key, entry)) = permission.granted_by(self, component) {
                self.uses.count(key, entry);
            }
            return Ok(());
        }
        self.uses.count_refusal(permission.key());
        let denial = Denial::new(component, permission.action(), permission.grant());
        Err(match permission.private_owner(self, component) {
            Some(owner) => denial.for_private_owner(owner),
            None => denial,
        })
    }

    /// Returns true if the component's code may read the state key.
    pub(crate) fn can_read_state(&self, key: &str) -> bool {
        self.allows_state(Access::Read, key)
    }

    /// Removes state that the component may not read from the event.
    pub(crate) fn redact_state(&self, mut event: wit::Event) -> wit::Event {
        event.actions.state_delta.retain(|(key, _)| self.can_read_state(key));
        event
    }

    fn allows_state(&self, access: Access, key: &str) -> bool {
        match (StateScope::split_key(key).0, access) {
            (StateScope::Session | StateScope::Temp, _) => true,
            (StateScope::User | StateScope::App, Access::Read) => {
                any(&self.state.read, key) || any(&self.state.write, key)
            }
            (StateScope::User | StateScope::App, Access::Write) => any(&self.state.write, key),
        }
    }
}

fn any(patterns: &[Pattern], name: &str) -> bool {
    find(patterns, name).is_some()
}

/// Returns the first pattern that matches a name.
fn find<'a>(patterns: &'a [Pattern], name: &str) -> Option<&'a str> {
    patterns.iter().find(|pattern| pattern.matches(name)).map(Pattern::as_str)
}

/// Returns the first pattern that matches a name, with the key of its list.
fn find_in<'a>(lists: &[(&'static str, &'a [Pattern])], name: &str) -> Option<(&'static str, &'a str)> {
    lists.iter().find_map(|(key, patterns)| Some((*key, find(patterns, name)?)))
}

/// Returns true for the component's own models, which need no grant: models that it exports, and scripts with its name
/// or in the folder of its name.
fn is_own_model(component: &str, model: &str) -> bool {
    if let Some(path) = model.strip_prefix(COMPONENT_MODEL) {
        return path.split_once('/').is_some_and(|(owner, _)| owner == component);
    }
    let path = model.strip_prefix("scripted:").or_else(|| model.strip_prefix("scripted-live:"));
    let rest = path.and_then(|path| path.strip_prefix(component));
    rest.is_some_and(|rest| rest.starts_with('/') || (rest.starts_with('.') && !rest.contains('/')))
}

impl<'a> Permission<'a> {
    /// Returns true if `grants` of `component` include this permission.
    pub(crate) fn is_granted(self, grants: &Grants, component: &str) -> bool {
        if self.private_owner(grants, component).is_some() {
            return false;
        }
        match self {
            Self::Model(name) => is_own_model(component, name) || any(&grants.models, name),
            Self::Memory(access) => grants.memory.is_some_and(|granted| granted >= access),
            Self::Artifacts(access) => grants.artifacts.is_some_and(|granted| granted >= access),
            Self::Run(app) => any(&grants.runs, app),
            Self::Sessions(Access::Read, app) => any(&grants.sessions.read, app) || any(&grants.sessions.write, app),
            Self::Sessions(Access::Write, app) => any(&grants.sessions.write, app),
            Self::State(access, key) => grants.allows_state(access, key),
            Self::Tool(name) => {
                let is_own = name.split_once('/').is_some_and(|(owner, _)| owner == component);
                is_own || any(&grants.tools, name)
            }
            Self::Item(kind, name) => {
                let is_own = self.owner().is_some_and(|owner| owner == component);
                is_own
                    || match Pattern::try_from(item_pattern(kind, name)) {
                        Ok(required) => grants.tools.iter().any(|pattern| pattern.covers(&required)),
                        Err(_) => false,
                    }
            }
        }
    }

    /// Returns the entry of `grants` that includes this permission, with its key. `None` if none does, or none is
    /// needed.
    fn granted_by<'g>(self, grants: &'g Grants, component: &str) -> Option<(&'static str, &'g str)> {
        let Grants { models, memory, artifacts, runs, state, sessions, tools, .. } = grants;
        match self {
            Self::Model(name) if is_own_model(component, name) => None,
            Self::Model(name) => Some(("models", find(models, name)?)),
            Self::Memory(_) => memory.map(|granted| ("memory", granted.name())),
            Self::Artifacts(_) => artifacts.map(|granted| ("artifacts", granted.name())),
            Self::Run(app) => Some(("runs", find(runs, app)?)),
            Self::Sessions(Access::Read, app) => {
                find_in(&[("sessions.read", &sessions.read), ("sessions.write", &sessions.write)], app)
            }
            Self::Sessions(Access::Write, app) => find_in(&[("sessions.write", &sessions.write)], app),
            Self::State(access, key) => match (StateScope::split_key(key).0, access) {
                (StateScope::Session | StateScope::Temp, _) => None,
                (StateScope::User | StateScope::App, Access::Read) => {
                    find_in(&[("state.read", &state.read), ("state.write", &state.write)], key)
                }
                (StateScope::User | StateScope::App, Access::Write) => find_in(&[("state.write", &state.write)], key),
            },
            Self::Tool(_) | Self::Item(..) if self.owner().is_some_and(|owner| owner == component) => None,
            Self::Tool(name) => Some(("tools", find(tools, name)?)),
            Self::Item(kind, name) => {
                let required = Pattern::try_from(item_pattern(kind, name)).ok()?;
                Some(("tools", tools.iter().find(|pattern| pattern.covers(&required))?.as_str()))
            }
        }
    }

    /// Returns the key below `grants:`.
    fn key(self) -> &'static str {
        match self {
            Self::Model(_) => "models",
            Self::Memory(_) => "memory",
            Self::Artifacts(_) => "artifacts",
            Self::Run(_) => "runs",
            Self::Sessions(Access::Read, _) => "sessions.read",
            Self::Sessions(Access::Write, _) => "sessions.write",
            Self::State(Access::Read, _) => "state.read",
            Self::State(Access::Write, _) => "state.write",
            Self::Tool(_) | Self::Item(..) => "tools",
        }
    }

    /// Returns the component that exports the item. `None` if no component does.
    fn owner(self) -> Option<&'a str> {
        match self {
            Self::Item(ItemKind::Toolset, name) => Some(name.split_once('/').map_or(name, |(owner, _)| owner)),
            Self::Tool(name) | Self::Item(_, name) => Some(name.split_once('/')?.0),
            Self::Model(name) => Some(name.strip_prefix(COMPONENT_MODEL)?.split_once('/')?.0),
            Self::Memory(_) | Self::Artifacts(_) | Self::State(..) | Self::Run(_) | Self::Sessions(..) => None,
        }
    }

    /// Returns the owner of the item, if the owner is another component and private.
    pub(crate) fn private_owner(self, grants: &Grants, component: &str) -> Option<&'a str> {
        self.owner().filter(|owner| *owner != component && grants.private_components.contains(*owner))
    }

    /// Describes the operation as a phrase that follows "may not".
    fn action(self) -> String {
        match self {
            Self::Model(name) => format!("ask the model `{}`", excerpt(name)),
            Self::Memory(Access::Read) => "search the user's memory".into(),
            Self::Memory(Access::Write) => "add to the user's memory".into(),
            Self::Artifacts(Access::Read) => "read artifacts".into(),
            Self::Artifacts(Access::Write) => "save and delete artifacts".into(),
            Self::Run(app) => format!("run the app `{}`", excerpt(app)),
            Self::Sessions(Access::Read, app) => format!("read the user's sessions of the app `{}`", excerpt(app)),
            Self::Sessions(Access::Write, app) => format!("change the user's sessions of the app `{}`", excerpt(app)),
            Self::State(Access::Read, key) => format!("read the state key `{}`", excerpt(key)),
            Self::State(Access::Write, key) => format!("set the state key `{}`", excerpt(key)),
            Self::Tool(name) => format!("call the tool `{}`", excerpt(name)),
            Self::Item(kind, name) => format!("use the {} `{}`", kind.label(), excerpt(name)),
        }
    }

    /// Returns the line below `grants:` that grants exactly this permission.
    fn grant(self) -> String {
        match self {
            Self::Model(name) => format!("models: [{}]", exactly(name)),
            Self::Memory(access) => format!("memory: {access}"),
            Self::Artifacts(access) => format!("artifacts: {access}"),
            Self::Run(app) => format!("runs: [{}]", exactly(app)),
            Self::Sessions(access, app) => format!("sessions: {{{access}: [{}]}}", exactly(app)),
            Self::State(access, key) => format!("state: {{{access}: [{}]}}", exactly(key)),
            Self::Tool(name) => format!("tools: [{}]", exactly(name)),
            Self::Item(kind, name) => format!("tools: [{}]", quote(&item_pattern(kind, name))),
        }
    }
}

/// Returns the pattern below `tools` that grants the use of exactly this item.
pub(super) fn item_pattern(kind: ItemKind, name: &str) -> String {
    match kind {
        ItemKind::Agent => Pattern::exactly(&format!("agent:{name}")),
        ItemKind::Toolset => format!("{}/*", Pattern::exactly(name)),
        ItemKind::Tool
        | ItemKind::Callback
        | ItemKind::Plugin
        | ItemKind::CodeExecutor
        | ItemKind::Summarizer
        | ItemKind::Examples
        | ItemKind::Model => Pattern::exactly(name),
    }
}

/// Returns a pattern for one name, as YAML.
fn exactly(name: &str) -> String {
    quote(&Pattern::exactly(name))
}

/// Quotes a text for YAML, which accepts JSON strings.
pub(super) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the beginning of a text from a guest, escaped for a message.
fn excerpt(name: &str) -> String {
    escape_control(&truncate_bytes(name, 128)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(state: &str) -> Grants {
        serde_json::from_str(&format!("{{\"state\": {state}}}")).unwrap()
    }

    #[test]
    fn session_state_needs_no_grant() {
        let none = Grants::default();
        for key in ["visits", "temp:x", "users", ""] {
            assert!(none.allows_state(Access::Write, key), "{key}");
        }
        for key in ["user:visits", "app:theme", "app:user:x"] {
            assert!(!none.allows_state(Access::Read, key), "{key}");
        }
    }

    #[test]
    fn a_tool_that_is_named_by_a_star_is_not_the_toolset() {
        let granted: Grants = serde_json::from_str(r#"{"tools": ["search/\\*"]}"#).unwrap();
        let check = |kind, name| granted.check(&"own".into(), Permission::Item(kind, name)).is_ok();
        assert!(check(ItemKind::Tool, "search/*"));
        assert!(!check(ItemKind::Toolset, "search"));
    }

    #[test]
    fn a_key_that_may_be_set_may_be_read() {
        let state = grants(r#"{"read": ["app:theme"], "write": ["user:*"]}"#);
        assert!(state.allows_state(Access::Read, "app:theme") && !state.allows_state(Access::Write, "app:theme"));
        assert!(state.allows_state(Access::Read, "user:a") && state.allows_state(Access::Write, "user:a"));
        assert!(!state.allows_state(Access::Read, "app:themes"));
    }

    #[test]
    fn a_name_cannot_smuggle_lines_or_stars_into_the_grant() {
        let name = "m\"]\n    memory: true\n*";
        assert_eq!(Permission::Model(name).grant(), r#"models: ["m\"]\n    memory: true\n\\*"]"#);
        assert_eq!(Permission::Model(name).action(), r#"ask the model `m"]\n    memory: true\n*`"#);
        assert!(Permission::Model(&"x".repeat(10_000)).action().len() < 200);
    }

    #[test]
    fn the_entry_that_allows_an_operation_is_counted_and_a_refusal_by_its_key() {
        let grants: Grants = serde_json::from_str(
            r#"{"models": ["gpt-*", "gpt-5"], "memory": "write", "tools": ["search/*"], "runs": ["clerk"],
                "state": {"read": ["app:*"], "write": ["user:*"]}, "sessions": {"write": ["diary"]}}"#,
        )
        .unwrap();
        let component: Arc<str> = "own".into();
        let allowed = [
            Permission::Model("gpt-5"),
            Permission::Model("gpt-4"),
            Permission::Model("component:own/fair"),
            Permission::Memory(Access::Read),
            Permission::Tool("search/find"),
            Permission::Tool("own/find"),
            Permission::Item(ItemKind::Toolset, "search"),
            Permission::Run("clerk"),
            Permission::State(Access::Read, "user:a"),
            Permission::State(Access::Read, "app:a"),
            Permission::State(Access::Write, "visits"),
            Permission::Sessions(Access::Read, "diary"),
        ];
        allowed.into_iter().for_each(|permission| grants.check(&component, permission).unwrap());
        for permission in [Permission::Artifacts(Access::Read), Permission::Model("x"), Permission::Model("y")] {
            grants.check(&component, permission).unwrap_err();
        }
        let used = grants.clone().uses.used();
        let used: Vec<_> = used
            .iter()
            .flat_map(|(key, entries)| entries.iter().map(move |(entry, count)| format!("{key} {entry} {count}")))
            .collect();
        let expected = [
            "memory write 1",
            "models gpt-* 2",
            "runs clerk 1",
            "sessions.write diary 1",
            "state.read app:* 1",
            "state.write user:* 1",
            "tools search/* 2",
        ];
        assert_eq!(used, expected);
        assert_eq!(Vec::from_iter(grants.uses.refused()), [("artifacts", 1), ("models", 2)]);
        assert_eq!(grants, Grants { uses: Default::default(), ..grants.clone() }, "uses are no part of a comparison");
        assert_ne!(grants, Grants { runs: Vec::new(), ..grants.clone() });
    }

    #[test]
    fn models_and_scripts_of_the_component_itself_are_free() {
        let none = Grants::default();
        let own = [
            "component:dice/fair",
            "scripted:dice/answers.yaml",
            "scripted:dice.yaml",
            "scripted-live:dice/answers.yaml",
        ];
        for name in own {
            assert!(Permission::Model(name).is_granted(&none, "dice"), "{name}");
        }
        for name in [
            "component:dice2/fair",
            "component:dice",
            "scripted:dice2/answers.yaml",
            "scripted:other/dice/answers.yaml",
            "scripted:dice",
            "scripted:dice.d/answers.yaml",
            "scripted:../dice/answers.yaml",
            "scripted-live:other.yaml",
            "dice/answers.yaml",
            "gemini-2.5-flash",
        ] {
            assert!(!Permission::Model(name).is_granted(&none, "dice"), "{name}");
        }
    }

    #[test]
    fn items_of_others_are_granted_below_tools() {
        let grants: Grants =
            serde_json::from_str(r#"{"tools": ["a/*", "b/find", "agent:c/*", "url_context"]}"#).unwrap();
        let granted = |kind, name| Permission::Item(kind, name).is_granted(&grants, "own");
        for (kind, name) in [
            (ItemKind::Toolset, "a"),
            (ItemKind::Toolset, "own"),
            (ItemKind::Callback, "a/guard"),
            (ItemKind::Tool, "b/find"),
            (ItemKind::Agent, "c/clerk"),
            (ItemKind::Agent, "own/clerk"),
            (ItemKind::Tool, "url_context"),
        ] {
            assert!(granted(kind, name), "{name}");
        }
        for (kind, name) in [
            (ItemKind::Toolset, "b"),
            (ItemKind::Toolset, "c"),
            (ItemKind::Agent, "a/clerk"),
            (ItemKind::Tool, "c/clerk"),
            (ItemKind::Tool, "google_search"),
        ] {
            assert!(!granted(kind, name), "{name}");
        }
        assert_eq!(Permission::Item(ItemKind::Agent, "c/clerk").grant(), "tools: [\"agent:c/clerk\"]");
        assert_eq!(Permission::Item(ItemKind::Toolset, "b").grant(), "tools: [\"b/*\"]");
    }

    #[test]
    fn a_private_component_is_granted_to_nobody_else() {
        let mut grants: Grants = serde_json::from_str(r#"{"tools": ["*"], "models": ["*"]}"#).unwrap();
        grants.private_components.insert("vault".into());
        let component: Arc<str> = "evil".into();
        for permission in [
            Permission::Tool("vault/fetch"),
            Permission::Item(ItemKind::Toolset, "vault"),
            Permission::Item(ItemKind::Agent, "vault/clerk"),
            Permission::Model("component:vault/puppet"),
        ] {
            assert!(permission.is_granted(&grants, "vault"), "{permission:?}");
            let denial = grants.check(&component, permission).unwrap_err();
            let denied = denial.to_string();
            assert!(
                denied.starts_with("component `evil` may not ") && denied.ends_with(": component `vault` is private"),
                "{denied}"
            );
            let advice = " (`components.vault.private` in hatchery.yaml), so only YAML agents and its own agents may use its items";
            assert_eq!(denial.for_operator(), format!("{denied}{advice}"));
        }
        assert!(Permission::Tool("vaults/fetch").is_granted(&grants, "evil"));
    }

    #[test]
    fn only_the_component_s_own_tools_are_free() {
        let none = Grants::default();
        assert!(Permission::Tool("search/find").is_granted(&none, "search"));
        for name in ["search2/find", "find", "agent:search", "search"] {
            assert!(!Permission::Tool(name).is_granted(&none, "search"), "{name}");
        }
    }
}
