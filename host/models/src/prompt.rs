//! Parts of requests that several providers share.

use std::borrow::Cow;

use hatchery_core::{FunctionDeclaration, GenerateContentConfig, LlmRequest, Part};
use serde_json::{Value, json};

/// Text of a user message that is inserted where a provider requires one.
pub(crate) const CONTINUE_TEXT: &str = "Go on from here as your instructions say, without remarking on this line.";

/// Returns the id of a call or response. Without one, a call and its response share an id made of the tool's name.
pub(crate) fn call_id<'a>(id: Option<&'a str>, name: &str) -> Cow<'a, str> {
    match id {
        Some(id) if !id.is_empty() => Cow::Borrowed(id),
        _ => Cow::Owned(format!("call_{name}")),
    }
}

/// Returns code or its output in a fenced block.
pub(crate) fn code_fence(language: Option<&str>, text: &str) -> String {
    let language = language.unwrap_or_default().to_lowercase();
    format!("```{language}\n{}\n```\n", text.trim_end_matches('\n'))
}

/// The instruction to answer with JSON of any schema.
pub(crate) const JSON_INSTRUCTION: &str = "Answer with JSON.";

/// Returns true if the request asks for JSON without a schema, and neither its conversation nor `instructions` say so.
pub(crate) fn is_json_unnamed(request: &LlmRequest, instructions: &[String]) -> bool {
    let names_json = |text: &str| text.to_ascii_lowercase().contains("json");
    let mut texts = request.contents.iter().flat_map(|content| content.parts.iter().filter_map(Part::as_text));
    request.config.response_mime_type.as_deref() == Some("application/json")
        && request.config.response_schema.is_none()
        && !instructions.iter().any(|text| names_json(text))
        && !texts.any(names_json)
}

/// Returns the instruction to answer with JSON of a schema, where the provider does not take the schema itself.
pub(crate) fn schema_instruction(schema: &Value) -> String {
    format!("Answer with JSON only, without a code block around it. It must be valid for this JSON Schema: {schema}")
}

/// Returns the schema of a tool's arguments. OpenAI refuses an object without `properties`, and Anthropic and OpenAI a
/// schema without a type, which the schema of a tool without arguments may lack.
pub(crate) fn parameters(tool: &FunctionDeclaration) -> Cow<'_, Value> {
    let Some(schema) = &tool.parameters else { return Cow::Owned(json!({ "type": "object", "properties": {} })) };
    let Value::Object(map) = schema else { return Cow::Borrowed(schema) };
    let is_object = map.get("type").is_none_or(|kind| kind == "object");
    if !is_object || map.contains_key("type") && map.contains_key("properties") {
        return Cow::Borrowed(schema);
    }
    let mut map = map.clone();
    map.entry("type").or_insert_with(|| "object".into());
    map.entry("properties").or_insert_with(|| json!({}));
    Cow::Owned(Value::Object(map))
}

/// Returns the keys of `httpOptions.extraBody`.
pub(crate) fn extra_body(config: &GenerateContentConfig) -> impl Iterator<Item = (&String, &Value)> {
    let options = config.extra.get("httpOptions");
    let body = options.and_then(|options| options.get("extraBody")).and_then(Value::as_object);
    body.into_iter().flatten()
}
