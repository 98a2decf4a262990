//! Requests of a live run, and their JSON.

use serde::Deserialize;
use serde_json::Value;

use crate::content::{Blob, Content, FunctionResponse};
use crate::error::RunError;
use crate::json::JsonMap;
use crate::message::ClientMessage;

/// A message from a client to a live run, or from an agent to a live model.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveRequest {
    /// A message of the user.
    Content {
        /// The message, or a part of it.
        content: Content,
        /// Whether more of the same message follows.
        partial: bool,
        /// Changes of state that are stored with the message.
        state_delta: JsonMap,
    },
    /// A chunk of audio, or an image.
    Blob(Blob),
    /// The user starts to speak.
    ActivityStart,
    /// The user stops speaking.
    ActivityEnd,
    /// The microphone is off.
    AudioStreamEnd,
    /// The results of tools. Comes from the agent, never from a client.
    ToolResponses(Vec<FunctionResponse>),
    /// The end of the run.
    Close,
}

/// The JSON of a request, in the spellings of ADK's servers and clients.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LiveRequestJson {
    content: Option<ClientMessage>,
    blob: Option<Blob>,
    #[serde(alias = "activity_start")]
    activity_start: Option<Value>,
    #[serde(alias = "activity_end")]
    activity_end: Option<Value>,
    #[serde(alias = "audio_stream_end")]
    audio_stream_end: Option<Value>,
    close: Option<bool>,
    partial: Option<bool>,
    #[serde(alias = "state_delta")]
    state_delta: Option<JsonMap>,
}

impl LiveRequest {
    /// Returns a complete message of the user.
    pub fn content(content: Content) -> Self {
        Self::Content { content, partial: false, state_delta: JsonMap::new() }
    }

    /// Checks that code may send this to a live run that it has opened: only the user answers calls.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it has the result of a call.
    pub fn check_from_code(&self) -> Result<(), RunError> {
        let answers = match self {
            Self::Content { content, .. } => content.function_responses().next().is_some(),
            Self::ToolResponses(_) => true,
            Self::Blob(_) | Self::ActivityStart | Self::ActivityEnd | Self::AudioStreamEnd | Self::Close => false,
        };
        if answers {
            let message = "code sends no function responses to a live run: only the user answers calls";
            return Err(RunError::BadInput(message.into()));
        }
        Ok(())
    }

    /// Parses the JSON of a client: `content`, `blob`, `activityStart`, `activityEnd`, `audioStreamEnd` and `close`, in
    /// camelCase or snake_case. Of several in one object, the order is that in which they make sense.
    ///
    /// # Errors
    /// [`RunError::InvalidMessage`] if it is not JSON, has nothing to send, or has a content that a user cannot send.
    pub fn from_json(json: &str) -> Result<Vec<Self>, RunError> {
        let json: LiveRequestJson =
            serde_json::from_str(json).map_err(|error| RunError::InvalidMessage(error.to_string()))?;
        let content = json.content.map(Content::try_from).transpose().map_err(name_content)?;
        let content = content.map(|content| Self::Content {
            content,
            partial: json.partial.unwrap_or_default(),
            state_delta: json.state_delta.unwrap_or_default(),
        });
        if json.blob.as_ref().is_some_and(|blob| blob.mime_type.is_empty()) {
            let message = "`blob` has no `mimeType`, such as `audio/pcm;rate=16000`";
            return Err(RunError::InvalidMessage(message.into()));
        }
        let requests: Vec<_> = [
            is_set(json.activity_start.as_ref()).then_some(Self::ActivityStart),
            content,
            json.blob.map(Self::Blob),
            is_set(json.audio_stream_end.as_ref()).then_some(Self::AudioStreamEnd),
            is_set(json.activity_end.as_ref()).then_some(Self::ActivityEnd),
            json.close.unwrap_or_default().then_some(Self::Close),
        ]
        .into_iter()
        .flatten()
        .collect();
        if requests.is_empty() {
            let message =
                "it has none of `content`, `blob`, `activityStart`, `activityEnd`, `audioStreamEnd` and `close`";
            return Err(RunError::InvalidMessage(message.into()));
        }
        Ok(requests)
    }
}

/// Returns true for a signal, which is an empty object or `true`.
fn is_set(signal: Option<&Value>) -> bool {
    signal.is_some_and(|signal| !matches!(signal, Value::Null | Value::Bool(false)))
}

/// Replaces the name that a message has in the request of a run.
fn name_content(error: RunError) -> RunError {
    match error {
        RunError::InvalidMessage(message) => RunError::InvalidMessage(message.replacen("newMessage", "content", 1)),
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(json: Value) -> Vec<LiveRequest> {
        LiveRequest::from_json(&json.to_string()).unwrap()
    }

    fn refused(json: &str) -> String {
        LiveRequest::from_json(json).unwrap_err().to_string()
    }

    #[test]
    fn both_spellings_are_read() {
        let audio = Blob { mime_type: "audio/pcm;rate=16000".into(), data: vec![1, 2].into(), display_name: None };
        for key in ["mimeType", "mime_type"] {
            let blob = json!({"blob": {key: "audio/pcm;rate=16000", "data": "AQI="}});
            assert_eq!(parsed(blob), [LiveRequest::Blob(audio.clone())]);
        }
        for (keys, expected) in [
            (["activityStart", "activity_start"], LiveRequest::ActivityStart),
            (["activityEnd", "activity_end"], LiveRequest::ActivityEnd),
        ] {
            for key in keys {
                assert_eq!(parsed(json!({key: {}})), std::slice::from_ref(&expected));
            }
        }
        for key in ["audioStreamEnd", "audio_stream_end"] {
            assert_eq!(parsed(json!({key: true})), [LiveRequest::AudioStreamEnd]);
        }
        for key in ["stateDelta", "state_delta"] {
            let request =
                parsed(json!({"content": {"parts": [{"text": "hi"}]}, key: {"mood": "good"}, "partial": true}));
            let content = Content { role: None, parts: Content::user("hi").parts };
            let state_delta = JsonMap::from_iter([("mood".to_owned(), json!("good"))]);
            assert_eq!(request, [LiveRequest::Content { content, partial: true, state_delta }]);
        }
    }

    #[test]
    fn an_object_with_several_requests_is_all_of_them() {
        let all = json!({
            "close": true, "activityEnd": {}, "activityStart": {}, "content": {"role": "user", "parts": [{"text": "hi"}]},
            "blob": null, "audioStreamEnd": false
        });
        let content = LiveRequest::content(Content::user("hi"));
        assert_eq!(parsed(all), [LiveRequest::ActivityStart, content, LiveRequest::ActivityEnd, LiveRequest::Close]);
    }

    #[test]
    fn a_malformed_request_is_refused_with_its_reason() {
        assert!(refused("{").contains("EOF while parsing an object"), "{}", refused("{"));
        assert!(refused("{}").ends_with("`audioStreamEnd` and `close`"), "{}", refused("{}"));
        assert!(refused(r#"{"close": false}"#).contains("it has none of `content`"));
        let call = r#"{"content": {"parts": [{"functionCall": {"name": "x"}}]}}"#;
        assert!(refused(call).contains("content.parts[0] is a `functionCall`"), "{}", refused(call));
        assert!(refused(r#"{"blob": {"data": ""}}"#).contains("`blob` has no `mimeType`"));
    }
}
