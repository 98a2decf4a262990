//! Session state: values by key, where a prefix of the key says who shares it.

use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::content::JsonMap;
use crate::json_len::json_len;

/// Written by some ADK clients in a state delta where others write `null`: the key is to be deleted.
const REMOVED: &str = "__ADK_SENTINEL_REMOVED__";

/// Who shares a state key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateScope {
    /// This session (no prefix).
    Session,
    /// All sessions of a user in one app (`user:`).
    User,
    /// All sessions of an app (`app:`).
    App,
    /// This invocation only; never stored (`temp:`).
    Temp,
}

impl StateScope {
    /// Splits a key into its scope and its bare name.
    pub fn of(key: &str) -> (Self, &str) {
        if let Some(bare) = key.strip_prefix("app:") {
            (Self::App, bare)
        } else if let Some(bare) = key.strip_prefix("user:") {
            (Self::User, bare)
        } else if let Some(bare) = key.strip_prefix("temp:") {
            (Self::Temp, bare)
        } else {
            (Self::Session, key)
        }
    }

    /// The prefix of its keys.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Session => "",
            Self::User => "user:",
            Self::App => "app:",
            Self::Temp => "temp:",
        }
    }
}

/// True for a value that in a delta means "delete this key".
pub fn is_state_removal(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some(REMOVED)
}

/// Bytes that quotas count for a key: those of its name and of its value as JSON.
pub fn state_entry_bytes(key: &str, value: &Value) -> u64 {
    (key.len() + json_len(value)) as u64
}

/// Values by full key (with prefix). Cloning costs nothing: clones share their data until one of them changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State(OrdMap<Arc<str>, Arc<Value>>);

impl State {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).map(AsRef::as_ref)
    }

    /// Sets a key; a removal (see [`is_state_removal`]) deletes it.
    pub fn set(&mut self, key: &str, value: Value) {
        if is_state_removal(&value) {
            self.0.remove(key);
        } else {
            self.0.insert(key.into(), Arc::new(value));
        }
    }

    /// Applies every entry of a delta.
    pub fn apply(&mut self, delta: &JsonMap) {
        for (key, value) in delta {
            self.set(key, value.clone());
        }
    }

    /// Takes over all keys of another state, sharing its values.
    pub fn merge(&mut self, other: &Self) {
        for (key, value) in &other.0 {
            self.0.insert(key.clone(), value.clone());
        }
    }

    /// Keys with their values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    /// Keeps only the entries for which `keep` says so.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        let dropped: Vec<_> = self.0.keys().filter(|key| !keep(key)).cloned().collect();
        for key in dropped {
            self.0.remove(&key);
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&JsonMap> for State {
    fn from(map: &JsonMap) -> Self {
        let mut state = Self::default();
        state.apply(map);
        state
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        JsonMap::deserialize(deserializer).map(|map| Self::from(&map))
    }
}
