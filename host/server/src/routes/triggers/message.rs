//! Messages of Pub/Sub and CloudEvents, as the user's message of a run: JSON with `data` and `attributes`.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use hatchery_core::{JsonMap, base64_bytes};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::error::ApiError;

/// The body of a Pub/Sub push subscription.
#[derive(Deserialize, ToSchema)]
pub(super) struct PubSubTriggerRequest {
    message: PubSubMessage,
    subscription: Option<String>,
}

// Pub/Sub also sends some keys in snake_case, so that they cannot be aliases.
/// A message of Pub/Sub.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PubSubMessage {
    /// Base64 of a text.
    data: Option<String>,
    attributes: Option<BTreeMap<String, String>>,
    message_id: Option<String>,
    publish_time: Option<String>,
}

/// A message or an event that starts a run.
pub(super) struct Trigger {
    pub(super) user: String,
    /// The text of the user's message.
    pub(super) text: String,
    /// Identifies the event, which keeps its identity when it is delivered again.
    pub(super) delivery: Value,
}

impl Trigger {
    /// Returns the trigger of a message. Its user is the subscription.
    ///
    /// # Errors
    /// 400 if its data are not Base64, or not a text.
    pub(super) fn from_message(body: PubSubTriggerRequest) -> Result<Self, ApiError> {
        let PubSubTriggerRequest { message, subscription } = body;
        let data = message.data().map_err(|problem| ApiError::bad_input(format!("`message.data` {problem}")))?;
        Ok(Self {
            user: user_id(subscription.as_deref(), "pubsub-caller"),
            text: message.text(&data),
            delivery: json!({
                "source": "pubsub",
                "id": message.message_id,
                "subscription": subscription,
                "publish_time": message.publish_time,
            }),
        })
    }

    /// Returns the trigger of a CloudEvent, whose attributes are headers (binary mode) or in the body (structured
    /// mode). Its user is its source. An event that wraps a message of Pub/Sub is that message.
    pub(super) fn from_event(body: &JsonMap, headers: &HeaderMap) -> Self {
        let [id, kind, source, version] =
            ["id", "type", "source", "specversion"].map(|name| attribute(name, body, headers));
        let wrapped = [body.get("message"), body.get("data").and_then(|data| data.get("message"))];
        let message = wrapped.into_iter().flatten().find_map(PubSubMessage::from_json);
        let text = match &message {
            Some(message) => message.text(&message.data().unwrap_or_else(|_| json!(message.data).to_string())),
            None => {
                let data = body.get("data").filter(|data| !data.is_null());
                let data = data.map_or_else(|| json!(body).to_string(), Value::to_string);
                text(&data, &json!({"ce-id": id, "ce-type": kind, "ce-source": source, "ce-specversion": version}))
            }
        };
        let id = id.or_else(|| message.as_ref()?.message_id.as_deref());
        Self {
            user: user_id(source, "eventarc-caller"),
            text,
            delivery: json!({"source": "eventarc", "id": id, "event_source": source, "type": kind}),
        }
    }
}

impl PubSubMessage {
    /// Returns the message in a JSON value. `None` if it is something else.
    fn from_json(value: &Value) -> Option<Self> {
        let is_message = ["data", "attributes", "messageId"].iter().any(|key| value.get(key).is_some());
        if is_message { Self::deserialize(value).ok() } else { None }
    }

    /// Returns the data as JSON: unchanged if they are JSON, or else as a string.
    ///
    /// # Errors
    /// The reason why they cannot be decoded.
    fn data(&self) -> Result<String, String> {
        let Some(encoded) = self.data.as_deref().filter(|data| !data.is_empty()) else { return Ok("null".into()) };
        let bytes = base64_bytes::decode(encoded).map_err(|error| format!("is not Base64: {error}"))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| "is not text in UTF-8; publish text or JSON")?;
        let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
        Ok(if is_json { text.trim().to_owned() } else { json!(text).to_string() })
    }

    /// Returns the text of a run's message with these data.
    fn text(&self, data: &str) -> String {
        text(data, &json!(self.attributes.clone().unwrap_or_default()))
    }
}

/// Returns JSON with `data`, which is JSON, and attributes.
fn text(data: &str, attributes: &Value) -> String {
    format!("{{\"data\":{data},\"attributes\":{attributes}}}")
}

/// Returns an attribute of a CloudEvent. In binary mode the body is the data, which may have keys of the same names.
fn attribute<'a>(name: &str, body: &'a JsonMap, headers: &'a HeaderMap) -> Option<&'a str> {
    let header = headers.get(format!("ce-{name}")).and_then(|value| value.to_str().ok());
    let is_binary = headers.contains_key("ce-specversion") || headers.contains_key("ce-id");
    header.or_else(|| body.get(name).filter(|_| !is_binary)?.as_str())
}

/// Returns the id of a user for the name of a resource, as ADK makes it.
fn user_id(name: Option<&str>, default: &str) -> String {
    match name.unwrap_or_default().trim().trim_matches('/') {
        "" => default.to_owned(),
        name => name.replace('/', "--"),
    }
}
