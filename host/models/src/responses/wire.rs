//! Wire format of the responses API: the body of a request, and responses.

use std::borrow::Cow;

use hatchery_core::{
    Content, FunctionCall, FunctionDeclaration, GenerateContentConfig, JsonMap, LlmRequest, LlmResponse, ModelError,
    Part, PartData, StreamingMode, UsageMetadata,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::input::{Item, input};
use crate::failure::Origin;
use crate::finish;
use crate::openai::{Dialect, ModelFamily, is_strict, refuses_schema, tool_choice_of};
use crate::prompt::{extra_body, parameters, schema_instruction};
use crate::signatures::SignatureKind;

/// Keys that `httpOptions.extraBody` may not set.
const RESERVED_KEYS: [&str; 5] = ["model", "input", "instructions", "tools", "stream"];

/// The lowest limit of tokens that is accepted.
const MIN_OUTPUT_TOKENS: u64 = 16;

/// The value of `include` that requests encrypted thoughts.
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

#[derive(Serialize)]
pub(super) struct RequestJson<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    input: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolJson<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
    #[serde(flatten)]
    settings: JsonMap,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ToolJson<'a> {
    Function(Tool<'a>),
    ModelTool(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Cow<'a, Value>,
    /// The default of this API is true, which most schemas do not satisfy.
    strict: bool,
}

/// Returns the body of a request. The error names the content that the protocol cannot represent.
pub(super) fn request<'a>(
    model: &'a str,
    request: &'a LlmRequest,
    streaming_mode: StreamingMode,
) -> Result<RequestJson<'a>, String> {
    let schema = request.config.response_schema.as_ref().filter(|schema| refuses_schema(Dialect::OpenAi, schema));
    let by_schema = schema.map(schema_instruction);
    let instructions: Vec<_> = request.system_instructions.iter().chain(&by_schema).map(String::as_str).collect();
    let tools = tools(request)?;
    Ok(RequestJson {
        model,
        instructions: (!instructions.is_empty()).then(|| instructions.join("\n\n")),
        input: input(request)?,
        settings: settings(model, !tools.is_empty(), &request.config),
        tools,
        stream: streaming_mode == StreamingMode::On,
    })
}

fn tools(request: &LlmRequest) -> Result<Vec<ToolJson<'_>>, String> {
    let functions = request.tools.iter().map(|tool| Ok(ToolJson::Function(function(tool))));
    let model_tools = request.model_tools.iter().map(|tool| match tool.get("type") {
        Some(_) => Ok(ToolJson::ModelTool(tool)),
        None => Err(format!("the responses API does not have the model tool {tool}; remove it, or use a Gemini model")),
    });
    functions.chain(model_tools).collect()
}

fn function(tool: &FunctionDeclaration) -> Tool<'_> {
    Tool { name: &tool.name, description: &tool.description, parameters: parameters(tool), strict: false }
}

/// Returns the settings as keys of the body. Those without a counterpart are omitted, and those that the model refuses.
fn settings(model: &str, has_tools: bool, config: &GenerateContentConfig) -> JsonMap {
    let mut settings = JsonMap::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            settings.insert(key.to_owned(), value);
        }
    };
    set("store", Some(false.into()));
    let family = ModelFamily::of(model);
    set("include", family.is_reasoning().then(|| json!([ENCRYPTED_REASONING])));
    let reasoning = config.extra.get("thinkingConfig").and_then(|thinking| reasoning_config(family, thinking));
    let own_reasoning = extra_body(config).find_map(|(key, value)| (key == "reasoning").then_some(value));
    let effort = own_reasoning.or(reasoning.as_ref()).and_then(|reasoning| reasoning.get("effort")?.as_str());
    let is_sampled = family.is_sampled(effort);
    set("temperature", config.temperature.filter(|_| is_sampled).map(Value::from));
    set("top_p", config.top_p.filter(|_| is_sampled).map(Value::from));
    set("max_output_tokens", config.max_output_tokens.map(|most| most.max(MIN_OUTPUT_TOKENS).into()));
    set("text", text_format(config));
    set("reasoning", reasoning);
    let one = |name: &Value| json!({ "type": "function", "name": name });
    let tool_config = config.extra.get("toolConfig").filter(|_| has_tools);
    set("tool_choice", tool_config.and_then(|tool_config| tool_choice_of(tool_config, one)));
    for (key, value) in extra_body(config).filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str())) {
        set(key, Some(value.clone()));
    }
    settings
}

fn text_format(config: &GenerateContentConfig) -> Option<Value> {
    let format = match (&config.response_schema, config.response_mime_type.as_deref()) {
        (Some(schema), _) if refuses_schema(Dialect::OpenAi, schema) => return None,
        (Some(schema), _) => {
            json!({ "type": "json_schema", "name": "response", "schema": schema, "strict": is_strict(schema) })
        }
        (None, Some("application/json")) => json!({ "type": "json_object" }),
        (None, _) => return None,
    };
    Some(json!({ "format": format }))
}

fn reasoning_config(family: ModelFamily, config: &Value) -> Option<Value> {
    if family == ModelFamily::Plain {
        return None;
    }
    let mut reasoning = JsonMap::new();
    if let Some(effort) = family.effort(config) {
        reasoning.insert("effort".to_owned(), effort.into());
    }
    if config.get("includeThoughts").and_then(Value::as_bool) == Some(true) {
        reasoning.insert("summary".to_owned(), "auto".into());
    }
    (!reasoning.is_empty()).then_some(Value::Object(reasoning))
}

/// A response, or the one in the last event of a stream.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ResponseJson {
    id: Option<String>,
    pub(super) model: Option<String>,
    created_at: Option<Value>,
    status: Option<String>,
    incomplete_details: Option<IncompleteDetails>,
    output: Option<Vec<OutputItem>>,
    usage: Option<UsageJson>,
    error: Option<Value>,
    service_tier: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct IncompleteDetails {
    reason: Option<String>,
}

/// An item of the output. Items of unknown types are ignored.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OutputItem {
    Message {
        content: Option<Vec<OutputPart>>,
    },
    Reasoning {
        summary: Option<Vec<SummaryPart>>,
        encrypted_content: Option<String>,
    },
    FunctionCall {
        call_id: Option<String>,
        name: String,
        #[serde(default)]
        arguments: String,
        status: Option<String>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OutputPart {
    OutputText {
        text: String,
    },
    Refusal {
        refusal: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SummaryPart {
    text: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UsageJson {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    total_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl UsageJson {
    /// Converts the counts to Gemini's: OpenAI includes thoughts in the output tokens, Gemini does not.
    fn metadata(self) -> UsageMetadata {
        let thoughts = self.output_tokens_details.and_then(|details| details.reasoning_tokens);
        let cached = self.input_tokens_details.and_then(|details| details.cached_tokens);
        UsageMetadata {
            prompt_token_count: self.input_tokens,
            candidates_token_count: self.output_tokens.map(|all| all.saturating_sub(thoughts.unwrap_or(0))),
            thoughts_token_count: thoughts.filter(|thoughts| *thoughts > 0),
            cached_content_token_count: cached.filter(|cached| *cached > 0),
            total_token_count: self.total_tokens,
            ..UsageMetadata::default()
        }
    }
}

/// Parses a response that is not streamed.
pub(super) fn parse_response(body: &[u8], origin: &Origin) -> Result<LlmResponse, ModelError> {
    let mut body: ResponseJson = serde_json::from_slice(body).map_err(|error| origin.bad_response(error))?;
    let output = body.output.take();
    let is_cut_off = body.is_incomplete();
    let mut response = body.into_response(origin)?;
    let Some(output) = output else { return Err(origin.bad_response("it has no output")) };
    let mut parts = Vec::with_capacity(output.len());
    for item in output {
        match item.parts() {
            Ok(more) => parts.extend(more),
            // A call that was cut off is omitted.
            Err(_) if is_cut_off => {}
            Err(reason) => return Err(origin.bad_response(reason)),
        }
    }
    response.content = (!parts.is_empty()).then(|| Content::new("model", parts));
    Ok(response)
}

impl ResponseJson {
    pub(super) fn is_incomplete(&self) -> bool {
        self.status.as_deref() == Some("incomplete")
    }

    /// Returns everything but the content, or the error of a failed response.
    pub(super) fn into_response(self, origin: &Origin) -> Result<LlmResponse, ModelError> {
        if let Some(error) = &self.error {
            return Err(origin.body_error(error));
        }
        let entries = [
            ("id", self.id.map(Value::from)),
            ("created_at", self.created_at),
            ("service_tier", self.service_tier.map(Value::from)),
        ];
        let metadata: JsonMap = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        let mut response = LlmResponse {
            model_version: self.model,
            usage_metadata: self.usage.map(UsageJson::metadata),
            custom_metadata: (!metadata.is_empty()).then_some(Value::Object(metadata)),
            ..LlmResponse::default()
        };
        let incomplete_reason = self.incomplete_details.and_then(|details| details.reason);
        match (self.status.as_deref(), incomplete_reason.as_deref()) {
            (Some("completed"), _) => finish::set(&mut response, finish::STOP, None),
            (Some("incomplete"), Some("max_output_tokens")) => finish::set(&mut response, "MAX_TOKENS", None),
            (Some("incomplete"), Some("content_filter")) => finish::set(&mut response, "SAFETY", None),
            (Some("incomplete" | "failed" | "cancelled"), _) => finish::set(&mut response, "OTHER", None),
            (_, _) => {}
        }
        Ok(response)
    }
}

impl OutputItem {
    /// Returns the parts of an item. The error is the reason why a call is invalid.
    pub(super) fn parts(self) -> Result<Vec<Part>, String> {
        match self {
            Self::Message { content } => Ok(content.into_iter().flatten().filter_map(OutputPart::part).collect()),
            Self::Reasoning { summary, encrypted_content } => {
                let texts: Vec<_> = summary.into_iter().flatten().map(|part| part.text).collect();
                Ok(thought(texts.join("\n\n"), encrypted_content.as_deref()).into_iter().collect())
            }
            // A call that was cut off, possibly before its arguments.
            Self::FunctionCall { status, .. } if status.as_deref() == Some("incomplete") => Ok(Vec::new()),
            Self::FunctionCall { call_id, name, arguments, .. } => {
                call(call_id, name, &arguments).map(|part| vec![part])
            }
            Self::Other => Ok(Vec::new()),
        }
    }
}

impl OutputPart {
    fn part(self) -> Option<Part> {
        match self {
            Self::OutputText { text } | Self::Refusal { refusal: text } => (!text.is_empty()).then(|| Part::text(text)),
            Self::Other => None,
        }
    }
}

/// Returns a thought, signed by its encrypted form. `None` if it has neither text nor signature.
pub(super) fn thought(text: impl Into<String>, encrypted: Option<&str>) -> Option<Part> {
    let text = text.into();
    let encrypted = encrypted.filter(|encrypted| !encrypted.is_empty());
    (!text.is_empty() || encrypted.is_some()).then(|| Part {
        thought: true,
        thought_signature: encrypted.map(|encrypted| SignatureKind::Reasoning.write(encrypted)),
        ..Part::text(text)
    })
}

fn call(id: Option<String>, name: String, arguments: &str) -> Result<Part, String> {
    let args = match arguments.trim() {
        "" | "null" => JsonMap::new(),
        arguments => serde_json::from_str(arguments)
            .map_err(|error| format!("the arguments of tool call `{name}` are no JSON object ({error})"))?,
    };
    let id = id.filter(|id| !id.is_empty());
    Ok(PartData::FunctionCall(FunctionCall { id, name, args, ..FunctionCall::default() }).into())
}
