//! Schemas of JSON objects that several routes use, in the vocabulary of ADK. The types in `hatchery_core` accept more:
//! other spellings, and unknown keys. A test compares the keys with the keys of `hatchery_core`.

#![expect(dead_code, reason = "only the schemas of these types are used")]

mod components;
mod evaluation;
mod settings;

use std::collections::BTreeMap;

use hatchery_core::JsonMap;
use serde_json::Value;
use utoipa::ToSchema;

pub(crate) use components::{Comparison, ComponentDetail, Components, HostEvent};
pub(crate) use evaluation::{EvalCase, EvalResultIds, EvalSet, EvalSetIds, EvalSetResult, RunEvalResponse};
pub(crate) use settings::Settings;

/// An error.
#[derive(ToSchema)]
pub(crate) struct Problem {
    /// The reason phrase of the status.
    title: String,
    status: u16,
    /// A stable code for programs.
    code: String,
    /// The problem and the next step.
    detail: String,
    /// A copy of `detail`, for older clients.
    error: String,
    /// The events of a failed run.
    events: Option<Vec<Event>>,
}

/// A conversation of a user with an app.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Session {
    id: String,
    app_name: String,
    user_id: String,
    /// The state of the session, of its user (`user:`) and of its app (`app:`).
    #[schema(value_type = Object)]
    state: JsonMap,
    /// Seconds since 1970.
    last_update_time: f64,
    /// Empty in lists of sessions.
    events: Vec<Event>,
}

/// One step of a run. Keys without a value are left out.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// A partial event has the id of the complete event that follows.
    id: String,
    /// The id of the run.
    invocation_id: String,
    /// The name of an agent, or `user`.
    author: String,
    content: Option<Content>,
    actions: EventActions,
    /// Whether this is a chunk of a streamed response. Partial events are not stored.
    partial: Option<bool>,
    turn_complete: Option<bool>,
    interrupted: Option<bool>,
    error_code: Option<String>,
    error_message: Option<String>,
    /// The reason why the model stopped, such as `STOP` or `MAX_TOKENS`.
    finish_reason: Option<String>,
    usage_metadata: Option<UsageMetadata>,
    avg_logprobs: Option<f64>,
    model_version: Option<String>,
    /// The parallel branch, as a path with dots.
    branch: Option<String>,
    #[schema(value_type = Option<Object>)]
    grounding_metadata: Option<Value>,
    #[schema(value_type = Option<Object>)]
    custom_metadata: Option<Value>,
    input_transcription: Option<Transcription>,
    output_transcription: Option<Transcription>,
    /// The ids of calls whose results arrive later.
    long_running_tool_ids: Option<Vec<String>>,
    /// Seconds since 1970.
    timestamp: f64,
}

/// A transcript of speech in a live run.
#[derive(ToSchema)]
pub(crate) struct Transcription {
    text: Option<String>,
    finished: Option<bool>,
}

/// The changes that an event makes.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventActions {
    /// `null` deletes a key.
    #[schema(value_type = Object)]
    state_delta: JsonMap,
    /// Names of artifacts and their new versions.
    artifact_delta: BTreeMap<String, u64>,
    deleted_artifact_ids: Option<Vec<String>>,
    skip_summarization: Option<bool>,
    transfer_to_agent: Option<String>,
    escalate: Option<bool>,
    end_of_agent: Option<bool>,
    end_invocation: Option<bool>,
    #[schema(value_type = Option<Object>)]
    requested_auth_configs: Option<JsonMap>,
    #[schema(value_type = Option<Object>)]
    requested_tool_confirmations: Option<JsonMap>,
    #[schema(value_type = Option<Object>)]
    compaction: Option<JsonMap>,
}

/// The token usage of a model call.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UsageMetadata {
    prompt_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    total_token_count: Option<u64>,
}

/// A message.
#[derive(ToSchema)]
pub(crate) struct Content {
    /// `user` or `model`.
    role: Option<String>,
    parts: Option<Vec<Part>>,
}

/// A part of a message, with one kind of data.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Part {
    text: Option<String>,
    inline_data: Option<Blob>,
    file_data: Option<FileData>,
    function_call: Option<FunctionCall>,
    function_response: Option<FunctionResponse>,
    executable_code: Option<ExecutableCode>,
    code_execution_result: Option<CodeExecutionResult>,
    /// Whether the text is a thought of the model.
    thought: Option<bool>,
    /// Base64.
    thought_signature: Option<String>,
}

#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Blob {
    mime_type: Option<String>,
    /// Base64.
    data: String,
    display_name: Option<String>,
}

#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileData {
    file_uri: String,
    mime_type: Option<String>,
    display_name: Option<String>,
}

#[derive(ToSchema)]
pub(crate) struct FunctionCall {
    id: Option<String>,
    name: String,
    #[schema(value_type = Option<Object>)]
    args: Option<JsonMap>,
}

#[derive(ToSchema)]
pub(crate) struct FunctionResponse {
    id: Option<String>,
    name: String,
    #[schema(value_type = Option<Object>)]
    response: Option<JsonMap>,
}

#[derive(ToSchema)]
pub(crate) struct ExecutableCode {
    language: Option<String>,
    code: String,
}

#[derive(ToSchema)]
pub(crate) struct CodeExecutionResult {
    outcome: Option<String>,
    output: Option<String>,
}

/// The state of a run.
#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RunState {
    Accepted,
    Running,
    Interrupted,
    Waiting,
    Done,
    Failed,
    Cancelled,
}

/// An error: a stable code and a message.
#[derive(ToSchema)]
pub(crate) struct Failure {
    code: String,
    message: String,
}

/// The result of a tool call.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolCall {
    result: Option<Value>,
    error: Option<Failure>,
    /// The changes of the session's state.
    #[schema(value_type = Object)]
    state_delta: JsonMap,
    artifacts: Vec<String>,
    spans: Vec<crate::routes::SpanView>,
}

/// A YAML file of an app.
#[derive(ToSchema)]
pub(crate) struct AppFile {
    path: String,
    text: String,
    sha256: String,
}

/// A problem in a file.
#[derive(ToSchema)]
pub(crate) struct Diagnostic {
    file: String,
    line: Option<u32>,
    column: Option<u32>,
    message: String,
}

#[cfg(test)]
mod tests {
    use hatchery_core::{EventActions as Actions, EventData, KnownKeys, UsageMetadata as Usage};
    use utoipa::PartialSchema;

    use super::*;

    fn keys<T: PartialSchema>() -> Vec<String> {
        let schema = serde_json::to_value(T::schema()).unwrap();
        let mut keys: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    }

    fn known<T: KnownKeys>() -> Vec<String> {
        let mut keys: Vec<_> = T::KEYS.iter().map(|key| (*key).to_owned()).collect();
        keys.sort();
        keys
    }

    #[test]
    fn schemas_have_the_keys_of_the_core() {
        assert_eq!(keys::<Event>(), known::<EventData>());
        assert_eq!(keys::<EventActions>(), known::<Actions>());
        assert_eq!(keys::<UsageMetadata>(), known::<Usage>());
        assert_eq!(keys::<Part>(), known::<hatchery_core::Part>());
    }
}
