//! Events and sessions in the format of Agent Engine, and their conversion.
//!
//! The fields that Agent Engine knows are filled, so that Google's console and ADK can read the events. Agent Engine
//! would lose other fields, and the precision of large numbers, so `rawEvent` contains the JSON of the event as text.
//! Events of other programs, such as ADK, have no such text and are converted from the fields.

use std::sync::Arc;

use hatchery_core::{Event, JsonMap, State, StateScope, Timestamp, is_state_removal};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The key in `rawEvent` with the JSON of the event.
const RAW_KEY: &str = "hatchery";

/// Fields of an event that Agent Engine has under the same name.
const SAME_FIELDS: [&str; 5] = ["author", "invocationId", "content", "errorCode", "errorMessage"];
/// Fields of an event that Agent Engine keeps in `eventMetadata`.
const METADATA_FIELDS: [&str; 7] =
    ["partial", "turnComplete", "interrupted", "branch", "longRunningToolIds", "groundingMetadata", "customMetadata"];
/// Actions that Agent Engine has, with its names for them.
const ACTIONS: [(&str, &str); 5] = [
    ("skipSummarization", "skipSummarization"),
    ("artifactDelta", "artifactDelta"),
    ("transferToAgent", "transferAgent"),
    ("escalate", "escalate"),
    ("requestedAuthConfigs", "requestedAuthConfigs"),
];
/// Keys of custom metadata in which ADK stores values for which Agent Engine has no field.
const ADK_COMPACTION: &str = "_compaction";
const ADK_USAGE: &str = "_usage_metadata";

/// A session of Agent Engine.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireSession {
    pub(super) name: String,
    #[serde(default)]
    pub(super) user_id: String,
    /// The app, in sessions that a host has created; empty in others.
    #[serde(default)]
    pub(super) display_name: String,
    #[serde(default)]
    pub(super) session_state: JsonMap,
    #[serde(default)]
    create_time: String,
    #[serde(default)]
    update_time: String,
}

impl WireSession {
    /// Returns the last segment of the name.
    pub(super) fn id(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    pub(super) fn created(&self) -> Timestamp {
        Timestamp::from_iso(&self.create_time).unwrap_or_default()
    }

    pub(super) fn updated(&self) -> Timestamp {
        Timestamp::from_iso(&self.update_time).unwrap_or_else(|| self.created())
    }

    /// Returns true if a host has created the session for an app.
    pub(super) fn names_app(&self, app: &str) -> bool {
        self.display_name == app
    }

    /// Returns true if the session is visible as a user's session in an app. Other programs do not name the app.
    pub(super) fn belongs_to(&self, app: &str, user: &str) -> bool {
        self.user_id == user && (self.display_name.is_empty() || self.display_name == app)
    }
}

/// Returns the request that creates a session.
pub(super) fn new_session(app: &str, user: &str, state: &State) -> Value {
    let state: Map<String, Value> = state.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
    json!({ "userId": user, "displayName": app, "sessionState": state })
}

/// Returns the stored form of a session's initial state.
pub(super) fn stored_state(state: &JsonMap) -> State {
    let mut state = State::from(state);
    state.retain(|key| StateScope::split_key(key).0 != StateScope::Temp);
    state
}

/// Returns an event in the format of Agent Engine.
pub(super) fn to_wire(event: &Event) -> Result<Value, serde_json::Error> {
    let json: Map<String, Value> = serde_json::from_slice(event.json())?;
    let mut wire = Map::new();
    for field in SAME_FIELDS {
        copy(&json, field, &mut wire, field);
    }
    // Agent Engine requires them.
    wire.entry("author").or_insert_with(|| "".into());
    wire.entry("invocationId").or_insert_with(|| "".into());
    wire.insert("timestamp".into(), event.timestamp.to_iso().into());
    let mut metadata = Map::new();
    for field in METADATA_FIELDS {
        copy(&json, field, &mut metadata, field);
    }
    wire.insert("eventMetadata".into(), metadata.into());
    let mut actions = Map::new();
    if let Some(Value::Object(own)) = json.get("actions") {
        for (field, theirs) in ACTIONS {
            copy(own, field, &mut actions, theirs);
        }
    }
    let delta = event.actions.state_delta.iter().filter(|(key, _)| StateScope::split_key(key).0 != StateScope::Temp);
    let delta =
        delta.map(|(key, value)| (key.clone(), if is_state_removal(value) { Value::Null } else { value.clone() }));
    actions.insert("stateDelta".into(), Value::Object(delta.collect()));
    wire.insert("actions".into(), actions.into());
    wire.insert("rawEvent".into(), json!({ RAW_KEY: String::from_utf8_lossy(event.json()) }));
    Ok(wire.into())
}

/// Returns an event from the format of Agent Engine.
pub(super) fn from_wire(mut wire: Map<String, Value>) -> Result<Arc<Event>, serde_json::Error> {
    if let Some(Value::String(raw)) = wire.get_mut("rawEvent").and_then(|raw| raw.get_mut(RAW_KEY)) {
        return Event::from_json(std::mem::take(raw));
    }
    let mut json = Map::new();
    let name = wire.get("name").and_then(Value::as_str).unwrap_or_default();
    json.insert("id".into(), name.rsplit('/').next().unwrap_or_default().into());
    for field in SAME_FIELDS {
        copy(&wire, field, &mut json, field);
    }
    let time = wire.get("timestamp").and_then(Value::as_str).and_then(Timestamp::from_iso).unwrap_or_default();
    json.insert("timestamp".into(), time.as_seconds().into());
    let mut actions = Map::new();
    if let Some(Value::Object(theirs)) = wire.get("actions") {
        actions.extend(theirs.iter().map(|(key, value)| (own_action(key).to_owned(), value.clone())));
    }
    if let Some(Value::Object(metadata)) = wire.get("eventMetadata") {
        for field in METADATA_FIELDS {
            copy(metadata, field, &mut json, field);
        }
        copy(metadata, "usageMetadata", &mut json, "usageMetadata");
    }
    if let Some(Value::Object(custom)) = json.get_mut("customMetadata") {
        if let Some(compaction) = custom.remove(ADK_COMPACTION) {
            actions.insert("compaction".into(), with_camel_case_keys(compaction));
        }
        if let Some(usage) = custom.remove(ADK_USAGE) {
            json.insert("usageMetadata".into(), with_camel_case_keys(usage));
        }
    }
    json.insert("actions".into(), actions.into());
    Event::from_json(serde_json::to_vec(&json)?)
}

/// Returns our name of an action by the name in Agent Engine.
fn own_action(theirs: &str) -> &str {
    ACTIONS.iter().find(|(_, name)| *name == theirs).map_or(theirs, |(own, _)| *own)
}

/// Renames keys such as `prompt_token_count`, as ADK for Python writes them.
fn with_camel_case_keys(value: Value) -> Value {
    let rename = |key: String| {
        let mut words = key.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |name, word| {
            let mut letters = word.chars();
            name + &letters.next().map(|letter| letter.to_ascii_uppercase()).into_iter().collect::<String>()
                + letters.as_str()
        })
    };
    match value {
        Value::Object(map) => {
            map.into_iter().map(|(key, value)| (rename(key), with_camel_case_keys(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(values) => values.into_iter().map(with_camel_case_keys).collect(),
        value => value,
    }
}

fn copy(from: &Map<String, Value>, field: &str, to: &mut Map<String, Value>, name: &str) {
    if let Some(value) = from.get(field).filter(|value| !value.is_null()) {
        to.insert(name.into(), value.clone());
    }
}
