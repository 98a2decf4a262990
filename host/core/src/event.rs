//! [`Event`]: one entry of a session's history, and one item of what a run yields. The log of events is the only truth; state,
//! prompts and traces are derived from it.
//!
//! An event is built as [`EventData`], then frozen into a shared [`Event`]. Neither can be cloned: everything that keeps an event keeps
//! an `Arc` of it. Its JSON is made at most once, by whoever needs it first (a store or a client), and kept.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::{Content, FunctionCall, FunctionResponse, JsonMap, PartData};
use crate::extra::{Extra, KnownKeys};
use crate::json_len::json_len;
use crate::time::Timestamp;

/// The author of what a person says.
pub const USER_AUTHOR: &str = "user";

/// What an event says. Field names and meaning follow ADK's `Event`; absent fields are left out of the JSON.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventData {
    /// Unique; a UUID when [`Event::new`] finds it empty. Partial events share the id of the final event that they lead to.
    pub id: String,
    /// The run that it belongs to, `e-<uuid>`.
    pub invocation_id: String,
    /// An agent's name, or `user`.
    pub author: String,
    /// What was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Arc<Content>>,
    /// What it does to the session.
    pub actions: EventActions,
    /// True for a piece of a streamed answer: yielded, never stored, never changes state.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_as_default")]
    pub partial: bool,
    /// The model has finished its turn (live runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_complete: Option<bool>,
    /// The model was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<bool>,
    /// A stable code when something went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// What went wrong, for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Why the model stopped, such as `STOP` or `MAX_TOKENS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// Tokens used by the model call behind this event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_metadata: Option<Box<UsageMetadata>>,
    /// Mean log probability of the answer's tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_logprobs: Option<f64>,
    /// The model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_version: Option<String>,
    /// Dot-joined path of parallel branches; an event of another branch is not seen by this branch's agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Sources of a grounded answer, as the model sent them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grounding_metadata: Option<Box<Value>>,
    /// What a model adapter or a client attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_metadata: Option<Box<Value>>,
    /// What was heard (live runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_transcription: Option<Box<Value>>,
    /// What was spoken (live runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_transcription: Option<Box<Value>>,
    /// Ids of function calls whose result comes later.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub long_running_tool_ids: Vec<String>,
    /// When it was made; float seconds in JSON.
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

/// What an event does beside saying something.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventActions {
    /// State keys to set; `null` deletes the key.
    #[serde(deserialize_with = "null_as_default")]
    pub state_delta: JsonMap,
    /// Artifacts saved, with the version that they got.
    #[serde(deserialize_with = "null_as_default")]
    pub artifact_delta: BTreeMap<String, u64>,
    /// The function response is the answer; the model does not summarise it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_summarization: Option<bool>,
    /// The agent that goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_to_agent: Option<String>,
    /// Ends the loops and parallel agents around the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalate: Option<bool>,
    /// Whether the agent has ended its run. False in what its callbacks set before it begins, or say when it has failed.
    #[serde(skip_serializing_if = "Option::is_none", alias = "endInvocation")]
    pub end_of_agent: Option<bool>,
    /// Credentials that tools ask for, by function call id.
    #[serde(skip_serializing_if = "is_empty", deserialize_with = "null_as_default")]
    pub requested_auth_configs: Extra,
    /// Confirmations that tools ask for, by function call id.
    #[serde(skip_serializing_if = "is_empty", deserialize_with = "null_as_default")]
    pub requested_tool_confirmations: Extra,
    /// A summary that stands for older events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Box<Compaction>>,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for EventActions {
    const NOUN: &'static str = "actions";
    const KEYS: &'static [&'static str] = &[
        "stateDelta",
        "artifactDelta",
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
    /// Takes over what `other` does; where both say something, `other` wins.
    pub fn merge(&mut self, other: Self) {
        self.state_delta.extend(other.state_delta);
        self.artifact_delta.extend(other.artifact_delta);
        extend(&mut self.requested_auth_configs, other.requested_auth_configs);
        extend(&mut self.requested_tool_confirmations, other.requested_tool_confirmations);
        extend(&mut self.extra, other.extra);
        self.skip_summarization = other.skip_summarization.or(self.skip_summarization);
        self.transfer_to_agent = other.transfer_to_agent.or(self.transfer_to_agent.take());
        self.escalate = other.escalate.or(self.escalate);
        self.end_of_agent = other.end_of_agent.or(self.end_of_agent);
        self.compaction = other.compaction.or(self.compaction.take());
    }

    /// True when it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A summary that stands for the events of a stretch of time. Events that come after it in the session are never covered, whatever their
/// time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Compaction {
    /// Time of the first event that it stands for.
    pub start_timestamp: Timestamp,
    /// Time of the last one.
    pub end_timestamp: Timestamp,
    /// The summary.
    pub compacted_content: Content,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for Compaction {
    const NOUN: &'static str = "a compaction";
    const KEYS: &'static [&'static str] = &["startTimestamp", "endTimestamp", "compactedContent"];
}

/// Tokens of one model call. Keys that this version does not know are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageMetadata {
    /// Tokens sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_count: Option<u64>,
    /// Tokens of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates_token_count: Option<u64>,
    /// Tokens of thinking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thoughts_token_count: Option<u64>,
    /// Tokens sent that came from a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_content_token_count: Option<u64>,
    /// All of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_token_count: Option<u64>,
    /// The rest.
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
    /// All tokens: the provider's own sum, or that of what was sent, thought and answered.
    pub fn total(&self) -> u64 {
        let parts = [self.prompt_token_count, self.thoughts_token_count, self.candidates_token_count];
        self.total_token_count.unwrap_or_else(|| parts.into_iter().flatten().fold(0, u64::saturating_add))
    }
}

/// A frozen event. See the module's comment.
#[derive(Debug)]
pub struct Event {
    data: EventData,
    json: OnceLock<Bytes>,
}

impl Event {
    /// Freezes `data`, giving it an id and the current time where they are missing.
    pub fn new(mut data: EventData) -> Arc<Self> {
        if data.id.is_empty() {
            data.id = new_event_id();
        }
        if data.timestamp == Timestamp::default() {
            data.timestamp = Timestamp::now();
        }
        Arc::new(Self { data, json: OnceLock::new() })
    }

    /// Reads an event from its JSON, which is kept as it is.
    ///
    /// # Errors
    /// When the bytes are not the JSON of an event.
    pub fn from_json(json: impl Into<Bytes>) -> Result<Arc<Self>, serde_json::Error> {
        let json = json.into();
        let data: EventData = serde_json::from_slice(&json)?;
        Ok(Arc::new(Self { data, json: OnceLock::from(json) }))
    }

    /// The event as JSON, made on first use.
    pub fn json(&self) -> &Bytes {
        self.json.get_or_init(|| {
            // The data holds only strings, numbers and maps with string keys, so this cannot fail.
            serde_json::to_vec(&self.data).map(Bytes::from).unwrap_or_else(|_| Bytes::from_static(b"{}"))
        })
    }

    /// True once the JSON has been made.
    pub fn has_json(&self) -> bool {
        self.json.get().is_some()
    }

    /// Bytes of the JSON, which is counted without keeping it if it has not been made yet.
    pub fn json_len(&self) -> usize {
        self.json.get().map_or_else(|| json_len(&self.data), Bytes::len)
    }

    /// Function calls in the content.
    pub fn function_calls(&self) -> impl Iterator<Item = &FunctionCall> {
        self.data.content.iter().flat_map(|content| content.function_calls())
    }

    /// Function responses in the content.
    pub fn function_responses(&self) -> impl Iterator<Item = &FunctionResponse> {
        self.data.content.iter().flat_map(|content| content.function_responses())
    }

    /// True when the agent has nothing more to do after this event: an answer without open calls, a result that needs no summary, or a
    /// call whose result comes later.
    pub fn is_final_response(&self) -> bool {
        if self.actions.skip_summarization == Some(true) || !self.long_running_tool_ids.is_empty() {
            return true;
        }
        let ends_in_code_result = self.content.as_ref().is_some_and(|content| {
            content.parts.last().is_some_and(|part| matches!(part.data, PartData::CodeExecutionResult(_)))
        });
        !self.partial
            && self.function_calls().next().is_none()
            && self.function_responses().next().is_none()
            && !ends_in_code_result
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

/// A new event id: a UUID.
pub fn new_event_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// A new invocation id: `e-<uuid>`.
pub fn new_invocation_id() -> String {
    format!("e-{}", uuid::Uuid::new_v4())
}

/// An id for a function call that a model sent without one: `adk-<uuid>`.
pub fn new_function_call_id() -> String {
    format!("adk-{}", uuid::Uuid::new_v4())
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
