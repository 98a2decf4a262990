//! Requests in the types of the library.

use hatchery_core::{
    Blob, Content, FileData, FunctionCall, FunctionResponse, GenerateContentConfig, HttpOptions, JsonMap, LlmRequest,
    Part, PartData, base64_bytes,
};
use rig_core::completion::{CompletionRequest, GenerationOptions, OnUnsupported, ToolDefinition};
use rig_core::message::{
    AssistantContent, AssistantMessage, CallId, DocumentSourceKind, Image, MediaType, Message, MimeType, Origin, Text,
    ToolCall, ToolChoice as RigToolChoice, ToolFunction, ToolName, ToolResult, ToolResultContent, UserContent,
};
use rig_core::message::{Audio, Document, Video};
use rig_core::providers::registry::Format;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::conversion::{ConversionError, ToolChoice};
use crate::files;
use crate::prompt::{call_id, code_fence, parameters};
use crate::signatures::SignatureKind;

/// Default maximum of tokens of an answer of Anthropic, whose API requires one.
const DEFAULT_MAX_TOKENS: u64 = 8192;

/// Keys that `httpOptions.extraBody` may not set.
const RESERVED_KEYS: [&str; 7] = ["model", "messages", "contents", "input", "system", "tools", "stream"];

/// The formats of answers with signatures, as the library names them.
const SIGNING_APIS: [&str; 3] = ["anthropic.messages", "gemini.generate_content", "openai.responses"];

/// A block of an answer that must be sent back unchanged, and the provider that has sent it.
#[derive(Serialize, Deserialize)]
pub(super) struct SignedBlock {
    pub(super) origin: Origin,
    pub(super) block: AssistantContent,
}

/// Returns a request for the library, to a provider with this format.
///
/// # Errors
/// If something in the request has no form in the library.
pub fn completion_request(
    format: Option<Format>,
    request: &LlmRequest,
    http_options: &HttpOptions,
) -> Result<CompletionRequest, ConversionError> {
    if let Some(tool) = request.model_tools.first() {
        let message =
            format!("rig does not have the model tool {tool}; remove it, or choose a model without the library");
        return Err(ConversionError::InvalidStructure(message));
    }
    let mut messages = Vec::with_capacity(request.contents.len());
    for content in &request.contents {
        messages.extend(match content.role.as_deref() {
            Some("model" | "assistant") => assistant(content)?,
            _ => user(content)?,
        });
    }
    let empty = || ConversionError::InvalidStructure("the request has no message; send one".into());
    let mut converted = CompletionRequest::new(messages.pop().ok_or_else(empty)?).messages(messages);
    if !request.system_instructions.is_empty() {
        converted = converted.preamble(request.system_instructions.join("\n\n"));
    }
    for tool in &request.tools {
        let parameters = parameters(tool).into_owned();
        converted = converted.tool(ToolDefinition::new(tool_name(&tool.name)?, &tool.description, parameters));
    }
    settings(converted, format, &request.config, http_options)
}

/// Adds the settings of a call.
fn settings(
    request: CompletionRequest,
    format: Option<Format>,
    config: &GenerateContentConfig,
    http_options: &HttpOptions,
) -> Result<CompletionRequest, ConversionError> {
    // Unsupported settings are omitted, as by the providers of this crate.
    let mut options = GenerationOptions::new().on_unsupported(OnUnsupported::Ignore);
    options.top_p = config.top_p;
    options.stop = config.stop_sequences.clone().unwrap_or_default();
    if let Some(seed) = config.seed {
        let invalid = |_| ConversionError::InvalidStructure(format!("`seed` is {seed}; rig takes none below 0"));
        options.seed = Some(u64::try_from(seed).map_err(invalid)?);
    }
    let default_tokens = (format == Some(Format::Anthropic)).then_some(DEFAULT_MAX_TOKENS);
    let mut request = request
        .options(options)
        .temperature(config.temperature)
        .max_tokens(config.max_output_tokens.or(default_tokens));
    if let Some(choice) = ToolChoice::from_config(config) {
        request = request.tool_choice(match choice {
            ToolChoice::Auto => RigToolChoice::Auto,
            ToolChoice::Never => RigToolChoice::None,
            ToolChoice::Any => RigToolChoice::Required,
            ToolChoice::One(name) => RigToolChoice::Specific { function_names: vec![tool_name(&name)?] },
        });
    }
    if let Some(schema) = &config.response_schema {
        let schema = rig_core::schemars::Schema::try_from(schema.clone());
        request = request.output_schema(schema.map_err(|error| ConversionError::json("`responseSchema`", error))?);
    }
    let mut body = provider_settings(format, config);
    let extra = http_options.extra_body.iter().filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str()));
    body.extend(extra.map(|(key, value)| (key.clone(), value.clone())));
    Ok(if body.is_empty() { request } else { request.additional_params(Value::Object(body)) })
}

/// Returns the settings that the library has no field for, as keys of the body.
fn provider_settings(format: Option<Format>, config: &GenerateContentConfig) -> JsonMap {
    let top_k = config.top_k.map(|count| count as u64);
    let penalties = [("presence_penalty", config.presence_penalty), ("frequency_penalty", config.frequency_penalty)];
    let mut body = JsonMap::new();
    match format {
        Some(Format::Gemini) => {
            let settings = [
                ("topK", top_k.map(Value::from)),
                ("presencePenalty", config.presence_penalty.map(Value::from)),
                ("frequencyPenalty", config.frequency_penalty.map(Value::from)),
                ("thinkingConfig", config.extra.get("thinkingConfig").cloned()),
            ];
            let settings: JsonMap =
                settings.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
            if !settings.is_empty() {
                body.insert("generationConfig".into(), Value::Object(settings));
            }
        }
        Some(Format::Anthropic) => body.extend(top_k.map(|count| ("top_k".to_owned(), Value::from(count)))),
        Some(Format::OpenAi) | None => {
            body.extend(penalties.into_iter().filter_map(|(key, value)| Some((key.to_owned(), Value::from(value?)))));
        }
    }
    body
}

fn tool_name(name: &str) -> Result<ToolName, ConversionError> {
    ToolName::new(name).map_err(|error| ConversionError::InvalidStructure(error.to_string()))
}

fn user(content: &Content) -> Result<Option<Message>, ConversionError> {
    let mut parts = Vec::new();
    for response in content.function_responses() {
        parts.push(UserContent::ToolResult(tool_result(response)?));
    }
    for part in content.parts.iter().filter(|part| !part.thought) {
        match &part.data {
            PartData::Text(text) => parts.push(UserContent::text(text)),
            PartData::InlineData(blob) => parts.push(inline(blob)?),
            PartData::FileData(file) => parts.push(reference(file)?),
            PartData::ExecutableCode(code) => {
                parts.push(UserContent::text(code_fence(code.language.as_deref(), &code.code)));
            }
            PartData::CodeExecutionResult(result) => {
                parts.push(UserContent::text(code_fence(None, result.output.as_deref().unwrap_or_default())));
            }
            PartData::FunctionCall(_) | PartData::FunctionResponse(_) | PartData::Other => {}
        }
    }
    Ok((!parts.is_empty()).then_some(Message::User { content: parts }))
}

fn assistant(content: &Content) -> Result<Option<Message>, ConversionError> {
    // The thoughts of a streamed answer come last, and providers require them first.
    let (mut thoughts, mut blocks, mut origin) = (Vec::new(), Vec::new(), None);
    for part in &content.parts {
        if let Some(json) = SignatureKind::Rig.read(part) {
            let signed: SignedBlock =
                serde_json::from_str(json).map_err(|error| ConversionError::json("a thought signature", error))?;
            origin = Some(signed.origin);
            let is_thought = matches!(signed.block, AssistantContent::Reasoning(_) | AssistantContent::Opaque(_));
            if is_thought {
                thoughts.push(signed.block)
            } else {
                blocks.push(signed.block)
            }
            continue;
        }
        match &part.data {
            // Thoughts of other providers are not sent.
            PartData::Text(_) if part.thought => {}
            PartData::Text(text) => blocks.push(AssistantContent::Text(Text::new(text))),
            PartData::FunctionCall(call) => blocks.push(AssistantContent::ToolCall(tool_call(call)?)),
            PartData::ExecutableCode(code) => {
                blocks.push(AssistantContent::Text(Text::new(code_fence(code.language.as_deref(), &code.code))));
            }
            PartData::CodeExecutionResult(result) => {
                let output = code_fence(None, result.output.as_deref().unwrap_or_default());
                blocks.push(AssistantContent::Text(Text::new(output)));
            }
            // Few providers take files in answers, so one is represented by its type or URI.
            PartData::InlineData(blob) => {
                blocks.push(AssistantContent::Text(Text::new(format!("[{}]", blob.mime_type))))
            }
            PartData::FileData(file) => blocks.push(AssistantContent::Text(Text::new(format!("[{}]", file.file_uri)))),
            PartData::FunctionResponse(_) | PartData::Other => {}
        }
    }
    thoughts.append(&mut blocks);
    let message = |blocks| Message::Assistant(AssistantMessage::new(blocks).with_origin(origin));
    Ok((!thoughts.is_empty()).then(|| message(thoughts)))
}

fn tool_call(call: &FunctionCall) -> Result<ToolCall, ConversionError> {
    let function = ToolFunction::new(tool_name(&call.name)?, Value::Object(call.args.clone()));
    Ok(ToolCall::new(CallId::from_wire(call_id(call.id.as_deref(), &call.name)), function))
}

fn tool_result(response: &FunctionResponse) -> Result<ToolResult, ConversionError> {
    let json = serde_json::to_string(&response.response)
        .map_err(|error| ConversionError::json(format!("the answer of `{}`", response.name), error))?;
    Ok(ToolResult {
        call: CallId::from_wire(call_id(response.id.as_deref(), &response.name)),
        name: tool_name(&response.name)?,
        content: vec![ToolResultContent::Text(Text::new(json))],
        is_error: response.response.contains_key("error"),
    })
}

fn inline(blob: &Blob) -> Result<UserContent, ConversionError> {
    match MediaType::from_mime_type(&blob.mime_type) {
        Some(MediaType::Document(kind)) if !matches!(kind, rig_core::message::DocumentMediaType::PDF) => text_of(blob),
        Some(kind) => Ok(media(DocumentSourceKind::Base64(base64_bytes::encode(&blob.data)), kind)),
        None => text_of(blob),
    }
}

fn text_of(blob: &Blob) -> Result<UserContent, ConversionError> {
    let text = files::text_of(blob).ok_or_else(|| ConversionError::UnsupportedContentType(blob.mime_type.clone()))?;
    Ok(UserContent::text(text))
}

fn reference(file: &FileData) -> Result<UserContent, ConversionError> {
    let Some(mime_type) = file.mime_type.as_deref() else {
        let message = format!("the file {} has no media type; set its `mimeType`", file.file_uri);
        return Err(ConversionError::InvalidStructure(message));
    };
    match MediaType::from_mime_type(mime_type) {
        Some(kind) => Ok(media(DocumentSourceKind::Url(file.file_uri.clone()), kind)),
        None => Err(ConversionError::UnsupportedContentType(mime_type.to_owned())),
    }
}

fn media(data: DocumentSourceKind, kind: MediaType) -> UserContent {
    match kind {
        MediaType::Image(kind) => UserContent::Image(Image { data, media_type: Some(kind), ..Image::default() }),
        MediaType::Audio(kind) => UserContent::Audio(Audio { data, media_type: Some(kind) }),
        MediaType::Document(kind) => {
            UserContent::Document(Document { data, media_type: Some(kind), ..Document::default() })
        }
        MediaType::Video(kind) => UserContent::Video(Video { data, media_type: Some(kind), ..Video::default() }),
    }
}

/// Returns a part with its block as signature, if the provider must get it back: a signed thought or call, or an
/// encrypted thought.
pub(super) fn with_signature(part: Part, block: &AssistantContent, origin: &Origin) -> Result<Part, ConversionError> {
    let is_signed = match block {
        AssistantContent::Reasoning(_) | AssistantContent::ToolCall(_) => block.native_item().is_some(),
        AssistantContent::Opaque(_) => true,
        _ => false,
    };
    if !is_signed || !SIGNING_APIS.contains(&origin.api.as_str()) {
        return Ok(part);
    }
    let signed = SignedBlock { origin: origin.clone(), block: block.clone() };
    let json = serde_json::to_string(&signed).map_err(|error| ConversionError::json("a thought signature", error))?;
    Ok(Part { thought_signature: Some(SignatureKind::Rig.write(&json)), ..part })
}
