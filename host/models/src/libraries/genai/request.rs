//! Requests in the types of the library.

use ::genai::adapter::AdapterKind;
use ::genai::chat::{
    Binary, ChatMessage, ChatOptions, ChatRequest, ChatResponseFormat, ChatRole, ContentPart, CustomPart, JsonSpec,
    MessageContent, ReasoningEffort, Tool, ToolCall, ToolChoice as GenaiToolChoice, ToolResponse,
};
use hatchery_core::{
    Blob, Content, FileData, FunctionCall, FunctionResponse, GenerateContentConfig, HttpOptions, JsonMap, LlmRequest,
    Part, PartData, base64_bytes,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::conversion::{ConversionError, ToolChoice};
use crate::files;
use crate::prompt::{call_id, code_fence, parameters};
use crate::signatures::SignatureKind;

/// Settings that are not keys of Gemini's `generationConfig`.
const BESIDE_GENERATION_CONFIG: [&str; 6] =
    ["httpOptions", "automaticFunctionCalling", "toolConfig", "safetySettings", "cachedContent", "labels"];

/// Keys that `httpOptions.extraBody` may not set.
const RESERVED_KEYS: [&str; 7] = ["model", "messages", "contents", "input", "system", "tools", "stream"];

/// Data that must be sent back to the provider with a part.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Signatures {
    /// The text of a thought, if it differs from the part's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    pub(super) signatures: Vec<String>,
    /// A part that only its provider can read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) custom: Option<CustomPart>,
}

/// Returns a request for the library: instructions, messages and tools.
///
/// # Errors
/// If something in the request has no form in the library.
pub fn chat_request(request: &LlmRequest) -> Result<ChatRequest, ConversionError> {
    if let Some(tool) = request.model_tools.first() {
        let message =
            format!("genai does not have the model tool {tool}; remove it, or choose a model without the library");
        return Err(ConversionError::InvalidStructure(message));
    }
    let mut messages = Vec::with_capacity(request.contents.len());
    for content in &request.contents {
        match content.role.as_deref() {
            Some("model" | "assistant") => messages.extend(assistant(content)?),
            _ => user(content, &mut messages)?,
        }
    }
    let mut chat = ChatRequest::new(messages);
    if !request.system_instructions.is_empty() {
        chat = chat.with_system(request.system_instructions.join("\n\n"));
    }
    let tools = request.tools.iter().map(|tool| {
        let schema = parameters(tool).into_owned();
        Tool::new(tool.name.as_str()).with_description(&tool.description).with_schema(schema)
    });
    let tools: Vec<_> = tools.collect();
    Ok(if tools.is_empty() { chat } else { chat.with_tools(tools) })
}

fn user(content: &Content, messages: &mut Vec<ChatMessage>) -> Result<(), ConversionError> {
    let responses = content.function_responses().map(tool_response).collect::<Result<Vec<_>, _>>()?;
    if !responses.is_empty() {
        messages.push(ChatMessage::from(responses));
    }
    let mut parts = Vec::new();
    for part in content.parts.iter().filter(|part| !part.thought) {
        match &part.data {
            PartData::Text(text) => parts.push(ContentPart::from_text(text)),
            PartData::InlineData(blob) => parts.push(inline(blob)?),
            PartData::FileData(file) => parts.push(reference(file)?),
            PartData::ExecutableCode(code) => {
                parts.push(ContentPart::from_text(code_fence(code.language.as_deref(), &code.code)));
            }
            PartData::CodeExecutionResult(result) => {
                parts.push(ContentPart::from_text(code_fence(None, result.output.as_deref().unwrap_or_default())));
            }
            PartData::FunctionCall(_) | PartData::FunctionResponse(_) | PartData::Other => {}
        }
    }
    if !parts.is_empty() {
        messages.push(ChatMessage::new(ChatRole::User, MessageContent::from_parts(parts)));
    }
    Ok(())
}

fn assistant(content: &Content) -> Result<Option<ChatMessage>, ConversionError> {
    // The signatures of a streamed answer come last, and providers require thoughts first.
    let (mut thoughts, mut parts) = (Vec::new(), Vec::new());
    for part in &content.parts {
        let Signatures { text: hidden, signatures, custom } = signatures(part)?;
        thoughts.extend(custom.map(ContentPart::Custom));
        match &part.data {
            // Thoughts of other providers are not sent.
            PartData::Text(text) if part.thought => {
                if !signatures.is_empty() {
                    thoughts.extend(signatures.into_iter().map(ContentPart::ThoughtSignature));
                    thoughts.push(ContentPart::ReasoningContent(hidden.unwrap_or_else(|| text.clone())));
                }
            }
            PartData::Text(text) => parts.push(ContentPart::from_text(text)),
            PartData::FunctionCall(call) => parts.push(ContentPart::ToolCall(tool_call(call, signatures))),
            PartData::ExecutableCode(code) => {
                parts.push(ContentPart::from_text(code_fence(code.language.as_deref(), &code.code)));
            }
            PartData::CodeExecutionResult(result) => {
                parts.push(ContentPart::from_text(code_fence(None, result.output.as_deref().unwrap_or_default())));
            }
            // Answers have no files in the library, so one is represented by its type or URI.
            PartData::InlineData(blob) => parts.push(ContentPart::from_text(format!("[{}]", blob.mime_type))),
            PartData::FileData(file) => parts.push(ContentPart::from_text(format!("[{}]", file.file_uri))),
            PartData::FunctionResponse(_) | PartData::Other => {}
        }
    }
    thoughts.append(&mut parts);
    let message = |parts| ChatMessage::new(ChatRole::Assistant, MessageContent::from_parts(parts));
    Ok((!thoughts.is_empty()).then(|| message(thoughts)))
}

/// Returns the signatures of a part that the library has given.
fn signatures(part: &Part) -> Result<Signatures, ConversionError> {
    match SignatureKind::Genai.read(part) {
        Some(json) => serde_json::from_str(json).map_err(|error| ConversionError::json("a thought signature", error)),
        None => Ok(Signatures::default()),
    }
}

fn tool_call(call: &FunctionCall, signatures: Vec<String>) -> ToolCall {
    ToolCall {
        call_id: call_id(call.id.as_deref(), &call.name).into_owned(),
        fn_name: call.name.clone(),
        fn_arguments: Value::Object(call.args.clone()),
        thought_signatures: (!signatures.is_empty()).then_some(signatures),
    }
}

fn tool_response(response: &FunctionResponse) -> Result<ToolResponse, ConversionError> {
    let json = serde_json::to_string(&response.response)
        .map_err(|error| ConversionError::json(format!("the answer of `{}`", response.name), error))?;
    Ok(ToolResponse::new(call_id(response.id.as_deref(), &response.name), json).with_fn_name(&response.name))
}

/// Returns true for the types of files that the library sends.
fn is_sent(mime_type: &str) -> bool {
    mime_type == "application/pdf" || ["image/", "audio/", "video/"].iter().any(|kind| mime_type.starts_with(kind))
}

fn inline(blob: &Blob) -> Result<ContentPart, ConversionError> {
    if is_sent(&blob.mime_type) {
        let data = base64_bytes::encode(&blob.data);
        return Ok(ContentPart::Binary(Binary::from_base64(&blob.mime_type, data, blob.display_name.clone())));
    }
    match files::text_of(blob) {
        Some(text) => Ok(ContentPart::from_text(text)),
        None => Err(ConversionError::UnsupportedContentType(blob.mime_type.clone())),
    }
}

fn reference(file: &FileData) -> Result<ContentPart, ConversionError> {
    match file.mime_type.as_deref() {
        Some(mime_type) if is_sent(mime_type) => {
            Ok(ContentPart::Binary(Binary::from_url(mime_type, &file.file_uri, file.display_name.clone())))
        }
        Some(mime_type) => Err(ConversionError::UnsupportedContentType(mime_type.to_owned())),
        None => {
            let message = format!("the file {} has no media type; set its `mimeType`", file.file_uri);
            Err(ConversionError::InvalidStructure(message))
        }
    }
}

/// Returns the settings of a call of a model of this provider.
///
/// # Errors
/// If a setting has a value that the library does not take.
pub fn chat_options(
    kind: AdapterKind,
    config: &GenerateContentConfig,
    http_options: &HttpOptions,
) -> Result<ChatOptions, ConversionError> {
    let thinking = config.extra.get("thinkingConfig");
    let seed = config.seed.map(|seed| {
        u64::try_from(seed)
            .map_err(|_| ConversionError::InvalidStructure(format!("`seed` is {seed}; genai takes none below 0")))
    });
    let tool_choice = ToolChoice::from_config(config).map(|choice| match choice {
        ToolChoice::Auto => GenaiToolChoice::Auto,
        ToolChoice::Never => GenaiToolChoice::None,
        ToolChoice::Any => GenaiToolChoice::Required,
        ToolChoice::One(name) => GenaiToolChoice::tool(name),
    });
    let response_format = match (&config.response_schema, config.response_mime_type.as_deref()) {
        (Some(schema), _) => Some(JsonSpec::new("response", schema.clone()).into()),
        (None, Some("application/json")) => Some(ChatResponseFormat::JsonMode),
        (None, _) => None,
    };
    let mut body = provider_settings(kind, config);
    let extra = http_options.extra_body.iter().filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str()));
    body.extend(extra.map(|(key, value)| (key.clone(), value.clone())));
    Ok(ChatOptions {
        temperature: config.temperature,
        max_tokens: config.max_output_tokens.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        top_p: config.top_p,
        stop_sequences: config.stop_sequences.clone().unwrap_or_default(),
        seed: seed.transpose()?,
        tool_choice,
        response_format,
        reasoning_effort: thinking.and_then(reasoning_effort),
        capture_usage: Some(true),
        capture_tool_calls: Some(true),
        capture_reasoning_content: thinking.is_some().then_some(true),
        extra_body: (!body.is_empty()).then_some(Value::Object(body)),
        ..ChatOptions::default()
    })
}

fn reasoning_effort(thinking: &Value) -> Option<ReasoningEffort> {
    match thinking.get("thinkingBudget").and_then(Value::as_i64) {
        Some(0) => Some(ReasoningEffort::Zero),
        Some(budget) => u32::try_from(budget).ok().map(ReasoningEffort::Budget),
        None => ReasoningEffort::from_keyword(&thinking.get("thinkingLevel")?.as_str()?.to_lowercase()),
    }
}

/// Returns the settings that the library has no option for, as keys of the body. Providers without them get none.
fn provider_settings(kind: AdapterKind, config: &GenerateContentConfig) -> JsonMap {
    let (top_k, penalties) = match kind {
        AdapterKind::Gemini => return gemini_settings(config),
        AdapterKind::Anthropic | AdapterKind::MiniMax => (true, false),
        AdapterKind::OpenAI => (false, true),
        AdapterKind::OpenAIResp
        | AdapterKind::GeminiIx
        | AdapterKind::Vertex
        | AdapterKind::Cohere
        | AdapterKind::Ollama
        | AdapterKind::OllamaCloud
        | AdapterKind::BedrockApi => (false, false),
        _ => (true, true),
    };
    let settings = [
        ("top_k", config.top_k.filter(|_| top_k)),
        ("presence_penalty", config.presence_penalty.filter(|_| penalties)),
        ("frequency_penalty", config.frequency_penalty.filter(|_| penalties)),
    ];
    settings.into_iter().filter_map(|(key, value)| Some((key.to_owned(), number(value?)))).collect()
}

/// Returns `generationConfig` as a whole: keys of the body replace the library's keys.
fn gemini_settings(config: &GenerateContentConfig) -> JsonMap {
    let Ok(Value::Object(mut settings)) = serde_json::to_value(config) else { return JsonMap::new() };
    let beside: JsonMap =
        ["safetySettings", "cachedContent"].into_iter().filter_map(|key| settings.remove_entry(key)).collect();
    settings.retain(|key, _| !BESIDE_GENERATION_CONFIG.contains(&key.as_str()));
    if let Some(schema) = settings.remove("responseSchema") {
        settings.insert("responseMimeType".into(), "application/json".into());
        settings.insert("responseJsonSchema".into(), schema);
    }
    let generation_config = (!settings.is_empty()).then(|| ("generationConfig".to_owned(), Value::Object(settings)));
    generation_config.into_iter().chain(beside).collect()
}

/// Returns a number without a fraction as an integer, which `top_k` must be.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { Value::from(value as i64) } else { Value::from(value) }
}
