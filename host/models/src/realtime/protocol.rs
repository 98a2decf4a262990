//! Events of the Realtime API.

use std::ops::RangeInclusive;
use std::sync::Arc;

use hatchery_core::{
    Blob, Content, FunctionCall, LiveRequest, LiveResponse, LlmRequest, ModelError, ModelErrorKind, Part, PartData,
    Transcription, UsageMetadata, base64_bytes,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::AUDIO_RATE;
use super::resampler::Resampler;
use crate::failure::{INSUFFICIENT_QUOTA, Origin, QUOTA_REMEDY};
use crate::live_socket::LiveProtocol;
use crate::nulls;
use crate::responses::conversation_items;

/// Errors of requests that came too late or too early, which change nothing.
const HARMLESS_ERRORS: [&str; 3] = [ACTIVE_RESPONSE, "input_audio_buffer_commit_empty", "response_cancel_not_active"];

/// The error of a request to respond while the model responds already.
const ACTIVE_RESPONSE: &str = "conversation_already_has_active_response";

/// The rate of audio whose type names none.
const DEFAULT_RATE: u32 = 16_000;

/// The rates of audio that are converted.
const RATES: RangeInclusive<u32> = 8_000..=192_000;

/// The state of a connection.
pub(super) struct RealtimeProtocol {
    origin: Arc<Origin>,
    resampler: Resampler,
    /// True while the model responds.
    is_responding: bool,
    /// True once the client reports the user's activity.
    is_manual: bool,
    /// True while a message or a result waits for the end of a response that does not answer it.
    is_response_due: bool,
    /// Frames that are sent next.
    replies: Vec<String>,
    /// The item whose transcription arrives in chunks.
    transcribed: String,
}

/// An event of the server. Unknown ones have unknown types.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServerEvent {
    r#type: String,
    delta: String,
    transcript: String,
    item_id: String,
    response: Response,
    error: Option<Failure>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Response {
    status: String,
    status_details: Option<StatusDetails>,
    output: Vec<OutputItem>,
    usage: Option<Usage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusDetails {
    error: Option<Failure>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputItem {
    r#type: String,
    call_id: String,
    name: String,
    arguments: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    total_tokens: Option<u64>,
    input_token_details: InputDetails,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Failure {
    r#type: String,
    code: Option<String>,
    message: String,
}

impl RealtimeProtocol {
    pub(super) fn new(origin: Arc<Origin>) -> Self {
        Self {
            origin,
            resampler: Resampler::default(),
            is_responding: false,
            is_manual: false,
            is_response_due: false,
            replies: Vec::new(),
            transcribed: String::new(),
        }
    }

    /// Returns the frames of the conversation so far. The model answers if it ends with the user.
    pub(super) fn history(&self, request: &LlmRequest) -> Result<Vec<String>, String> {
        let mut frames = items(request)?;
        let is_user = |content: &Arc<Content>| !matches!(content.role.as_deref(), Some("model" | "assistant"));
        if request.contents.last().is_some_and(is_user) {
            frames.push(respond());
        }
        Ok(frames)
    }

    /// Returns true for the event that ends the setup.
    ///
    /// # Errors
    /// The error that the server reports instead.
    pub(super) fn is_set_up(&self, json: &[u8]) -> Result<bool, ModelError> {
        let event = self.parse(json)?;
        match event.error {
            Some(error) => Err(self.failure(&error)),
            None => Ok(event.r#type == "session.updated"),
        }
    }

    fn parse(&self, json: &[u8]) -> Result<ServerEvent, ModelError> {
        nulls::parse(json).map_err(|error| self.origin.bad_response(error))
    }

    fn failure(&self, Failure { r#type, code, message }: &Failure) -> ModelError {
        let kind = match (r#type.as_str(), code.as_deref()) {
            (_, Some("invalid_api_key" | INSUFFICIENT_QUOTA)) => ModelErrorKind::Auth,
            (_, Some("rate_limit_exceeded")) => ModelErrorKind::RateLimited,
            ("invalid_request_error", _) => ModelErrorKind::BadRequest,
            _ => ModelErrorKind::Server,
        };
        let remedy = if code.as_deref() == Some(INSUFFICIENT_QUOTA) { QUOTA_REMEDY } else { "" };
        self.origin.error(kind, format!("{} reports: {message}{remedy}", self.origin.provider_name()))
    }

    /// Returns the frames of a chunk of audio or an image.
    fn blob(&mut self, blob: &Blob) -> Result<Vec<String>, String> {
        if blob.mime_type.starts_with("image/") {
            let content = Content::new("user", vec![PartData::InlineData(blob.clone()).into()]);
            return message_items(content);
        }
        let audio = self.resampler.convert(&blob.data, rate(blob)?);
        Ok(vec![json!({"type": "input_audio_buffer.append", "audio": base64_bytes::encode(&audio)}).to_string()])
    }

    /// Returns the frames that begin an activity: the server no longer listens for the user's voice by itself.
    fn begin_activity(&mut self) -> Vec<String> {
        let mut frames = Vec::new();
        // The end of the activity requests a response.
        self.is_response_due = false;
        if !std::mem::replace(&mut self.is_manual, true) {
            let session = json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}});
            frames.push(json!({"type": "session.update", "session": session}).to_string());
        }
        if self.is_responding {
            frames.push(json!({"type": "response.cancel"}).to_string());
        }
        frames
    }

    /// Returns the messages of a response that has ended.
    fn end_response(&mut self, response: Response) -> Result<Vec<LiveResponse>, ModelError> {
        let was_responding = std::mem::replace(&mut self.is_responding, false);
        let usage = response.usage.map(|usage| {
            LiveResponse::Usage(UsageMetadata {
                prompt_token_count: usage.input_tokens,
                candidates_token_count: usage.output_tokens,
                cached_content_token_count: usage.input_token_details.cached_tokens.filter(|cached| *cached > 0),
                total_token_count: usage.total_tokens,
                ..UsageMetadata::default()
            })
        });
        if response.status == "failed" {
            let error = response.status_details.and_then(|details| details.error).unwrap_or_default();
            return Err(self.failure(&error));
        }
        let (is_cancelled, is_cut_off) = (response.status == "cancelled", response.status == "incomplete");
        let calls = response.output.into_iter().filter(|item| item.r#type == "function_call" && !is_cancelled);
        // A call that was cut off is omitted.
        let calls = calls.map(|call| self.call(call)).filter(|call| call.is_ok() || !is_cut_off);
        let calls = calls.collect::<Result<Vec<_>, _>>()?;
        // The results of calls request a response themselves.
        if calls.is_empty() && std::mem::take(&mut self.is_response_due) {
            self.replies.push(respond());
        }
        let end = match (is_cancelled, calls.is_empty()) {
            // The user's voice has interrupted the model already.
            (true, _) if !was_responding => None,
            (true, _) => Some(LiveResponse::Interrupted),
            (false, true) => Some(LiveResponse::TurnComplete),
            (false, false) => Some(LiveResponse::ToolCalls(calls)),
        };
        Ok(usage.into_iter().chain(end).collect())
    }

    fn call(&self, item: OutputItem) -> Result<FunctionCall, ModelError> {
        let args = match item.arguments.trim() {
            "" => Ok(Default::default()),
            arguments => serde_json::from_str(arguments),
        };
        let args = args.map_err(|error| self.origin.bad_response(error))?;
        Ok(FunctionCall { id: Some(item.call_id), name: item.name, args, ..FunctionCall::default() })
    }
}

/// Returns the rate of a chunk of audio.
fn rate(blob: &Blob) -> Result<u32, String> {
    let mut parameters = blob.mime_type.split(';').map(str::trim);
    if parameters.next() != Some("audio/pcm") {
        return Err(format!("the Realtime API takes `audio/pcm` and images, and no `{}`", blob.mime_type));
    }
    let rate = parameters.find_map(|parameter| parameter.strip_prefix("rate=")?.parse().ok()).unwrap_or(DEFAULT_RATE);
    if !RATES.contains(&rate) {
        return Err(format!("audio has {} to {} samples a second, not {rate}", RATES.start(), RATES.end()));
    }
    Ok(rate)
}

impl LiveProtocol for RealtimeProtocol {
    fn check(request: &LiveRequest) -> Result<(), String> {
        match request {
            LiveRequest::Blob(blob) if !blob.mime_type.starts_with("image/") => rate(blob).map(drop),
            _ => Ok(()),
        }
    }

    fn encode(&mut self, request: &LiveRequest) -> Result<Vec<String>, String> {
        match request {
            LiveRequest::Content { content, partial, .. } => {
                let mut frames = message_items(content.clone())?;
                frames.extend((!partial).then(respond));
                Ok(frames)
            }
            LiveRequest::Blob(blob) => self.blob(blob),
            LiveRequest::ActivityStart => Ok(self.begin_activity()),
            LiveRequest::ActivityEnd => Ok(vec![json!({"type": "input_audio_buffer.commit"}).to_string(), respond()]),
            LiveRequest::ToolResponses(responses) => {
                let parts = responses.iter().cloned().map(|response| PartData::FunctionResponse(response).into());
                let mut frames = message_items(Content::new("user", parts.collect()))?;
                frames.push(respond());
                Ok(frames)
            }
            // The server notices the silence.
            LiveRequest::AudioStreamEnd | LiveRequest::Close => Ok(Vec::new()),
        }
    }

    fn take_replies(&mut self) -> Vec<String> {
        std::mem::take(&mut self.replies)
    }

    fn decode(&mut self, json: &[u8]) -> Result<Vec<LiveResponse>, ModelError> {
        let event = self.parse(json)?;
        let one = match event.r#type.as_str() {
            "response.created" => {
                self.is_responding = true;
                self.is_response_due = false;
                None
            }
            "response.output_audio.delta" => {
                let data = base64_bytes::decode(&event.delta).map_err(|error| self.origin.bad_response(error))?;
                let mime_type = format!("audio/pcm;rate={AUDIO_RATE}");
                let part = PartData::InlineData(Blob { mime_type, data, display_name: None }).into();
                Some(LiveResponse::Content(Content::new("model", vec![part])))
            }
            "response.output_text.delta" => {
                Some(LiveResponse::Content(Content::new("model", vec![Part::text(event.delta)])))
            }
            "response.output_audio_transcript.delta" => {
                Some(LiveResponse::OutputTranscription(Transcription { text: event.delta, finished: false }))
            }
            "conversation.item.input_audio_transcription.delta" => {
                self.transcribed = event.item_id;
                Some(LiveResponse::InputTranscription(Transcription { text: event.delta, finished: false }))
            }
            "conversation.item.input_audio_transcription.completed" => {
                let has_chunks = std::mem::take(&mut self.transcribed) == event.item_id && !event.item_id.is_empty();
                let text = if has_chunks { String::new() } else { event.transcript };
                Some(LiveResponse::InputTranscription(Transcription { text, finished: true }))
            }
            "input_audio_buffer.speech_started" => {
                // The server responds when the user has spoken.
                self.is_response_due = false;
                std::mem::replace(&mut self.is_responding, false).then_some(LiveResponse::Interrupted)
            }
            "response.done" => return self.end_response(event.response),
            "error" => {
                let error = event.error.unwrap_or_default();
                let code = error.code.as_deref().unwrap_or_default();
                if !HARMLESS_ERRORS.contains(&code) {
                    return Err(self.failure(&error));
                }
                self.is_response_due |= code == ACTIVE_RESPONSE;
                tracing::debug!(code = error.code, "a request came too late or too early");
                None
            }
            _ => None,
        };
        Ok(one.into_iter().collect())
    }
}

fn respond() -> String {
    json!({"type": "response.create"}).to_string()
}

fn message_items(content: Content) -> Result<Vec<String>, String> {
    items(&LlmRequest { contents: [Arc::new(content)].into_iter().collect(), ..LlmRequest::default() })
}

/// Returns the frames that add the contents of a request to the conversation.
fn items(request: &LlmRequest) -> Result<Vec<String>, String> {
    let items: Vec<Value> = conversation_items(request)?;
    Ok(items.into_iter().map(|item| json!({"type": "conversation.item.create", "item": item}).to_string()).collect())
}
