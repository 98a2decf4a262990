//! Wire format of the Gemini API: requests, borrowed from the shared conversation, and responses.

pub(super) mod live;

use bytes::Bytes;
use hatchery_core::{
    Blob, Content, FileData, FunctionCall, FunctionDeclaration, FunctionResponse, GenerateContentConfig, HttpOptions,
    JsonMap, LlmRequest, LlmResponse, ModelError, Part, PartData, UsageMetadata,
};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::encoding::Base64;
use crate::failure::Origin;
use crate::files;
use crate::finish;
use crate::http::to_json;
use crate::nulls;
use crate::prompt::CONTINUE_TEXT;
use crate::signatures;

/// Prefix of the call ids that the engine generates. They are not sent to Gemini.
const ENGINE_ID_PREFIX: &str = "adk-";

const USER: &str = "user";

/// Settings outside of `generationConfig`, in both spellings that Gemini accepts.
const TOP_LEVEL: [&str; 6] =
    ["safetySettings", "safety_settings", "toolConfig", "tool_config", "cachedContent", "cached_content"];

/// Settings that are not part of the body: settings of the HTTP client and of client libraries.
const UNSUPPORTED: [&str; 2] = ["httpOptions", "automaticFunctionCalling"];

/// A setting outside of `generationConfig` that only Vertex AI has.
const LABELS: &str = "labels";

/// Settings that only Vertex AI has, and those that only the Gemini API has. Each API refuses the others.
const VERTEX_ONLY: [&str; 4] = [LABELS, "audioTimestamp", "routingConfig", "modelSelectionConfig"];
const GEMINI_API_ONLY: [&str; 1] = ["enableEnhancedCivicAnswers"];

/// The settings of function calls in `toolConfig`, in both spellings.
const FUNCTION_CALLING: [&str; 2] = ["functionCallingConfig", "function_calling_config"];

/// Stands in for the signature of a call that another model made. Gemini 3 refuses calls without a signature.
const STAND_IN_SIGNATURE: &str = "skip_thought_signature_validator";

/// Keys that `httpOptions.extraBody` may not set.
const RESERVED_KEYS: [&str; 4] = ["contents", "systemInstruction", "tools", "generationConfig"];

/// The API that a request is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    GeminiApi,
    VertexAi,
}

/// Serializes a request to `model`.
pub(super) fn request(
    backend: Backend,
    model: &str,
    request: &LlmRequest,
    options: &HttpOptions,
) -> Result<Bytes, String> {
    let (generation_config, mut top_level) = settings(backend, &request.config)
        .map_err(|error| format!("the settings of the model cannot be written as JSON: {error}"))?;
    if request.tools.is_empty() {
        remove_function_calling(&mut top_level);
    }
    let extra = options.extra_body.iter().filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str()));
    top_level.extend(extra.map(|(key, value)| (key.clone(), value.clone())));
    let instructions = (!request.system_instructions.is_empty()).then(|| request.system_instructions.join("\n\n"));
    // Gemma has no system instructions, so they become the first user message.
    let (first_message, instructions) =
        if model.starts_with("gemma-") { (instructions, None) } else { (None, instructions) };
    let body = RequestJson {
        contents: Contents { first_message, request, signs_calls: model.contains("gemini-3") },
        system_instruction: instructions.map(|text| Instruction { parts: [TextJson { text }] }),
        tools: tools(request),
        generation_config,
        top_level,
    };
    to_json(&body)
}

/// Removes the settings of function calls, which are refused in a request without functions.
fn remove_function_calling(top_level: &mut JsonMap) {
    for key in ["toolConfig", "tool_config"] {
        let Some(Value::Object(tool_config)) = top_level.get_mut(key) else { continue };
        tool_config.retain(|key, _| !FUNCTION_CALLING.contains(&key.as_str()));
        if tool_config.is_empty() {
            top_level.shift_remove(key);
        }
    }
}

fn tools(request: &LlmRequest) -> Vec<ToolJson<'_>> {
    let declarations: Vec<_> = request.tools.iter().map(|tool| Declaration::new(tool)).collect();
    let functions = (!declarations.is_empty()).then_some(ToolJson::Functions { function_declarations: declarations });
    functions.into_iter().chain(request.model_tools.iter().map(ToolJson::ModelTool)).collect()
}

/// Splits the settings into the settings inside and outside of `generationConfig`.
fn settings(backend: Backend, config: &GenerateContentConfig) -> Result<(JsonMap, JsonMap), serde_json::Error> {
    let Value::Object(all) = serde_json::to_value(config)? else { return Ok(Default::default()) };
    let (mut generation, mut top_level) = (JsonMap::new(), JsonMap::new());
    for (key, value) in all {
        match key.as_str() {
            key if UNSUPPORTED.contains(&key) => {}
            key if backend == Backend::GeminiApi && VERTEX_ONLY.contains(&key) => {}
            key if backend == Backend::VertexAi && GEMINI_API_ONLY.contains(&key) => {}
            key if key == LABELS || TOP_LEVEL.contains(&key) => {
                top_level.insert(key.to_owned(), value);
            }
            "responseSchema" => {
                generation.entry("responseMimeType").or_insert_with(|| "application/json".into());
                generation.insert("responseJsonSchema".to_owned(), value);
            }
            _ => {
                generation.insert(key, value);
            }
        }
    }
    Ok((generation, top_level))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestJson<'a> {
    contents: Contents<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Instruction>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolJson<'a>>,
    #[serde(skip_serializing_if = "JsonMap::is_empty")]
    generation_config: JsonMap,
    #[serde(flatten)]
    top_level: JsonMap,
}

#[derive(Serialize)]
struct Instruction {
    parts: [TextJson; 1],
}

#[derive(Serialize)]
struct TextJson {
    text: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ToolJson<'a> {
    #[serde(rename_all = "camelCase")]
    Functions {
        function_declarations: Vec<Declaration<'a>>,
    },
    ModelTool(&'a Value),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters_json_schema: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<&'a Value>,
}

impl<'a> Declaration<'a> {
    fn new(tool: &'a FunctionDeclaration) -> Self {
        Self {
            name: &tool.name,
            description: &tool.description,
            parameters_json_schema: tool.parameters.as_ref(),
            response_json_schema: tool.response.as_ref(),
        }
    }
}

/// The conversation without empty messages. Gemini requires that it ends with a user message, and that function calls
/// follow a user message. [`CONTINUE_TEXT`] is inserted where there is none, for example after a summary.
struct Contents<'a> {
    /// A user message before the conversation.
    first_message: Option<String>,
    request: &'a LlmRequest,
    /// True if each message with calls needs a signature.
    signs_calls: bool,
}

impl Serialize for Contents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut contents = serializer.serialize_seq(None)?;
        let continue_parts = [Part::text(CONTINUE_TEXT)];
        let continue_message = ContentJson { role: USER, parts: Parts::new(&continue_parts) };
        let mut may_call = self.first_message.is_some();
        let mut ends_with_user = false;
        if let Some(text) = &self.first_message {
            let parts = [Part::text(text)];
            contents.serialize_element(&ContentJson { role: USER, parts: Parts::new(&parts) })?;
        }
        for content in self.request.contents.iter().filter(|content| content.parts.iter().any(is_sent)) {
            let has_calls = content.function_calls().next().is_some();
            if has_calls && !may_call {
                contents.serialize_element(&continue_message)?;
            }
            let parts = Parts { signs_calls: self.signs_calls, ..Parts::new(&content.parts) };
            contents.serialize_element(&ContentJson { role: role(content), parts })?;
            ends_with_user = role(content) == USER;
            // Consecutive calls are one turn of the model.
            may_call = ends_with_user || has_calls;
        }
        if !ends_with_user {
            contents.serialize_element(&continue_message)?;
        }
        contents.end()
    }
}

/// Returns the role of a message. Gemini has two, and refuses others.
fn role(content: &Content) -> &'static str {
    match content.role.as_deref() {
        Some("model" | "assistant") => "model",
        _ => USER,
    }
}

#[derive(Serialize)]
struct ContentJson<'a> {
    role: &'a str,
    parts: Parts<'a>,
}

struct Parts<'a> {
    parts: &'a [Part],
    /// True if the first call needs a signature.
    signs_calls: bool,
}

impl<'a> Parts<'a> {
    fn new(parts: &'a [Part]) -> Self {
        Self { parts, signs_calls: false }
    }
}

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_call = |part: &Part| matches!(part.data, PartData::FunctionCall(_));
        let signed = self.parts.iter().position(is_call).filter(|_| self.signs_calls);
        let sent = self.parts.iter().enumerate().filter(|(_, part)| is_sent(part));
        serializer.collect_seq(sent.map(|(index, part)| PartRef { part, needs_signature: Some(index) == signed }))
    }
}

/// Returns false for a part that consists of the signature of another provider only, and for an empty text, which is
/// refused unless it carries a signature.
fn is_sent(part: &Part) -> bool {
    let is_empty = match &part.data {
        PartData::Text(text) => text.is_empty(),
        PartData::Other => part.thought_signature.is_some(),
        _ => false,
    };
    !is_empty || signatures::unmarked_signature(part).is_some()
}

struct PartRef<'a> {
    part: &'a Part,
    needs_signature: bool,
}

impl Serialize for PartRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let part = self.part;
        let mut map = serializer.serialize_map(None)?;
        match &part.data {
            PartData::Other => {}
            PartData::Text(text) => map.serialize_entry("text", text)?,
            PartData::InlineData(blob) if accepts(&blob.mime_type) => {
                map.serialize_entry("inlineData", &BlobJson::new(blob))?;
            }
            PartData::InlineData(blob) => {
                let text = files::text_of(blob).unwrap_or_else(|| files::name_of_blob(blob).into());
                return Self::serialize_text(map, &text);
            }
            PartData::FileData(file) if file.mime_type.as_deref().is_none_or(accepts) => {
                map.serialize_entry("fileData", &FileJson::new(file))?;
            }
            PartData::FileData(file) => return Self::serialize_text(map, &files::name_of_file(file)),
            PartData::FunctionCall(call) => map.serialize_entry("functionCall", &CallJson::new(call))?,
            PartData::FunctionResponse(response) => {
                map.serialize_entry("functionResponse", &ResponseJson::new(response))?;
            }
            PartData::ExecutableCode(code) => map.serialize_entry("executableCode", code)?,
            PartData::CodeExecutionResult(result) => map.serialize_entry("codeExecutionResult", result)?,
        }
        if part.thought {
            map.serialize_entry("thought", &true)?;
        }
        if let Some(signature) = signatures::unmarked_signature(part) {
            map.serialize_entry("thoughtSignature", &Base64(signature))?;
        } else if self.needs_signature {
            map.serialize_entry("thoughtSignature", STAND_IN_SIGNATURE)?;
        }
        for (key, value) in &part.extra {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl PartRef<'_> {
    /// Ends a file as a text, without the metadata of media.
    fn serialize_text<M: SerializeMap>(mut map: M, text: &str) -> Result<M::Ok, M::Error> {
        map.serialize_entry("text", text)?;
        map.end()
    }
}

/// Returns true for types of files that Gemini models accept.
fn accepts(mime_type: &str) -> bool {
    let is_media = ["image/", "audio/", "video/", "text/"].iter().any(|kind| mime_type.starts_with(kind));
    // A vector graphic is a text.
    is_media && mime_type != "image/svg+xml" || mime_type == "application/pdf"
}

/// Inline data without the display name, which this API rejects.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlobJson<'a> {
    mime_type: &'a str,
    data: Base64<'a>,
}

impl<'a> BlobJson<'a> {
    fn new(blob: &'a Blob) -> Self {
        Self { mime_type: &blob.mime_type, data: Base64(&blob.data) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileJson<'a> {
    file_uri: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
}

impl<'a> FileJson<'a> {
    fn new(file: &'a FileData) -> Self {
        Self { file_uri: &file.file_uri, mime_type: file.mime_type.as_deref() }
    }
}

#[derive(Serialize)]
struct CallJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    args: &'a JsonMap,
    #[serde(flatten)]
    extra: &'a JsonMap,
}

impl<'a> CallJson<'a> {
    fn new(call: &'a FunctionCall) -> Self {
        Self { id: provider_id(call.id.as_deref()), name: &call.name, args: &call.args, extra: &call.extra }
    }
}

#[derive(Serialize)]
struct ResponseJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: &'a JsonMap,
    #[serde(flatten)]
    extra: &'a JsonMap,
}

impl<'a> ResponseJson<'a> {
    fn new(response: &'a FunctionResponse) -> Self {
        Self {
            id: provider_id(response.id.as_deref()),
            name: &response.name,
            response: &response.response,
            extra: &response.extra,
        }
    }
}

/// Returns a call id if it came from the provider.
fn provider_id(id: Option<&str>) -> Option<&str> {
    id.filter(|id| !id.starts_with(ENGINE_ID_PREFIX))
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GenerateContentJson {
    candidates: Vec<CandidateJson>,
    prompt_feedback: Option<FeedbackJson>,
    usage_metadata: Option<UsageMetadata>,
    model_version: Option<String>,
    error: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CandidateJson {
    content: Option<Content>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
    grounding_metadata: Option<Value>,
    avg_logprobs: Option<f64>,
    #[serde(flatten)]
    extra: JsonMap,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FeedbackJson {
    block_reason: Option<String>,
    block_reason_message: Option<String>,
}

/// Parses the response of `generateContent`.
pub(super) fn parse_response(body: &[u8], origin: &Origin) -> Result<LlmResponse, ModelError> {
    let mut response = parse(body, origin)?.unwrap_or_default();
    if response.content.is_none() && response.finish_reason.is_none() && response.error_code.is_none() {
        response.error_code = Some("UNKNOWN_ERROR".into());
        response.error_message = Some("Gemini answered without a candidate and without a reason".into());
    }
    Ok(response)
}

/// Parses one payload of `streamGenerateContent`. `None` if it is empty.
pub(super) fn parse_chunk(payload: &str, origin: &Origin) -> Result<Option<LlmResponse>, ModelError> {
    let response = parse(payload.as_bytes(), origin)?;
    Ok(response.map(|response| LlmResponse { partial: true, ..response }))
}

/// Creates a partial response of one part.
pub(super) fn delta(part: Part) -> LlmResponse {
    LlmResponse { content: Some(Content::new("model", vec![part])), partial: true, ..LlmResponse::default() }
}

fn parse(json: &[u8], origin: &Origin) -> Result<Option<LlmResponse>, ModelError> {
    let body: GenerateContentJson = nulls::parse(json).map_err(|error| origin.bad_response(error))?;
    if let Some(error) = &body.error {
        return Err(origin.body_error(error));
    }
    let mut response = LlmResponse {
        usage_metadata: body.usage_metadata,
        model_version: body.model_version,
        ..LlmResponse::default()
    };
    match (body.candidates.into_iter().next(), body.prompt_feedback.and_then(FeedbackJson::block_reason)) {
        (Some(candidate), _) => candidate.add_to(&mut response),
        (None, Some((reason, message))) => {
            response.error_code = Some(reason);
            response.error_message = Some(message);
        }
        (None, None) if response.usage_metadata.is_some() => {}
        (None, None) => return Ok(None),
    }
    Ok(Some(response))
}

impl CandidateJson {
    fn add_to(mut self, response: &mut LlmResponse) {
        response.content = self
            .content
            .filter(|content| !content.parts.is_empty())
            .map(|content| Content { role: content.role.or_else(|| Some("model".into())), ..content });
        response.grounding_metadata = self.grounding_metadata;
        response.avg_logprobs = self.avg_logprobs;
        if let Some(reason) = self.finish_reason.filter(|reason| reason != "FINISH_REASON_UNSPECIFIED") {
            finish::set(response, &reason, self.finish_message);
        }
        self.extra.shift_remove("index");
        response.custom_metadata = (!self.extra.is_empty()).then_some(Value::Object(self.extra));
    }
}

impl FeedbackJson {
    /// Returns the reason and message if the prompt was blocked.
    fn block_reason(self) -> Option<(String, String)> {
        let reason = self.block_reason?;
        let message = self.block_reason_message.unwrap_or_else(|| "the provider blocked the prompt".into());
        Some((reason, message))
    }
}
