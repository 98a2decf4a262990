//! Wire format of chat completions: the body of a request, responses and stream chunks.

use hatchery_core::{
    Content, FunctionCall, JsonMap, LlmRequest, LlmResponse, ModelError, Part, PartData, StreamingMode, UsageMetadata,
    base64_bytes,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Dialect;
use super::details::ReasoningDetails;
use super::messages::{Message, messages};
use super::settings::{ToolJson, settings, tools};
use crate::failure::Origin;
use crate::finish;
use crate::nulls;

#[derive(Serialize)]
pub(super) struct RequestJson<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolJson<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    settings: JsonMap,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// Returns the body of a request. The error names the content that the protocol cannot represent.
pub(super) fn request<'a>(
    model: &'a str,
    dialect: Dialect,
    request: &'a LlmRequest,
    streaming_mode: StreamingMode,
) -> Result<RequestJson<'a>, String> {
    let stream = streaming_mode == StreamingMode::On;
    let tools = tools(request)?;
    Ok(RequestJson {
        model,
        messages: messages(model, dialect, request)?,
        settings: settings(model, dialect, !tools.is_empty(), &request.config),
        tools,
        stream,
        // Mistral refuses the option, and always sends the usage.
        stream_options: (stream && dialect != Dialect::Mistral).then_some(StreamOptions { include_usage: true }),
    })
}

/// A response, or a chunk of a streamed one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct CompletionJson {
    id: Option<String>,
    model: Option<String>,
    created: Option<u64>,
    system_fingerprint: Option<String>,
    service_tier: Option<String>,
    choices: Option<Vec<ChoiceJson>>,
    usage: Option<UsageJson>,
    error: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ChoiceJson {
    #[serde(alias = "delta")]
    pub(super) message: Option<MessageJson>,
    pub(super) finish_reason: Option<String>,
    /// Untyped: an unknown form does not make the response unreadable.
    logprobs: Option<Value>,
    index: u64,
}

/// The log probabilities of the tokens of a response.
#[derive(Default)]
pub(super) struct Logprobs {
    sum: f64,
    tokens: u32,
}

impl Logprobs {
    /// Adds the tokens of a response or a chunk.
    pub(super) fn add(&mut self, choice: &ChoiceJson) {
        let tokens = choice.logprobs.as_ref().and_then(|logprobs| logprobs.get("content")).and_then(Value::as_array);
        for logprob in tokens.into_iter().flatten().filter_map(|token| token.get("logprob")?.as_f64()) {
            self.sum += logprob;
            self.tokens += 1;
        }
    }

    /// Returns the mean, or `None` if there were no tokens.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.sum / f64::from(self.tokens))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageJson {
    content: Option<ContentJson>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    /// The thoughts under their newer name. Some servers send them under both names.
    reasoning: Option<String>,
    /// Untyped: an unknown form does not make the response unreadable.
    pub(super) reasoning_details: Option<Value>,
    pub(super) tool_calls: Option<Vec<ToolCallJson>>,
}

/// The content of a message. Mistral's models that think send it as a list of chunks.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of chunks")]
enum ContentJson {
    Text(String),
    Chunks(Vec<ContentChunkJson>),
}

/// A chunk of a content. Only chunks of the types `text` and `thinking` have one of these keys.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ContentChunkJson {
    text: Option<String>,
    thinking: Option<ContentJson>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolCallJson {
    pub(super) index: Option<u64>,
    pub(super) id: Option<String>,
    pub(super) function: CalledFunctionJson,
    pub(super) extra_content: Option<ExtraContent>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct CalledFunctionJson {
    pub(super) name: Option<String>,
    #[serde(deserialize_with = "text_or_json")]
    pub(super) arguments: Option<String>,
}

/// Reads a text. Some servers send the arguments of a call as the object itself.
fn text_or_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    Ok(value.map(|value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    }))
}

/// An extension by Gemini's endpoint for chat completions.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ExtraContent {
    google: GoogleContent,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct GoogleContent {
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<String>,
}

impl ExtraContent {
    pub(super) fn with_signature(signature: String) -> Self {
        Self { google: GoogleContent { thought_signature: Some(signature) } }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UsageJson {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

/// Parses a response or a chunk. Returns an error if it has an `error` key.
pub(super) fn parse(json: &[u8], origin: &Origin) -> Result<CompletionJson, ModelError> {
    let completion: CompletionJson = nulls::parse(json).map_err(|error| origin.bad_response(error))?;
    match &completion.error {
        Some(error) => Err(origin.body_error(error)),
        None => Ok(completion),
    }
}

/// Parses a response that is not streamed.
pub(super) fn parse_response(body: &[u8], origin: &Origin) -> Result<LlmResponse, ModelError> {
    let mut completion = parse(body, origin)?;
    let mut response = completion.response(false);
    response.custom_metadata = completion.metadata();
    let Some(choice) = completion.take_choice() else {
        return Err(origin.bad_response("it has no choices"));
    };
    let mut logprobs = Logprobs::default();
    logprobs.add(&choice);
    response.avg_logprobs = logprobs.mean();
    let reason = choice.finish_reason.as_deref().and_then(finish_reason);
    let mut message = choice.message.unwrap_or_default();
    let calls = message.tool_calls.take().unwrap_or_default();
    let details = ReasoningDetails::new(message.reasoning_details.take()).take_part();
    let mut parts = message.parts();
    parts.extend(details);
    parts.extend(call_parts(calls, reason, origin)?);
    response.content = (!parts.is_empty()).then(|| Content::new("model", parts));
    if let Some(reason) = reason {
        finish::set(&mut response, reason, None);
    }
    Ok(response)
}

impl CompletionJson {
    /// Creates a response with the model's name and the usage, if this chunk has them.
    pub(super) fn response(&mut self, partial: bool) -> LlmResponse {
        LlmResponse {
            partial,
            model_version: self.model.clone(),
            usage_metadata: self.usage.take().map(UsageJson::metadata),
            ..LlmResponse::default()
        }
    }

    /// Takes the first choice.
    pub(super) fn take_choice(&mut self) -> Option<ChoiceJson> {
        self.choices.take()?.into_iter().find(|choice| choice.index == 0)
    }

    /// Returns the other fields of the response.
    pub(super) fn metadata(&self) -> Option<Value> {
        let entries = [
            ("id", self.id.clone().map(Value::from)),
            ("created", self.created.map(Value::from)),
            ("system_fingerprint", self.system_fingerprint.clone().map(Value::from)),
            ("service_tier", self.service_tier.clone().map(Value::from)),
        ];
        let map: JsonMap = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        (!map.is_empty()).then_some(Value::Object(map))
    }
}

impl MessageJson {
    /// Returns the thoughts, the text and the refusal that are not empty.
    pub(super) fn parts(self) -> Vec<Part> {
        let thoughts = self.reasoning.filter(|thoughts| !thoughts.is_empty()).or(self.reasoning_content);
        let content = self.content.map(ContentJson::parts).unwrap_or_default();
        text_part(thoughts, true).into_iter().chain(content).chain(text_part(self.refusal, false)).collect()
    }
}

/// Returns `None` for a text that is missing or empty.
fn text_part(text: Option<String>, thought: bool) -> Option<Part> {
    text.filter(|text| !text.is_empty()).map(|text| Part { thought, ..Part::text(text) })
}

impl ContentJson {
    /// Returns the thoughts and texts that are not empty, in their order.
    fn parts(self) -> Vec<Part> {
        match self {
            Self::Text(text) => text_part(Some(text), false).into_iter().collect(),
            Self::Chunks(chunks) => chunks.into_iter().flat_map(ContentChunkJson::parts).collect(),
        }
    }

    /// Returns the texts, without thoughts.
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Chunks(chunks) => chunks.into_iter().filter_map(|chunk| chunk.text).collect(),
        }
    }
}

impl ContentChunkJson {
    fn parts(self) -> impl Iterator<Item = Part> {
        let thoughts = text_part(self.thinking.map(ContentJson::text), true);
        thoughts.into_iter().chain(text_part(self.text, false))
    }
}

/// Converts calls to parts. If the response was cut off, incomplete calls are omitted.
pub(super) fn call_parts(
    calls: Vec<ToolCallJson>,
    reason: Option<&str>,
    origin: &Origin,
) -> Result<Vec<Part>, ModelError> {
    let is_cut_off = reason.is_some_and(|reason| reason != finish::STOP);
    let mut parts = Vec::with_capacity(calls.len());
    for call in calls {
        let name = call.function.name.unwrap_or_default();
        let arguments = call.function.arguments.unwrap_or_default();
        let args = match arguments.trim() {
            "" if is_cut_off => continue,
            "" | "null" => JsonMap::new(),
            arguments => match serde_json::from_str(arguments) {
                Ok(args) => args,
                Err(_) if is_cut_off => continue,
                Err(error) => {
                    let message = format!("the arguments of tool call `{name}` are no JSON object ({error})");
                    return Err(origin.bad_response(message));
                }
            },
        };
        let signature = call.extra_content.and_then(|extra| extra.google.thought_signature);
        let id = call.id.filter(|id| !id.is_empty());
        parts.push(Part {
            thought_signature: signature.and_then(|signature| base64_bytes::decode(&signature).ok()),
            ..PartData::FunctionCall(FunctionCall { id, name, args, ..FunctionCall::default() }).into()
        });
    }
    Ok(parts)
}

/// Maps a finish reason to Gemini's name. `None` for the texts that some servers send where there is none yet.
pub(super) fn finish_reason(reason: &str) -> Option<&'static str> {
    match reason {
        "" | "null" => None,
        "stop" | "tool_calls" | "function_call" => Some(finish::STOP),
        // The second is Mistral's, where the context of the model is full.
        "length" | "model_length" => Some("MAX_TOKENS"),
        "content_filter" => Some("SAFETY"),
        _ => Some("OTHER"),
    }
}

impl UsageJson {
    /// Converts the counts to Gemini's: OpenAI includes thoughts in the completion tokens, Gemini does not.
    fn metadata(self) -> UsageMetadata {
        let thoughts = self.completion_tokens_details.and_then(|details| details.reasoning_tokens);
        UsageMetadata {
            prompt_token_count: self.prompt_tokens,
            candidates_token_count: self.completion_tokens.map(|all| all.saturating_sub(thoughts.unwrap_or(0))),
            thoughts_token_count: thoughts.filter(|thoughts| *thoughts > 0),
            cached_content_token_count: self
                .prompt_tokens_details
                .and_then(|details| details.cached_tokens)
                .filter(|cached| *cached > 0),
            total_token_count: self.total_tokens,
            ..UsageMetadata::default()
        }
    }
}
