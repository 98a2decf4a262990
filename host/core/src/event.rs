//! Events: the entries of a session's log, and the items that a run yields. The event log is the source of truth;
//! state, prompts and traces are derived from it.
//!
//! An event is built as [`EventData`], then frozen into a shared [`Event`]. Neither can be cloned: events are shared as
//! `Arc<Event>`. The JSON of an event is created at most once, when a store or a client first needs it, and cached.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::content::{Content, FunctionCall, FunctionResponse, Part, PartData};
use crate::extra::{Extra, KnownKeys};
use crate::json::JsonMap;
use crate::json::{json_bytes, json_len, merge_changes};
use crate::state::{State, StateScope};
use crate::time::Timestamp;

/// The author of events of the user.
pub const USER_AUTHOR: &str = "user";

/// The key of the custom metadata that contains the record of a paused run.
pub const PAUSED_RUN_KEY: &str = "hatchery:pausedRun";

/// The data of an event. Names and meaning of the fields follow ADK's `Event`; `None` and empty fields are omitted from
/// the JSON.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventData {
    /// A unique id; [`Event::new`] replaces an empty one by a UUID. Partial events have the id of the final event that
    /// they lead to.
    pub id: String,
    /// The id of the run, `e-<uuid>`.
    pub invocation_id: String,
    /// An agent's name, or `user`.
    pub author: String,
    /// The message; `None` in events that only change state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Arc<Content>>,
    /// Changes of the session and of the flow of the run.
    pub actions: EventActions,
    /// Whether the event is a chunk of a streamed response: it is yielded, but not stored, and does not change state.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_as_default")]
    pub partial: bool,
    /// Whether the model has finished its turn (live runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_complete: Option<bool>,
    /// Whether the model was interrupted (live runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<bool>,
    /// A stable error code; `None` if nothing failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The error as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The reason why the model stopped, such as `STOP` or `MAX_TOKENS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// Tokens used by the model call that led to this event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_metadata: Option<Box<UsageMetadata>>,
    /// Mean log probability of the response's tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_logprobs: Option<f64>,
    /// The version of the model that responded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_version: Option<String>,
    /// Dot-joined path of parallel branches. Agents do not see events of sibling branches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Sources of a grounded response, in the provider's format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grounding_metadata: Option<Box<Value>>,
    /// Metadata attached by a model provider or a client, and the [proof](crate::EventSigner) of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_metadata: Option<Box<Value>>,
    /// Transcription of audio input (live runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_transcription: Option<Box<Value>>,
    /// Transcription of audio output (live runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_transcription: Option<Box<Value>>,
    /// Ids of function calls whose result arrives later.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub long_running_tool_ids: Vec<String>,
    /// The time of creation; float seconds in JSON.
    pub timestamp: Timestamp,
}

impl KnownKeys for EventData {
    const NOUN: &'static str = "an event";
    const KEYS: &'static [&'static str] = &[
        "id",
        "invocationId",
        "author",
        "content",
        "actions",
        "partial",
        "turnComplete",
        "interrupted",
        "errorCode",
        "errorMessage",
        "finishReason",
        "usageMetadata",
        "avgLogprobs",
        "modelVersion",
        "branch",
        "groundingMetadata",
        "customMetadata",
        "inputTranscription",
        "outputTranscription",
        "longRunningToolIds",
        "timestamp",
    ];
}

impl EventData {
    /// Returns the record of a paused run in this event, which only the host uses.
    pub fn paused_run(&self) -> Option<&Value> {
        let is_record = self.author == USER_AUTHOR && self.content.is_none();
        self.custom_metadata.as_deref().filter(|_| is_record)?.get(PAUSED_RUN_KEY)
    }
}

/// The side effects of an event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventActions {
    /// State keys to set; `null` deletes a key.
    #[serde(deserialize_with = "null_as_default")]
    pub state_delta: JsonMap,
    /// Names of saved artifacts with their new versions.
    #[serde(deserialize_with = "null_as_default")]
    pub artifact_delta: BTreeMap<String, u64>,
    /// Names of deleted artifacts.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", deserialize_with = "null_as_default")]
    pub deleted_artifact_ids: BTreeSet<String>,
    /// Whether the function response is the final response, which the model does not summarize.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_summarization: Option<bool>,
    /// The name of the agent that continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_to_agent: Option<String>,
    /// Whether the nearest enclosing loop ends, and the parallel agents in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalate: Option<bool>,
    /// Whether the agent has ended its run. False in events of callbacks before it starts, and of callbacks that
    /// recover from its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_of_agent: Option<bool>,
    /// Whether the run ends with this event: no agent runs after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_invocation: Option<bool>,
    /// Credentials that tools request, by function call id.
    #[serde(skip_serializing_if = "is_empty", deserialize_with = "null_as_default")]
    pub requested_auth_configs: Extra,
    /// Confirmations that tools request, by function call id.
    #[serde(skip_serializing_if = "is_empty", deserialize_with = "null_as_default")]
    pub requested_tool_confirmations: Extra,
    /// A summary that replaces older events in prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Box<Compaction>>,
    /// Unknown keys.
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for EventActions {
    const NOUN: &'static str = "actions";
    const KEYS: &'static [&'static str] = &[
        "stateDelta",
        "artifactDelta",
        "deletedArtifactIds",
        "skipSummarization",
        "transferToAgent",
        "escalate",
        "endOfAgent",
        "endInvocation",
        "requestedAuthConfigs",
        "requestedToolConfirmations",
        "compaction",
    ];
}

impl EventActions {
    /// Returns true if the call of this id waits for a person's confirmation or credential.
    pub fn requests_answer(&self, call: &str) -> bool {
        self.requested_tool_confirmations.contains_key(call) || self.requested_auth_configs.contains_key(call)
    }

    /// Merges `other`, which comes after these actions: where both have a value, `other` wins. Both delete the
    /// artifacts that either deletes.
    pub fn merge(&mut self, other: Self) {
        self.state_delta.extend(other.state_delta);
        self.deleted_artifact_ids.retain(|name| !other.artifact_delta.contains_key(name));
        self.artifact_delta.retain(|name, _| !other.deleted_artifact_ids.contains(name));
        self.artifact_delta.extend(other.artifact_delta);
        self.deleted_artifact_ids.extend(other.deleted_artifact_ids);
        extend(&mut self.requested_auth_configs, other.requested_auth_configs);
        extend(&mut self.requested_tool_confirmations, other.requested_tool_confirmations);
        extend(&mut self.extra, other.extra);
        self.skip_summarization = other.skip_summarization.or(self.skip_summarization);
        self.transfer_to_agent = other.transfer_to_agent.or(self.transfer_to_agent.take());
        self.escalate = other.escalate.or(self.escalate);
        self.end_of_agent = other.end_of_agent.or(self.end_of_agent);
        self.end_invocation = other.end_invocation.or(self.end_invocation);
        self.compaction = other.compaction.or(self.compaction.take());
    }

    /// Merges the actions of a concurrent call. If both changed the same state key and both values are objects, each
    /// keeps the members that only it changed. `before` is the state at the start of both calls.
    pub fn merge_concurrent(&mut self, mut other: Self, before: &State) {
        for (key, value) in std::mem::take(&mut other.state_delta) {
            let merged = match self.state_delta.get_mut(&key) {
                Some(current) => merge_changes(before.get(&key), current.take(), value),
                None => value,
            };
            self.state_delta.insert(key, merged);
        }
        for (name, version) in std::mem::take(&mut other.artifact_delta) {
            self.deleted_artifact_ids.remove(&name);
            let newest = self.artifact_delta.entry(name).or_default();
            *newest = version.max(*newest);
        }
        self.merge(other);
    }

    /// Removes the `temp:` keys, which are never stored.
    pub fn remove_temp_state(&mut self) {
        self.state_delta.retain(|key, _| StateScope::split_key(key).0 != StateScope::Temp);
    }

    /// Returns true if there are no side effects.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A summary that replaces the events of a time range in prompts. It never covers events that follow it in the session,
/// even if their time is in the range.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Compaction {
    /// Time of the first event that it covers.
    pub start_timestamp: Timestamp,
    /// Time of the last event that it covers.
    pub end_timestamp: Timestamp,
    /// The summary of the events.
    pub compacted_content: Content,
    /// Unknown keys.
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for Compaction {
    const NOUN: &'static str = "a compaction";
    const KEYS: &'static [&'static str] = &["startTimestamp", "endTimestamp", "compactedContent"];
}

/// Token counts of one model call. Unknown keys are preserved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageMetadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_count: Option<u64>,
    /// Tokens of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates_token_count: Option<u64>,
    /// Tokens of thinking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thoughts_token_count: Option<u64>,
    /// Tokens of the prompt that came from the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_content_token_count: Option<u64>,
    /// The sum, as the provider counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_token_count: Option<u64>,
    /// Unknown keys.
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for UsageMetadata {
    const NOUN: &'static str = "usage metadata";
    const KEYS: &'static [&'static str] = &[
        "promptTokenCount",
        "candidatesTokenCount",
        "thoughtsTokenCount",
        "cachedContentTokenCount",
        "totalTokenCount",
    ];
}

impl UsageMetadata {
    /// Returns the tokens of the prompt, with the results of tools inside the model, which Gemini counts separately.
    pub fn input(&self) -> Option<u64> {
        let results = self.extra.get("toolUsePromptTokenCount").and_then(Value::as_u64);
        match (self.prompt_token_count, results) {
            (Some(prompt), Some(results)) => Some(prompt.saturating_add(results)),
            (prompt, results) => prompt.or(results),
        }
    }

    /// Returns the total: the provider's own sum, or the sum of prompt, thinking and response.
    pub fn total(&self) -> u64 {
        let parts = [self.input(), self.thoughts_token_count, self.candidates_token_count];
        self.total_token_count.unwrap_or_else(|| parts.into_iter().flatten().fold(0, u64::saturating_add))
    }

    /// Adds the tokens of a later report, and takes over its unknown keys, if it has any. The keys of earlier reports
    /// are dropped, so that many reports take no more memory than one.
    pub fn add(&mut self, later: &Self) {
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
        let has_total = self.total_token_count.is_some() || later.total_token_count.is_some();
        let total = has_total.then(|| self.total().saturating_add(later.total()));
        self.prompt_token_count = sum(self.prompt_token_count, later.prompt_token_count);
        self.candidates_token_count = sum(self.candidates_token_count, later.candidates_token_count);
        self.thoughts_token_count = sum(self.thoughts_token_count, later.thoughts_token_count);
        self.cached_content_token_count = sum(self.cached_content_token_count, later.cached_content_token_count);
        self.total_token_count = total;
        if !later.extra.is_empty() {
            self.extra.clone_from(&later.extra);
        }
    }
}

/// Moves the keys of a map to one of their number. A map that has grown has room for three at least, 100 bytes each.
fn drop_spare_capacity(map: &mut JsonMap) {
    if !map.is_empty() {
        let mut exact = JsonMap::with_capacity(map.len());
        exact.extend(std::mem::take(map));
        *map = exact;
    }
}

/// An immutable event with cached JSON. Shared as `Arc<Event>`, never cloned.
#[derive(Debug)]
pub struct Event {
    data: EventData,
    json: OnceLock<Bytes>,
}

impl Event {
    /// Returns the length of the JSON if it is in memory; 0 otherwise.
    pub(crate) fn cached_json_len(&self) -> usize {
        self.json.get().map_or(0, Bytes::len)
    }

    /// Creates an event from `data`, and adds an id and the current time if they are missing.
    pub fn new(mut data: EventData) -> Arc<Self> {
        if data.id.is_empty() {
            data.id = new_event_id();
        }
        if data.timestamp == Timestamp::default() {
            data.timestamp = Timestamp::now();
        }
        drop_spare_capacity(&mut data.actions.state_delta);
        Arc::new(Self { data, json: OnceLock::new() })
    }

    /// Parses an event from its JSON, and caches the JSON unchanged.
    ///
    /// # Errors
    /// If the bytes are not the JSON of an event.
    pub fn from_json(json: impl Into<Bytes>) -> Result<Arc<Self>, serde_json::Error> {
        let json = json.into();
        let mut data: EventData = serde_json::from_slice(&json)?;
        drop_spare_capacity(&mut data.actions.state_delta);
        Ok(Arc::new(Self { data, json: OnceLock::from(json) }))
    }

    /// Returns the event as JSON, which is created on first use.
    pub fn json(&self) -> &Bytes {
        self.json.get_or_init(|| {
            // The data consists of strings, numbers and maps with string keys, so this cannot fail.
            json_bytes(&self.data).unwrap_or_else(|_| Bytes::from_static(b"{}"))
        })
    }

    /// Returns true if the JSON has been created.
    pub fn has_json(&self) -> bool {
        self.json.get().is_some()
    }

    /// Returns the length of the JSON in bytes, without creating the JSON.
    pub fn json_len(&self) -> usize {
        self.json.get().map_or_else(|| json_len(&self.data), Bytes::len)
    }

    /// Returns the function calls in the content.
    pub fn function_calls(&self) -> impl Iterator<Item = &FunctionCall> {
        self.data.content.iter().flat_map(|content| content.function_calls())
    }

    /// Returns the function responses in the content.
    pub fn function_responses(&self) -> impl Iterator<Item = &FunctionResponse> {
        self.data.content.iter().flat_map(|content| content.function_responses())
    }

    /// Returns the ids of the calls that wait no longer with this event: the user responds to them, their tools fail, or
    /// requests for confirmation or credentials take their place.
    pub fn closed_calls(&self) -> impl Iterator<Item = &str> {
        let is_from_user = self.author == USER_AUTHOR;
        let responses = self.function_responses().filter(move |response| {
            is_from_user || response.response.get("error").is_some_and(|error| !error.is_null())
        });
        let actions = &self.data.actions;
        let requested = actions.requested_tool_confirmations.keys().chain(actions.requested_auth_configs.keys());
        let requested = requested.filter(move |_| !is_from_user).map(String::as_str);
        responses.filter_map(|response| response.id.as_deref()).chain(requested)
    }

    /// Returns true if the event is a chunk that has audio, images or video, and nothing else.
    pub fn is_media_chunk(&self) -> bool {
        let is_media = |part: &Part| matches!(part.data, PartData::InlineData(_));
        self.partial && self.data.content.as_ref().is_some_and(|content| content.parts.iter().all(is_media))
    }

    /// Returns true if the last part of the content is the result of code.
    pub fn has_trailing_code_execution_result(&self) -> bool {
        self.content.as_ref().is_some_and(|content| {
            content.parts.last().is_some_and(|part| matches!(part.data, PartData::CodeExecutionResult(_)))
        })
    }

    /// Returns true for the runner's report of a failed run. A blocked response of a model only ends its agent's turn.
    pub fn is_run_failure(&self) -> bool {
        self.error_code.is_some() && self.content.is_none() && self.actions.end_of_agent != Some(true)
    }

    /// Returns true if the agent is done after this event: a response without open calls, a result that needs no
    /// summary, or a call whose result arrives later.
    pub fn is_final_response(&self) -> bool {
        if self.actions.skip_summarization == Some(true) || !self.long_running_tool_ids.is_empty() {
            return true;
        }
        !self.partial
            && self.function_calls().next().is_none()
            && self.function_responses().next().is_none()
            && !self.has_trailing_code_execution_result()
    }
}

impl Deref for Event {
    type Target = EventData;

    fn deref(&self) -> &EventData {
        &self.data
    }
}

impl Serialize for Event {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.data.serialize(serializer)
    }
}

/// Creates an event id: a UUID.
pub fn new_event_id() -> String {
    new_uuid("")
}

/// Creates an invocation id: `e-<uuid>`.
pub fn new_invocation_id() -> String {
    new_uuid("e-")
}

/// Creates an id for a function call that a model sent without one: `adk-<uuid>`.
pub fn new_function_call_id() -> String {
    new_uuid("adk-")
}

fn new_uuid(prefix: &str) -> String {
    let mut buffer = Uuid::encode_buffer();
    [prefix, Uuid::new_v4().hyphenated().encode_lower(&mut buffer)].concat()
}

fn is_empty(extra: &Extra) -> bool {
    extra.is_empty()
}

fn extend(extra: &mut Extra, more: Extra) {
    if !more.is_empty() {
        extra.extend(JsonMap::from(more));
    }
}

pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
