//! Grants that a component requests: JSON in its custom section `hatchery:requests`, with the keys of `grants`.

use std::collections::BTreeMap;

use serde::Deserialize;
use wasmparser::{Parser, Payload};

use super::files::GuestPath;
use super::permission::item_pattern;
use super::{Access, HostPattern, Pattern, Permission, SessionGrants, StateGrants};
use crate::error::LoadError;

/// Name of the custom section. Sections of the component's core modules count as well, because that is where compilers
/// put them.
const SECTION: &str = "hatchery:requests";

/// Maximum total size of these sections, in bytes.
const MAX_SECTION: usize = 64 << 10;

/// Grants that a component requests. A request grants nothing by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestedGrants {
    /// See [`Grants::models`](super::Grants::models).
    pub models: Vec<Pattern>,
    /// See [`Grants::memory`](super::Grants::memory).
    pub memory: Option<Access>,
    /// See [`Grants::artifacts`](super::Grants::artifacts).
    pub artifacts: Option<Access>,
    /// See [`Grants::state`](super::Grants::state).
    pub state: StateGrants,
    /// See [`Grants::runs`](super::Grants::runs).
    pub runs: Vec<Pattern>,
    /// See [`Grants::sessions`](super::Grants::sessions).
    pub sessions: SessionGrants,
    /// See [`Grants::tools`](super::Grants::tools).
    pub tools: Vec<Pattern>,
    /// Names of environment variables.
    pub environment: Vec<String>,
    /// Folders by their path in the component.
    pub files: Vec<RequestedFolder>,
    pub network: Vec<HostPattern>,
    /// Reasons by key, for example of `models`.
    pub why: BTreeMap<String, String>,
}

/// A folder that a component requests.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestedFolder {
    pub guest: GuestPath,
    #[serde(default)]
    pub access: Access,
}

impl RequestedGrants {
    /// Reads the requests from a component's bytes. `None` if it declares none.
    ///
    /// # Errors
    /// If the sections are too large or are not valid requests.
    pub(crate) fn read(component: &str, bytes: &[u8]) -> Result<Option<Self>, LoadError> {
        let failed = |reason: String| LoadError::Requests { component: component.into(), reason };
        let mut text = Vec::new();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(|error| failed(error.to_string()))? {
                Payload::CustomSection(section) if section.name() == SECTION => text.extend_from_slice(section.data()),
                _ => {}
            }
        }
        if text.len() > MAX_SECTION {
            return Err(failed(format!(
                "its section `{SECTION}` has {} bytes, and {MAX_SECTION} are allowed",
                text.len()
            )));
        }
        // Linkers concatenate sections of the same name.
        let mut requested: Option<Self> = None;
        for declared in serde_json::Deserializer::from_slice(&text).into_iter::<Self>() {
            let declared = declared.map_err(|error| failed(error.to_string()))?;
            requested.get_or_insert_default().merge(declared);
        }
        Ok(requested)
    }

    /// Adds a request for one permission.
    pub(crate) fn add_permission(&mut self, permission: Permission<'_>) {
        let add = |patterns: &mut Vec<Pattern>, text: String| {
            let pattern = Pattern::try_from(text).ok().filter(|pattern| !patterns.contains(pattern));
            patterns.extend(pattern);
        };
        match permission {
            Permission::Model(name) => add(&mut self.models, Pattern::exactly(name)),
            Permission::Memory(access) => self.memory = self.memory.max(Some(access)),
            Permission::Artifacts(access) => self.artifacts = self.artifacts.max(Some(access)),
            Permission::State(Access::Read, key) => add(&mut self.state.read, Pattern::exactly(key)),
            Permission::State(Access::Write, key) => add(&mut self.state.write, Pattern::exactly(key)),
            Permission::Run(app) => add(&mut self.runs, Pattern::exactly(app)),
            Permission::Sessions(Access::Read, app) => add(&mut self.sessions.read, Pattern::exactly(app)),
            Permission::Sessions(Access::Write, app) => add(&mut self.sessions.write, Pattern::exactly(app)),
            Permission::Tool(name) => add(&mut self.tools, Pattern::exactly(name)),
            Permission::Item(kind, name) => add(&mut self.tools, item_pattern(kind, name)),
        }
    }

    fn merge(&mut self, more: Self) {
        self.models.extend(more.models);
        self.memory = self.memory.max(more.memory);
        self.artifacts = self.artifacts.max(more.artifacts);
        self.state.read.extend(more.state.read);
        self.state.write.extend(more.state.write);
        self.runs.extend(more.runs);
        self.sessions.read.extend(more.sessions.read);
        self.sessions.write.extend(more.sessions.write);
        self.tools.extend(more.tools);
        self.environment.extend(more.environment);
        self.files.extend(more.files);
        self.network.extend(more.network);
        self.why.extend(more.why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(wat: &str) -> Result<Option<RequestedGrants>, String> {
        RequestedGrants::read("made", &wat::parse_str(wat).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn requests_of_all_modules_count() {
        let requests = read(
            r#"(component
                (core module (@custom "hatchery:requests" "{\"models\": [\"a-*\"], \"why\": {\"models\": \"to think\"}}"))
                (core module (@custom "hatchery:requests" "{\"memory\": \"read\"}{\"artifacts\": \"write\"}"))
                (core module (@custom "other" "x")))"#,
        );
        let requests = requests.unwrap().unwrap();
        assert_eq!(requests.models[0].as_str(), "a-*");
        assert_eq!((requests.memory, requests.artifacts), (Some(Access::Read), Some(Access::Write)));
        assert_eq!(requests.why["models"], "to think");
        assert_eq!(read("(component)"), Ok(None));
    }

    #[test]
    fn requests_that_cannot_be_understood_are_an_error() {
        let error = read(r#"(component (core module (@custom "hatchery:requests" "{\"gpu\": true}")))"#).unwrap_err();
        assert!(
            error.starts_with("component `made` has a request that this host does not understand: unknown field `gpu`, expected one of `models`"),
            "{error}"
        );
        assert!(error.ends_with("rebuild it with `hatchery build`"), "{error}");
    }
}
