//! Wire format of the Anthropic Messages API: the body of a request, and responses.

use hatchery_core::{
    Content, Extra, FunctionCall, JsonMap, LlmRequest, LlmResponse, ModelError, Part, PartData, StreamingMode,
    UsageMetadata,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::messages::{CachedBlock, Message, have_thoughts, messages};
use super::schema::accepted_schema;
use super::settings::{SettingsContext, ToolJson, cache_control, mark_last, settings, tools};
use super::version::ClaudeVersion;
use crate::failure::Origin;
use crate::finish;
use crate::prompt::schema_instruction;
use crate::signatures::SignatureKind;

/// The API that a request is sent to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    Anthropic,
    /// Vertex AI, where the model's name is in the URL. It accepts no addresses of files, and no schemas unless a policy
    /// of the organization allows them.
    Vertex {
        api_version: &'static str,
    },
}

#[derive(Serialize)]
pub(super) struct RequestJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anthropic_version: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<CachedBlock<'a>>,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolJson<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
    #[serde(flatten)]
    settings: JsonMap,
}

/// Returns the body of a request. The error names the content that the protocol cannot represent.
pub(super) fn request<'a>(
    model: &'a str,
    target: Target,
    request: &'a LlmRequest,
    streaming_mode: StreamingMode,
) -> Result<RequestJson<'a>, String> {
    let version = ClaudeVersion::of(model);
    let cache_control = cache_control(&request.config);
    let mut tools = tools(request)?;
    let (model, anthropic_version) = match target {
        Target::Anthropic => (Some(model), None),
        Target::Vertex { api_version } => (None, Some(api_version)),
    };
    let is_anthropic = model.is_some();
    let schema = request.config.response_schema.as_ref();
    let format = schema.filter(|_| is_anthropic && version.has_schemas()).and_then(accepted_schema);
    let by_schema = schema.filter(|_| format.is_none()).map(schema_instruction);
    let instructions: Vec<_> = request.system_instructions.iter().chain(&by_schema).map(String::as_str).collect();
    let instructions = instructions.join("\n\n");
    let system = if instructions.trim().is_empty() {
        mark_last(&mut tools, cache_control);
        Vec::new()
    } else {
        // The mark covers the tools too, which come before the instructions in the cache.
        vec![CachedBlock::text(instructions).with_cache_control(cache_control)]
    };
    let messages = messages(request, is_anthropic, cache_control)?;
    let context = SettingsContext {
        version,
        has_tools: !tools.is_empty(),
        has_bound_thoughts: is_anthropic && version.has_bound_thoughts() && have_thoughts(&messages),
        format,
    };
    Ok(RequestJson {
        model,
        anthropic_version,
        system,
        messages,
        settings: settings(context, &request.config),
        tools,
        stream: streaming_mode == StreamingMode::On,
    })
}

/// A response, or the beginning of a streamed one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageJson {
    pub(super) id: Option<String>,
    pub(super) model: Option<String>,
    content: Option<Vec<BlockJson>>,
    stop_reason: Option<String>,
    pub(super) usage: Option<UsageJson>,
    error: Option<Value>,
}

/// A block of a response. Blocks of unknown types are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct BlockJson {
    r#type: Option<String>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    citations: Option<Vec<Value>>,
}

/// A block by its type.
pub(super) enum ResponseBlock {
    Text { text: String, citations: Vec<Value> },
    Thinking { text: String, signature: Option<String> },
    RedactedThinking { data: String },
    ToolUse { id: Option<String>, name: String, input: JsonMap },
    Other,
}

impl From<BlockJson> for ResponseBlock {
    fn from(block: BlockJson) -> Self {
        match block.r#type.as_deref().unwrap_or_default() {
            "text" => {
                Self::Text { text: block.text.unwrap_or_default(), citations: block.citations.unwrap_or_default() }
            }
            "thinking" => Self::Thinking { text: block.thinking.unwrap_or_default(), signature: block.signature },
            "redacted_thinking" => Self::RedactedThinking { data: block.data.unwrap_or_default() },
            "tool_use" => Self::ToolUse {
                id: block.id.filter(|id| !id.is_empty()),
                name: block.name.unwrap_or_default(),
                input: match block.input {
                    Some(Value::Object(input)) => input,
                    _ => JsonMap::new(),
                },
            },
            _ => Self::Other,
        }
    }
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct UsageJson {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

impl UsageJson {
    /// Returns these counts, with the counts of `earlier` where there are none.
    pub(super) fn or(self, earlier: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.or(earlier.input_tokens),
            output_tokens: self.output_tokens.or(earlier.output_tokens),
            cache_creation_input_tokens: self.cache_creation_input_tokens.or(earlier.cache_creation_input_tokens),
            cache_read_input_tokens: self.cache_read_input_tokens.or(earlier.cache_read_input_tokens),
        }
    }

    /// Converts the counts to Gemini's: Anthropic does not include cached tokens in the tokens of the prompt.
    pub(super) fn metadata(self) -> UsageMetadata {
        let cached = self.cache_read_input_tokens.filter(|cached| *cached > 0);
        let written = self.cache_creation_input_tokens.filter(|written| *written > 0);
        let add = u64::saturating_add;
        let prompt = self.input_tokens.map(|input| add(add(input, cached.unwrap_or(0)), written.unwrap_or(0)));
        let extra = written.map(|written| JsonMap::from_iter([("cacheCreationTokenCount".into(), written.into())]));
        UsageMetadata {
            prompt_token_count: prompt,
            candidates_token_count: self.output_tokens,
            cached_content_token_count: cached,
            total_token_count: prompt.zip(self.output_tokens).map(|(prompt, output)| add(prompt, output)),
            extra: Extra::from(extra.unwrap_or_default()),
            ..UsageMetadata::default()
        }
    }
}

/// Parses a response that is not streamed.
pub(super) fn parse_response(body: &[u8], origin: &Origin) -> Result<LlmResponse, ModelError> {
    let message: MessageJson = serde_json::from_slice(body).map_err(|error| origin.bad_response(error))?;
    if let Some(error) = &message.error {
        return Err(origin.body_error(error));
    }
    let Some(blocks) = message.content else { return Err(origin.bad_response("it has no content")) };
    let mut parts: Vec<Part> = Vec::with_capacity(blocks.len());
    let mut sources = Vec::new();
    for block in blocks {
        match block.into() {
            ResponseBlock::Text { text, citations } => {
                sources.extend(citations);
                parts.extend((!text.is_empty()).then(|| Part::text(text)));
            }
            ResponseBlock::Thinking { text, signature } => parts.push(thought(text, signature.as_deref())),
            ResponseBlock::RedactedThinking { data } => parts.push(redacted_thought(&data)),
            ResponseBlock::ToolUse { id, name, input } => parts.push(call(id, name, input)),
            ResponseBlock::Other => {}
        }
    }
    let mut response = LlmResponse {
        content: (!parts.is_empty()).then(|| Content::new("model", parts)),
        model_version: message.model,
        usage_metadata: message.usage.map(UsageJson::metadata),
        grounding_metadata: citations(sources),
        custom_metadata: metadata(message.id),
        ..LlmResponse::default()
    };
    if let Some(reason) = message.stop_reason.as_deref() {
        finish::set(&mut response, finish_reason(reason), None);
    }
    Ok(response)
}

/// Returns a thought, signed if there is a signature.
pub(super) fn thought(text: impl Into<String>, signature: Option<&str>) -> Part {
    let signature = signature.filter(|signature| !signature.is_empty());
    Part {
        thought: true,
        thought_signature: signature.map(|signature| SignatureKind::Thinking.write(signature)),
        ..Part::text(text)
    }
}

/// Returns an encrypted thought, which has no text.
pub(super) fn redacted_thought(data: &str) -> Part {
    Part { thought: true, thought_signature: Some(SignatureKind::RedactedThinking.write(data)), ..Part::default() }
}

pub(super) fn call(id: Option<String>, name: String, args: JsonMap) -> Part {
    PartData::FunctionCall(FunctionCall { id, name, args, ..FunctionCall::default() }).into()
}

/// Returns citations as grounding metadata.
pub(super) fn citations(citations: Vec<Value>) -> Option<Value> {
    (!citations.is_empty()).then(|| json!({ "citations": citations }))
}

/// Returns the other fields of the response.
pub(super) fn metadata(id: Option<String>) -> Option<Value> {
    id.map(|id| json!({ "id": id }))
}

/// Maps a stop reason to Gemini's name.
pub(super) fn finish_reason(reason: &str) -> &'static str {
    match reason {
        "end_turn" | "tool_use" | "stop_sequence" | "pause_turn" => finish::STOP,
        "max_tokens" | "model_context_window_exceeded" => "MAX_TOKENS",
        "refusal" => "SAFETY",
        _ => "OTHER",
    }
}
