//! The messages of `/ws`, in both directions, and their JSON schema.

use std::io::Write;
use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use axum::extract::ws::Utf8Bytes;
use hatchery_core::{Event, JsonMap, REQUEST_CONFIRMATION, RunError, SessionKey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{PartialSchema, ToSchema};

use crate::api_document::schemas;
use crate::error::{self, ApiError};
use crate::routes::run::RunBody;
use crate::routes::runs::RunView;

/// A message of the client. `id` is chosen by the client and identifies the run on this connection until its `end`.
#[derive(Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(super) enum SocketRequest {
    /// Starts a run, or attaches to the one with this `runId`.
    Start { id: String, run: RunBody },
    /// Answers a pending call, such as that of a long-running tool.
    Answer {
        id: String,
        session: SessionAddress,
        /// The id of the call.
        #[serde(rename = "callId", alias = "call_id")]
        call_id: String,
        /// The name of the function.
        name: String,
        #[schema(value_type = Object)]
        response: JsonMap,
        /// Whether to send chunks of responses as partial events.
        streaming: Option<bool>,
    },
    /// Confirms or rejects a tool call.
    Confirm {
        id: String,
        session: SessionAddress,
        /// The id of the `adk_request_confirmation` call.
        #[serde(rename = "callId", alias = "call_id")]
        call_id: String,
        confirmed: bool,
        /// Additional data that the tool requested.
        #[schema(value_type = Option<Object>)]
        payload: Option<Value>,
        /// Whether to send chunks of responses as partial events.
        streaming: Option<bool>,
    },
    /// Follows a run, which may have been started on another connection or host.
    Follow {
        id: String,
        session: SessionAddress,
        #[serde(rename = "runId", alias = "run_id")]
        run_id: String,
        /// The revision of the last received event. Default: 0, which sends all events of the run.
        after: Option<u64>,
    },
    /// Cancels the run with this id.
    Cancel { id: String },
    /// Requests a `pong`.
    Ping { id: Option<String> },
}

/// A session of a user with an app.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionAddress {
    #[serde(alias = "app_name")]
    app_name: String,
    #[serde(alias = "user_id")]
    user_id: String,
    #[serde(alias = "session_id")]
    session_id: String,
}

impl SessionAddress {
    pub(super) fn key(&self) -> SessionKey {
        SessionKey::new(self.app_name.as_str(), self.user_id.as_str(), self.session_id.as_str())
    }
}

impl SocketRequest {
    /// Parses a message.
    ///
    /// # Errors
    /// The problem, for the client.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("not a message: {error}"))
    }
}

/// Returns the request that sends a function response to a pending call.
///
/// # Errors
/// If it is nested too deeply.
pub(super) fn answer(
    session: SessionAddress,
    call_id: String,
    name: String,
    response: JsonMap,
    streaming: Option<bool>,
) -> Result<RunBody, ApiError> {
    let SessionAddress { app_name, user_id, session_id } = session;
    let response = json!({"id": call_id, "name": name, "response": response});
    let message = json!({"role": "user", "parts": [{"functionResponse": response}]});
    let body = json!({
        "appName": app_name, "userId": user_id, "sessionId": session_id, "newMessage": message, "streaming": streaming,
    });
    serde_json::from_value(body).map_err(|error| ApiError::invalid(format!("invalid answer: {error}")))
}

/// Returns the request that confirms or rejects a call.
///
/// # Errors
/// As [`answer`].
pub(super) fn confirmation(
    session: SessionAddress,
    call_id: String,
    confirmed: bool,
    payload: Option<Value>,
    streaming: Option<bool>,
) -> Result<RunBody, ApiError> {
    let mut response = JsonMap::from_iter([("confirmed".to_owned(), confirmed.into())]);
    payload.map(|payload| response.insert("payload".to_owned(), payload));
    answer(session, call_id, REQUEST_CONFIRMATION.to_owned(), response, streaming)
}

/// A message of the host.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(super) enum SocketMessage {
    /// A run was started and stored, or is followed.
    Started {
        #[schema(value_type = String)]
        id: Arc<str>,
        /// The id of the run. Left out for an answer that was queued behind another turn of its session.
        #[serde(rename = "runId", skip_serializing_if = "Option::is_none")]
        run_id: Option<String>,
    },
    /// An event of a run.
    Event {
        #[schema(value_type = String)]
        id: Arc<str>,
        /// The session revision that the event created, for `follow`. Partial events have none.
        #[serde(skip_serializing_if = "Option::is_none")]
        revision: Option<u64>,
        #[schema(value_type = schemas::Event)]
        event: Arc<Event>,
    },
    /// The last message with this id, which can then be reused.
    End {
        #[schema(value_type = String)]
        id: Arc<str>,
        /// The final state of the run, or its state while it waits.
        #[schema(value_type = Option<RunView>)]
        #[serde(skip_serializing_if = "Option::is_none")]
        run: Option<Box<RunView>>,
        /// The failure of the run, or the reason why the stream ended before the run.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
    },
    /// A message was rejected. If it started no run, its id can be reused.
    Error {
        #[schema(value_type = Option<String>)]
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<Arc<str>>,
        /// The HTTP status of an equivalent response.
        status: u16,
        /// A stable code for programs.
        code: String,
        /// The problem and the next step.
        detail: String,
        /// Seconds to wait before a retry.
        #[serde(rename = "retryAfter", skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
    },
    /// The answer to `ping`.
    Pong {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
}

/// The failure of a run.
#[derive(Serialize, ToSchema)]
pub(super) struct Failure {
    /// A stable code for programs.
    code: String,
    message: String,
}

impl From<&RunError> for Failure {
    fn from(error: &RunError) -> Self {
        Self { code: error.code().to_owned(), message: error::detail(error) }
    }
}

impl SocketMessage {
    pub(super) fn refusal(id: Option<Arc<str>>, error: ApiError) -> Self {
        let retry_after = error.retry_after.map(|wait| wait.as_secs_f64().ceil().max(1.0) as u64);
        Self::Error { id, status: error.status.as_u16(), code: error.code, detail: error.detail, retry_after }
    }

    /// Returns the JSON. The JSON of an event is cached in the event.
    pub(super) fn to_json(&self) -> Utf8Bytes {
        let json = match self {
            Self::Event { id, revision, event } => event_json(id, *revision, event.json()),
            message => serde_json::to_vec(message),
        };
        // Texts and numbers can always be written, as UTF-8.
        Utf8Bytes::try_from(Bytes::from(json.unwrap_or_default())).unwrap_or_default()
    }
}

fn event_json(id: &str, revision: Option<u64>, event: &[u8]) -> serde_json::Result<Vec<u8>> {
    let mut json = Vec::with_capacity(event.len() + id.len() + 64);
    json.extend_from_slice(br#"{"type":"event","id":"#);
    serde_json::to_writer(&mut json, id)?;
    if let Some(revision) = revision {
        write!(json, r#","revision":{revision}"#).map_err(serde_json::Error::io)?;
    }
    json.extend_from_slice(br#","event":"#);
    json.extend_from_slice(event);
    json.push(b'}');
    Ok(json)
}

/// The JSON schema of all messages.
pub(super) static SCHEMA: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(schema().to_string()));

fn schema() -> Value {
    let mut found = Vec::new();
    SocketRequest::schemas(&mut found);
    SocketMessage::schemas(&mut found);
    found.push((SocketRequest::name().into(), SocketRequest::schema()));
    found.push((SocketMessage::name().into(), SocketMessage::schema()));
    let definitions: Map<_, _> = found.into_iter().map(|(name, schema)| (name, json!(schema))).collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Messages of /ws",
        "anyOf": [{"$ref": "#/$defs/SocketRequest"}, {"$ref": "#/$defs/SocketMessage"}],
        "$defs": definitions,
    });
    move_references(schema)
}

/// Replaces references to schemas of an OpenAPI document by references to definitions of a JSON Schema.
fn move_references(schema: Value) -> Value {
    match schema {
        Value::String(text) => match text.strip_prefix("#/components/schemas/") {
            Some(name) => format!("#/$defs/{name}").into(),
            None => text.into(),
        },
        Value::Array(items) => items.into_iter().map(move_references).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, move_references(value))).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::EventData;

    use super::*;

    #[test]
    fn the_json_of_an_event_message_is_the_same_as_its_serialization() {
        let event = Event::new(EventData { author: "a".into(), ..EventData::default() });
        for revision in [None, Some(7)] {
            let message = SocketMessage::Event { id: "a \"b\"".into(), revision, event: event.clone() };
            let text: Value = serde_json::from_str(&message.to_json()).unwrap();
            assert_eq!(text, json!(message));
        }
    }

    #[test]
    fn the_schema_names_nothing_that_it_lacks() {
        let schema = schema();
        let text = schema.to_string();
        let references = text.split("\"$ref\":\"#/$defs/").skip(1).filter_map(|rest| rest.split('"').next());
        let missing: Vec<_> = references.filter(|name| schema["$defs"].get(*name).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(!text.contains("#/components/"), "{text}");
    }
}
