//! Session state: values by key. A prefix of the key determines its scope.

use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::json::JsonMap;
use crate::json::json_len;

/// The value by which some ADK clients delete a key in a state delta; others write `null`.
const REMOVED: &str = "__ADK_SENTINEL_REMOVED__";

/// The scope of a state key: which sessions share it.
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
    /// Splits a key into its scope and its name without the prefix.
    pub fn split_key(key: &str) -> (Self, &str) {
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

    /// Returns the prefix of the keys of this scope.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Session => "",
            Self::User => "user:",
            Self::App => "app:",
            Self::Temp => "temp:",
        }
    }
}

/// Returns true if the value deletes its key in a state delta.
pub fn is_state_removal(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some(REMOVED)
}

/// Returns the size in bytes that quotas count for a key: its name, and its value as JSON.
pub fn state_entry_bytes(key: &str, value: &Value) -> u64 {
    (key.len() + json_len(value)) as u64
}

/// Values by key, including the prefix. Cheap to clone: clones share their data (copy on write).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State(OrdMap<Arc<str>, Arc<Value>>);

impl State {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).map(AsRef::as_ref)
    }

    /// Sets a key, or deletes it if the value is a [removal](is_state_removal).
    pub fn set(&mut self, key: &str, value: Value) {
        if is_state_removal(&value) {
            self.0.remove(key);
        } else {
            self.0.insert(key.into(), Arc::new(value));
        }
    }

    /// Applies all entries of a delta.
    pub fn apply(&mut self, delta: &JsonMap) {
        for (key, value) in delta {
            self.set(key, value.clone());
        }
    }

    /// Adds all keys of another state, and shares its values.
    pub fn merge(&mut self, other: &Self) {
        for (key, value) in &other.0 {
            self.0.insert(key.clone(), value.clone());
        }
    }

    /// Returns the entries, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    /// Keeps only the keys for which `keep` returns true.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        let dropped: Vec<_> = self.0.keys().filter(|key| !keep(key)).cloned().collect();
        for key in dropped {
            self.0.remove(&key);
        }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no keys.
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

impl From<&State> for JsonMap {
    fn from(state: &State) -> Self {
        state.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect()
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
