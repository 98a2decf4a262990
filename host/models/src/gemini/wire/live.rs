//! Frames of the Live API (`BidiGenerateContent`).

use hatchery_core::{
    Content, FunctionCall, HttpOptions, JsonMap, LiveRequest, LiveResponse, LlmRequest, Transcription, UsageMetadata,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Backend, BlobJson, ContentJson, Parts, ResponseJson, is_sent, role, settings, tools};

/// Keys of the setup that `httpOptions.extraBody` may not set.
const RESERVED_KEYS: [&str; 5] = ["model", "systemInstruction", "tools", "generationConfig", "sessionResumption"];

/// Returns the setup of a connection to `model`, without a handle.
pub(in crate::gemini) fn setup(
    backend: Backend,
    model: &str,
    request: &LlmRequest,
    options: &HttpOptions,
) -> Result<JsonMap, String> {
    let json = |error| format!("the settings of the model cannot be written as JSON: {error}");
    let live = request.live_connect_config.clone().unwrap_or_default();
    // Settings outside of `generationConfig` belong to single calls.
    let (mut generation, _) = settings(backend, &request.config).map_err(json)?;
    generation.insert("responseModalities".into(), json!(live.modalities()));
    let optional = [
        ("speechConfig", live.speech_config),
        ("enableAffectiveDialog", live.enable_affective_dialog.map(Value::Bool)),
    ];
    generation.extend(present(optional));
    let instructions = (!request.system_instructions.is_empty()).then(|| request.system_instructions.join("\n\n"));
    let tools = serde_json::to_value(tools(request)).map_err(json)?;
    let mut setup =
        JsonMap::from_iter([("model".into(), json!(model)), ("generationConfig".into(), generation.into())]);
    setup.extend(present([
        ("systemInstruction", instructions.map(|text| json!({"parts": [{"text": text}]}))),
        ("tools", Some(tools).filter(|tools| tools != &json!([]))),
        ("realtimeInputConfig", live.realtime_input_config),
        ("inputAudioTranscription", live.input_audio_transcription),
        ("outputAudioTranscription", live.output_audio_transcription),
        ("proactivity", live.proactivity),
    ]));
    let extra = options.extra_body.iter().filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str()));
    setup.extend(extra.map(|(key, value)| (key.clone(), value.clone())));
    Ok(setup)
}

fn present<const N: usize>(entries: [(&str, Option<Value>); N]) -> impl Iterator<Item = (String, Value)> {
    entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)))
}

/// Returns the first frame of a connection. `handle` continues an earlier one.
pub(in crate::gemini) fn setup_frame(setup: &JsonMap, handle: Option<&str>) -> String {
    let mut setup = setup.clone();
    let resumption = handle.map_or_else(|| json!({}), |handle| json!({"handle": handle}));
    setup.insert("sessionResumption".into(), resumption);
    json!({"setup": setup}).to_string()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum ClientFrame<'a> {
    #[serde(rename_all = "camelCase")]
    ClientContent {
        turns: Vec<ContentJson<'a>>,
        turn_complete: bool,
    },
    RealtimeInput(RealtimeInput<'a>),
    #[serde(rename_all = "camelCase")]
    ToolResponse {
        function_responses: Vec<ResponseJson<'a>>,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum RealtimeInput<'a> {
    Audio(BlobJson<'a>),
    Video(BlobJson<'a>),
    ActivityStart {},
    ActivityEnd {},
    AudioStreamEnd(bool),
}

/// Returns the frame with the conversation so far. The model answers if it ends with the user. `None` if there is
/// nothing to send.
pub(in crate::gemini) fn history_frame(request: &LlmRequest) -> Result<Option<String>, String> {
    let sent =
        request.contents.iter().map(AsRef::as_ref).filter(|content: &&Content| content.parts.iter().any(is_sent));
    let turns: Vec<_> = sent.map(content_json).collect();
    let Some(last) = turns.last() else { return Ok(None) };
    let turn_complete = last.role == super::USER;
    write(&ClientFrame::ClientContent { turns, turn_complete }).map(Some)
}

/// Checks whether a connection takes this kind of input.
pub(in crate::gemini) fn check_input(request: &LiveRequest) -> Result<(), String> {
    let LiveRequest::Blob(blob) = request else { return Ok(()) };
    if ["audio/", "image/", "video/"].iter().any(|kind| blob.mime_type.starts_with(kind)) {
        return Ok(());
    }
    Err(format!("a live connection takes audio and images, and no `{}`", blob.mime_type))
}

/// Returns the frame of a request that was checked; `None` for the end, which is not a frame.
pub(in crate::gemini) fn request_frame(request: &LiveRequest) -> Result<Option<String>, String> {
    let frame = match request {
        LiveRequest::Content { content, partial, .. } => {
            let is_empty = !content.parts.iter().any(is_sent);
            let turns = if is_empty { Vec::new() } else { vec![content_json(content)] };
            ClientFrame::ClientContent { turns, turn_complete: !partial }
        }
        LiveRequest::Blob(blob) if blob.mime_type.starts_with("audio/") => {
            ClientFrame::RealtimeInput(RealtimeInput::Audio(BlobJson::new(blob)))
        }
        LiveRequest::Blob(blob) => ClientFrame::RealtimeInput(RealtimeInput::Video(BlobJson::new(blob))),
        LiveRequest::ActivityStart => ClientFrame::RealtimeInput(RealtimeInput::ActivityStart {}),
        LiveRequest::ActivityEnd => ClientFrame::RealtimeInput(RealtimeInput::ActivityEnd {}),
        LiveRequest::AudioStreamEnd => ClientFrame::RealtimeInput(RealtimeInput::AudioStreamEnd(true)),
        LiveRequest::ToolResponses(responses) => {
            ClientFrame::ToolResponse { function_responses: responses.iter().map(ResponseJson::new).collect() }
        }
        LiveRequest::Close => return Ok(None),
    };
    write(&frame).map(Some)
}

fn content_json(content: &Content) -> ContentJson<'_> {
    ContentJson { role: role(content), parts: Parts::new(&content.parts) }
}

fn write(frame: &ClientFrame<'_>) -> Result<String, String> {
    serde_json::to_string(frame).map_err(|error| format!("the request cannot be written as JSON: {error}"))
}

/// A frame of the server.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::gemini) struct ServerFrame {
    pub(in crate::gemini) setup_complete: Option<Value>,
    server_content: Option<ServerContent>,
    tool_call: Option<ToolCall>,
    tool_call_cancellation: Option<ToolCallCancellation>,
    usage_metadata: Option<UsageMetadata>,
    /// The connection will be closed soon.
    pub(in crate::gemini) go_away: Option<Value>,
    pub(in crate::gemini) session_resumption_update: Option<ResumptionUpdate>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServerContent {
    model_turn: Option<Content>,
    turn_complete: bool,
    interrupted: bool,
    input_transcription: Option<Transcription>,
    output_transcription: Option<Transcription>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ToolCall {
    function_calls: Vec<FunctionCall>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToolCallCancellation {
    ids: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::gemini) struct ResumptionUpdate {
    new_handle: String,
    resumable: bool,
}

impl ResumptionUpdate {
    /// Returns the handle that continues the connection from here; `None` if it cannot be continued now.
    pub(in crate::gemini) fn handle(self) -> Option<String> {
        (self.resumable && !self.new_handle.is_empty()).then_some(self.new_handle)
    }
}

impl ServerFrame {
    /// Returns the messages for the agent, in their order.
    pub(in crate::gemini) fn into_responses(self) -> Vec<LiveResponse> {
        let ServerContent { model_turn, turn_complete, interrupted, input_transcription, output_transcription } =
            self.server_content.unwrap_or_default();
        let calls = self.tool_call.map(|call| call.function_calls).filter(|calls| !calls.is_empty());
        [
            input_transcription.map(LiveResponse::InputTranscription),
            model_turn.filter(|content| !content.parts.is_empty()).map(LiveResponse::Content),
            output_transcription.map(LiveResponse::OutputTranscription),
            calls.map(LiveResponse::ToolCalls),
            self.tool_call_cancellation.map(|cancelled| LiveResponse::ToolCallsCancelled(cancelled.ids)),
            self.usage_metadata.map(|usage| LiveResponse::Usage(with_common_names(usage))),
            interrupted.then_some(LiveResponse::Interrupted),
            turn_complete.then_some(LiveResponse::TurnComplete),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Renames the counts of the answer, which have other names in the Live API.
fn with_common_names(mut usage: UsageMetadata) -> UsageMetadata {
    let count = usage.extra.shift_remove("responseTokenCount").as_ref().and_then(Value::as_u64);
    usage.candidates_token_count = usage.candidates_token_count.or(count);
    if let Some(details) = usage.extra.shift_remove("responseTokensDetails") {
        usage.extra.insert("candidatesTokensDetails".to_owned(), details);
    }
    usage
}
