//! Content of spans: requests and responses of models and tools, which are bounded and not serialized.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::AttributeValue;
use crate::content::{Content, Part, PartData};
use crate::event::{Event, EventData, UsageMetadata};
use crate::json::{JsonMap, json_len};
use crate::model::{FunctionDeclaration, LlmRequest};

/// Maximum size in bytes of each part of a span's content: of a request's contents, of its instructions, of its
/// tools, of a response, of arguments, of a result.
const MAX_BYTES: usize = 64 << 10;

/// Maximum number of stored contents of a request.
const MAX_CONTENTS: usize = 100;

/// The input and the output of a span's operation.
#[derive(Debug)]
pub enum SpanContent {
    /// A model call.
    Model {
        /// The request, with its newest contents.
        request: Arc<LlmRequest>,
        /// Number of older contents, which are not stored.
        omitted: usize,
        /// The event of the response, or its size if it is too large; `None` if there is none.
        response: Option<BoundedValue<Arc<Event>>>,
    },
    /// A tool call.
    Tool {
        /// The arguments, or their size if they are too large.
        arguments: BoundedValue<JsonMap>,
        /// The result; `None` if there is none.
        result: Option<BoundedValue<Value>>,
    },
}

/// A value, or the size of a value that is too large to store.
#[derive(Debug)]
pub enum BoundedValue<T> {
    Value(T),
    /// About how many bytes it had.
    Omitted(usize),
}

impl<T: Clone + Serialize> BoundedValue<T> {
    fn new(value: &T, size: usize) -> Self {
        if size > MAX_BYTES { Self::Omitted(size) } else { Self::Value(value.clone()) }
    }

    fn to_json(&self) -> String {
        match self {
            Self::Value(value) => to_json(value),
            Self::Omitted(size) => omitted_value(*size).to_string(),
        }
    }
}

impl SpanContent {
    pub(super) fn tool(arguments: &JsonMap) -> Self {
        Self::Tool { arguments: BoundedValue::new(arguments, map_size(arguments)), result: None }
    }

    pub(super) fn set_tool_result(&mut self, value: &Value) {
        if let Self::Tool { result, .. } = self {
            *result = Some(BoundedValue::new(value, value_size(value)));
        }
    }

    /// Drops data beyond the bounds. Copies nothing if the request is not shared.
    pub(super) fn trim(self) -> Self {
        let Self::Model { request, response, .. } = self else { return self };
        let response = response.map(|response| match response {
            BoundedValue::Value(event) if event_size(&event) > MAX_BYTES => BoundedValue::Omitted(event_size(&event)),
            response => response,
        });
        let mut rest = MAX_BYTES;
        let fits = |content: &&Arc<Content>| {
            let size = content_size(content);
            let is_small = size <= rest;
            rest = rest.saturating_sub(size);
            is_small
        };
        let kept = request.contents.iter().rev().take(MAX_CONTENTS).take_while(fits).count();
        let omitted = request.contents.len() - kept;
        if omitted == 0 {
            return Self::Model { request, omitted, response };
        }
        let mut request = Arc::unwrap_or_clone(request);
        request.contents = request.contents.split_off(omitted);
        Self::Model { request: Arc::new(request), omitted, response }
    }

    /// Returns about how many bytes of memory the content takes, as if nothing else shared it.
    pub fn size(&self) -> usize {
        match self {
            Self::Model { request, response, .. } => {
                let contents = request.contents.iter().map(|content| content_size(content));
                let instructions = request.system_instructions.iter().map(String::len);
                let tools = request.tools.iter().map(|tool| tool_size(tool));
                let model_tools = request.model_tools.iter().map(value_size);
                let config =
                    request.config.response_schema.as_ref().map_or(0, value_size) + map_size(&request.config.extra);
                let response = match response {
                    Some(BoundedValue::Value(event)) => event_size(event) + event.cached_json_len(),
                    Some(BoundedValue::Omitted(_)) | None => 0,
                };
                size_of::<LlmRequest>()
                    + contents.chain(instructions).chain(tools).chain(model_tools).sum::<usize>()
                    + config
                    + response
            }
            Self::Tool { arguments, result } => {
                let arguments = match arguments {
                    BoundedValue::Value(arguments) => map_size(arguments),
                    BoundedValue::Omitted(_) => 0,
                };
                let result = match result {
                    Some(BoundedValue::Value(result)) => value_size(result),
                    Some(BoundedValue::Omitted(_)) | None => 0,
                };
                arguments + result
            }
        }
    }

    /// Returns the content as attributes whose values are JSON. A part of more than 64 KiB is replaced by its size.
    /// Serializes the content, so do not call it where a span ends.
    pub fn attributes(&self) -> Vec<(&'static str, AttributeValue)> {
        match self {
            Self::Model { request, omitted, response } => {
                let mut attributes =
                    vec![("gcp.vertex.agent.llm_request", request_json(request, *omitted).to_string().into())];
                let response = response.as_ref().map(|response| match response {
                    BoundedValue::Value(event) => limit_size(&Response::new(event)),
                    BoundedValue::Omitted(size) => omitted_value(*size),
                });
                attributes
                    .extend(response.map(|response| ("gcp.vertex.agent.llm_response", response.to_string().into())));
                attributes
            }
            Self::Tool { arguments, result } => {
                let mut attributes = vec![("gen_ai.tool.call.arguments", arguments.to_json().into())];
                if let Some(result) = result {
                    attributes.push(("gen_ai.tool.call.result", result.to_json().into()));
                }
                attributes
            }
        }
    }
}

/// A model's response in its event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a Content>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_metadata: Option<&'a UsageMetadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_version: Option<&'a str>,
}

impl<'a> Response<'a> {
    fn new(event: &'a EventData) -> Self {
        Self {
            content: event.content.as_deref(),
            finish_reason: event.finish_reason.as_deref(),
            error_code: event.error_code.as_deref(),
            error_message: event.error_message.as_deref(),
            usage_metadata: event.usage_metadata.as_deref(),
            model_version: event.model_version.as_deref(),
        }
    }
}

/// Returns a request in the form in which clients show it.
fn request_json(request: &LlmRequest, omitted: usize) -> Value {
    let mut config = limit_size(&request.config);
    if let Value::Object(config) = &mut config {
        if !request.system_instructions.is_empty() {
            config.insert("system_instruction".into(), limit_size(&request.system_instructions.join("\n\n")));
        }
        let functions =
            (!request.tools.is_empty()).then(|| json!({"function_declarations": limit_size(&request.tools)}));
        let tools: Vec<_> = functions.into_iter().chain(request.model_tools.iter().map(limit_size)).collect();
        if !tools.is_empty() {
            config.insert("tools".into(), tools.into());
        }
    }
    let contents: Vec<_> = request.contents.iter().map(to_value).collect();
    let mut json = json!({"model": request.model, "config": config, "contents": contents});
    if let (Value::Object(json), 1..) = (&mut json, omitted) {
        json.insert("omittedContents".into(), omitted.into());
    }
    json
}

fn limit_size(value: &impl Serialize) -> Value {
    match json_len(value) {
        length if length > MAX_BYTES => omitted_value(length),
        _ => to_value(value),
    }
}

fn omitted_value(size: usize) -> Value {
    json!({"omittedBytes": size})
}

/// Converts a value to JSON; `null` if JSON cannot represent it, which is impossible for domain types.
fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns about how many bytes an event takes without its cached JSON.
fn event_size(event: &Event) -> usize {
    let content = event.content.as_ref().map_or(0, |content| content_size(content));
    let values =
        [&event.grounding_metadata, &event.custom_metadata, &event.input_transcription, &event.output_transcription];
    let values: usize = values.into_iter().flatten().map(|value| value_size(value)).sum();
    let state = map_size(&event.actions.state_delta);
    size_of::<EventData>() + content + values + state
}

fn tool_size(tool: &FunctionDeclaration) -> usize {
    let schemas = tool.parameters.iter().chain(&tool.response).map(value_size);
    size_of::<FunctionDeclaration>() + tool.name.len() + tool.description.len() + schemas.sum::<usize>()
}

fn content_size(content: &Content) -> usize {
    size_of::<Content>() + content.parts.iter().map(part_size).sum::<usize>()
}

fn part_size(part: &Part) -> usize {
    let data = match &part.data {
        PartData::Other => 0,
        PartData::Text(text) => text.len(),
        PartData::InlineData(blob) => blob.data.len(),
        PartData::FileData(file) => file.file_uri.len(),
        PartData::FunctionCall(call) => call.name.len() + map_size(&call.args) + map_size(&call.extra),
        PartData::FunctionResponse(response) => {
            response.name.len() + map_size(&response.response) + map_size(&response.extra)
        }
        PartData::ExecutableCode(code) => code.code.len(),
        PartData::CodeExecutionResult(result) => result.output.as_ref().map_or(0, String::len),
    };
    let signature = part.thought_signature.as_ref().map_or(0, |signature| signature.len());
    size_of::<Part>() + data + signature + map_size(&part.extra)
}

fn map_size(map: &JsonMap) -> usize {
    map.iter().map(|(key, value)| size_of::<String>() + key.len() + value_size(value)).sum()
}

fn value_size(value: &Value) -> usize {
    let heap = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_size).sum(),
        Value::Object(map) => map_size(map),
    };
    size_of::<Value>() + heap
}
