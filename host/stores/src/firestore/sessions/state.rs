//! State in documents: a map with the JSON of each value, so that a change writes only the keys that it changes, and
//! every number and every nesting survives.

use hatchery_core::{JsonMap, SessionKey, State, StateScope, StateUsage, is_state_removal};
use serde_json::Value as Json;

use crate::firestore::document::{Document, Fields, Map, Value, Write, fields, quote};
use crate::firestore::{keys, names};

/// Returns the field of a state key. Firestore reserves names that begin with `__`, and has no empty ones.
fn field_of(key: &str) -> String {
    if key.is_empty() || key.starts_with("__") || key.starts_with('%') { format!("%{key}") } else { key.to_owned() }
}

fn key_of(field: &str) -> &str {
    field.strip_prefix('%').unwrap_or(field)
}

/// Returns the path of a session's own key.
pub(super) fn field_path(key: &str) -> String {
    format!("{}.{}", keys::STATE, quote(&field_of(key)))
}

/// Returns the entries of a delta without those that are never stored.
pub(super) fn storable(delta: &JsonMap) -> JsonMap {
    let is_stored = |key: &str| StateScope::split_key(key).0 != StateScope::Temp;
    delta.iter().filter(|(key, _)| is_stored(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns the keys of a delta without a prefix.
pub(super) fn session_values(delta: &JsonMap) -> impl Iterator<Item = (&str, &Json)> {
    delta
        .iter()
        .filter(|(key, _)| StateScope::split_key(key).0 == StateScope::Session)
        .map(|(key, value)| (key.as_str(), value))
}

/// Returns the state of a document, with the prefix of its scope.
fn read(document: &Document, scope: StateScope) -> State {
    let mut state = State::default();
    for (field, value) in document.map(keys::STATE) {
        let Value::String(json) = value else { continue };
        match serde_json::from_str(json) {
            Ok(value) => state.set(&format!("{}{}", scope.prefix(), key_of(field)), value),
            Err(error) => {
                tracing::error!(document = document.name, field, %error, "a stored state value cannot be read");
            }
        }
    }
    state
}

/// Returns the state of the documents of an app and of a user.
pub(super) fn read_shared(documents: &[Option<Document>]) -> State {
    let mut state = State::default();
    for (document, scope) in documents.iter().zip([StateScope::App, StateScope::User]) {
        if let Some(document) = document {
            state.merge(&read(document, scope));
        }
    }
    state
}

/// Returns the state of a session's document.
pub(super) fn read_session_state(document: &Document) -> State {
    read(document, StateScope::Session)
}

/// Returns the value of a document's field for a session's own state, and its usage.
pub(super) fn session_fields(own: &State) -> (Value, StateUsage) {
    let mut usage = StateUsage::default();
    let mut fields = Fields::new();
    for (key, value) in own.iter() {
        let json = value.to_string();
        usage.keys += 1;
        usage.bytes += (key.len() + json.len()) as u64;
        fields.insert(field_of(key), json.into());
    }
    (Value::Map(Map { fields }), usage)
}

/// Returns the JSON of a session's own keys.
pub(super) fn to_json(own: &State) -> String {
    // Values with string keys can always be written.
    serde_json::to_string(own).unwrap_or_else(|_| "{}".into())
}

/// Returns the writes of shared state of a new session, and its own state.
pub(super) fn initial_writes(key: &SessionKey, state: &JsonMap) -> (Vec<Write>, State) {
    let mut own = State::from(state);
    own.retain(|key| StateScope::split_key(key).0 == StateScope::Session);
    (shared_writes(key, state), own)
}

/// Returns the writes of the keys of a delta that sessions share.
pub(super) fn shared_writes(key: &SessionKey, delta: &JsonMap) -> Vec<Write> {
    let app = || Write::merge(names::app_state(&key.app), fields([(keys::APP_NAME, (*key.app).into())]));
    let user = || {
        let fields = fields([(keys::APP_NAME, (*key.app).into()), (keys::USER_ID, (*key.user).into())]);
        Write::merge(names::user_state(&key.app, &key.user), fields)
    };
    let (mut app_write, mut user_write) = (None, None);
    for (name, value) in delta {
        let (scope, bare) = StateScope::split_key(name);
        let write = match scope {
            StateScope::App => app_write.get_or_insert_with(app),
            StateScope::User => user_write.get_or_insert_with(user),
            StateScope::Session | StateScope::Temp => continue,
        };
        write.set_map_key(keys::STATE, &field_of(bare), new_value(value));
    }
    app_write.into_iter().chain(user_write).collect()
}

/// A change of a session's own keys.
pub(super) struct SessionStateChange {
    /// The fields of the keys with their new values; `None` removes a key.
    pub(super) fields: Vec<(String, Option<Value>)>,
    /// The usage after the change.
    pub(super) usage: StateUsage,
}

impl SessionStateChange {
    /// Returns the change that a delta makes. The document must have the old values of its keys.
    pub(super) fn from_delta(document: &Document, delta: &JsonMap) -> Self {
        let mut usage =
            StateUsage { keys: document.unsigned(keys::STATE_KEYS), bytes: document.unsigned(keys::STATE_BYTES) };
        let mut fields = Vec::new();
        for (name, value) in session_values(delta) {
            let field = field_of(name);
            if let Some((_, Value::String(old))) = document.map(keys::STATE).find(|(other, _)| **other == field) {
                usage.keys = usage.keys.saturating_sub(1);
                usage.bytes = usage.bytes.saturating_sub((name.len() + old.len()) as u64);
            }
            let value = new_value(value);
            if let Some(Value::String(new)) = &value {
                usage.keys += 1;
                usage.bytes += (name.len() + new.len()) as u64;
            }
            fields.push((field, value));
        }
        Self { fields, usage }
    }
}

/// Returns the stored form of a value; `None` if it removes its key.
fn new_value(value: &Json) -> Option<Value> {
    (!is_state_removal(value)).then(|| value.to_string().into())
}
