//! Settings and tools under the names of chat completions.

use std::borrow::Cow;

use hatchery_core::{FunctionDeclaration, GenerateContentConfig, JsonMap, LlmRequest};
use serde::Serialize;
use serde_json::{Value, json};

use super::Dialect;
use crate::prompt::extra_body;

/// Settings that are specific to Gemini, or have another name here.
const NOT_SENT: [&str; 15] = [
    "automaticFunctionCalling",
    "responseJsonSchema",
    "safetySettings",
    "thinkingConfig",
    "responseModalities",
    "speechConfig",
    "mediaResolution",
    "cachedContent",
    "candidateCount",
    "audioTimestamp",
    "routingConfig",
    "modelSelectionConfig",
    "imageConfig",
    "enableEnhancedCivicAnswers",
    "labels",
];

#[derive(Serialize)]
pub(super) struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Cow<'a, Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ToolJson<'a> {
    Function(Tool<'a>),
    ModelTool(&'a Value),
}

/// Returns the tools. Returns an error that names a model tool that only Gemini has.
pub(super) fn tools(request: &LlmRequest) -> Result<Vec<ToolJson<'_>>, String> {
    let functions = request.tools.iter().map(|tool| Ok(ToolJson::Function(function(tool))));
    let model_tools = request.model_tools.iter().map(|tool| match tool.get("type") {
        Some(_) => Ok(ToolJson::ModelTool(tool)),
        None => Err(format!("chat completions do not have the model tool {tool}; remove it, or use a Gemini model")),
    });
    functions.chain(model_tools).collect()
}

fn function(tool: &FunctionDeclaration) -> Tool<'_> {
    let parameters = parameters(tool);
    Tool { kind: "function", function: Function { name: &tool.name, description: &tool.description, parameters } }
}

/// Returns the schema of a tool's arguments. OpenAI refuses an object without `properties`, which the schema of a tool
/// without arguments may lack.
pub(crate) fn parameters(tool: &FunctionDeclaration) -> Cow<'_, Value> {
    match &tool.parameters {
        Some(Value::Object(schema))
            if schema.get("type").is_some_and(|kind| kind == "object") && !schema.contains_key("properties") =>
        {
            let mut schema = schema.clone();
            schema.insert("properties".to_owned(), json!({}));
            Cow::Owned(Value::Object(schema))
        }
        Some(schema) => Cow::Borrowed(schema),
        None => Cow::Owned(json!({ "type": "object", "properties": {} })),
    }
}

/// Keys that a setting may not override. Otherwise an agent that may set a temperature could choose the model.
const RESERVED_KEYS: [&str; 5] = ["model", "messages", "tools", "stream", "stream_options"];

/// Returns the settings as keys of the body. `topK` has no counterpart and is omitted.
pub(super) fn settings(dialect: Dialect, config: &GenerateContentConfig) -> JsonMap {
    let mut settings = JsonMap::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            settings.insert(key.to_owned(), value);
        }
    };
    set("temperature", config.temperature.map(Value::from));
    set("top_p", config.top_p.map(Value::from));
    let max_tokens = match dialect {
        Dialect::OpenAi => "max_completion_tokens",
        Dialect::Compatible => "max_tokens",
    };
    set(max_tokens, config.max_output_tokens.map(Value::from));
    set("stop", config.stop_sequences.clone().map(Value::from));
    set("presence_penalty", config.presence_penalty.map(Value::from));
    set("frequency_penalty", config.frequency_penalty.map(Value::from));
    set("seed", config.seed.map(Value::from));
    set("response_format", response_format(config));
    set("reasoning_effort", config.extra.get("thinkingConfig").and_then(reasoning_effort).map(Value::from));
    for (key, value) in &config.extra {
        match key.as_str() {
            "toolConfig" => set("tool_choice", tool_choice(value)),
            "responseLogprobs" => set("logprobs", Some(value.clone())),
            "logprobs" if value.is_number() => set("top_logprobs", Some(value.clone())),
            "httpOptions" => {
                for (key, value) in extra_body(config).filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str())) {
                    set(key, Some(value.clone()));
                }
            }
            key if NOT_SENT.contains(&key) || RESERVED_KEYS.contains(&key) => {}
            key => set(key, Some(value.clone())),
        }
    }
    settings
}

/// Returns the effort of reasoning for a `thinkingConfig`. A budget has no counterpart.
pub(crate) fn reasoning_effort(thinking: &Value) -> Option<String> {
    let level = thinking.get("thinkingLevel")?.as_str()?.to_ascii_lowercase();
    (level != "thinking_level_unspecified").then_some(level)
}

fn response_format(config: &GenerateContentConfig) -> Option<Value> {
    match (&config.response_schema, config.response_mime_type.as_deref()) {
        (Some(schema), _) => {
            let strict = is_strict(schema);
            Some(json!({
                "type": "json_schema",
                "json_schema": { "name": "response", "schema": schema, "strict": strict },
            }))
        }
        (None, Some("application/json")) => Some(json!({ "type": "json_object" })),
        (None, _) => None,
    }
}

/// Returns true if a schema is valid in strict mode: each object is closed and each property is required.
pub(crate) fn is_strict(schema: &Value) -> bool {
    match schema {
        Value::Object(schema) => {
            let is_closed = match schema.get("properties").and_then(Value::as_object) {
                Some(properties) => {
                    let required = schema.get("required").and_then(Value::as_array);
                    schema.get("additionalProperties") == Some(&Value::Bool(false))
                        && properties
                            .keys()
                            .all(|key| required.is_some_and(|required| required.iter().any(|name| name == key)))
                }
                None => schema.get("type").is_none_or(|kind| kind != "object"),
            };
            is_closed && schema.values().all(is_strict)
        }
        Value::Array(items) => items.iter().all(is_strict),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn tool_choice(tool_config: &Value) -> Option<Value> {
    tool_choice_of(tool_config, |name| json!({ "type": "function", "function": { "name": name } }))
}

/// Returns the tool choice of a tool configuration. `one` returns the choice of a single function.
pub(crate) fn tool_choice_of(tool_config: &Value, one: impl FnOnce(&Value) -> Value) -> Option<Value> {
    let calling = tool_config.get("functionCallingConfig")?;
    let allowed = calling.get("allowedFunctionNames").and_then(Value::as_array).map(Vec::as_slice);
    match (calling.get("mode")?.as_str()?, allowed) {
        ("ANY", Some([name])) => Some(one(name)),
        ("ANY", _) => Some("required".into()),
        ("NONE", _) => Some("none".into()),
        ("AUTO", _) => Some("auto".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_setting_overrides_a_reserved_key() {
        let extra = RESERVED_KEYS
            .iter()
            .map(|key| ((*key).to_owned(), json!("other")))
            .chain([("user".to_owned(), json!("ada"))]);
        let config = GenerateContentConfig { extra: extra.collect(), ..GenerateContentConfig::default() };
        assert_eq!(Value::Object(settings(Dialect::OpenAi, &config)), json!({"user": "ada"}));
    }
}
