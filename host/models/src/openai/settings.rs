//! Settings and tools under the names of chat completions.

use std::borrow::Cow;

use hatchery_core::{FunctionDeclaration, GenerateContentConfig, JsonMap, LlmRequest};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Dialect, ModelFamily};
use crate::prompt::{extra_body, parameters};

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

/// Keys that a setting may not override. Otherwise an agent that may set a temperature could choose the model.
const RESERVED_KEYS: [&str; 5] = ["model", "messages", "tools", "stream", "stream_options"];

/// Returns the settings as keys of the body, without those that the model refuses. `topK` has no counterpart and is
/// omitted.
pub(super) fn settings(model: &str, dialect: Dialect, has_tools: bool, config: &GenerateContentConfig) -> JsonMap {
    let mut settings = JsonMap::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            settings.insert(key.to_owned(), value);
        }
    };
    let family = if dialect == Dialect::OpenAi { ModelFamily::of(model) } else { ModelFamily::Other };
    let own: JsonMap = extra_body(config)
        .filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let effort = config.extra.get("thinkingConfig").and_then(|thinking| family.effort(thinking));
    let effort = effort.filter(|_| !has_tools || family.takes_effort_beside_tools());
    let own_effort = own.get("reasoning_effort").and_then(Value::as_str);
    let is_sampled = family.is_sampled(own_effort.or(effort.as_deref()));
    let effort = effort.and_then(|effort| dialect.effort(effort));
    let is_thinking = is_thinking_deepseek(dialect, &own);
    let has_logprobs = is_sampled && !is_thinking && dialect != Dialect::Mistral;
    let takes_penalties = !family.is_reasoning();
    set("temperature", config.temperature.filter(|_| is_sampled).map(Value::from));
    set("top_p", config.top_p.filter(|_| is_sampled).map(Value::from));
    set(dialect.max_tokens_key(), config.max_output_tokens.map(Value::from));
    set("stop", config.stop_sequences.clone().filter(|_| takes_penalties).map(Value::from));
    set("presence_penalty", config.presence_penalty.filter(|_| takes_penalties).map(Value::from));
    set("frequency_penalty", config.frequency_penalty.filter(|_| takes_penalties).map(Value::from));
    set(dialect.seed_key(), config.seed.map(Value::from));
    set("response_format", response_format(dialect, config));
    for (key, value) in &config.extra {
        match key.as_str() {
            "toolConfig" if has_tools => {
                let is_free = |choice: &Value| choice == "auto" || choice == "none";
                set("tool_choice", tool_choice(value).filter(|choice| !is_thinking || is_free(choice)));
            }
            "responseLogprobs" if has_logprobs => set("logprobs", Some(value.clone())),
            "logprobs" if value.is_number() && has_logprobs => set("top_logprobs", Some(value.clone())),
            "toolConfig" | "responseLogprobs" | "logprobs" | "httpOptions" => {}
            key if NOT_SENT.contains(&key) || RESERVED_KEYS.contains(&key) => {}
            key => set(key, Some(value.clone())),
        }
    }
    set("reasoning_effort", effort.map(Value::from));
    settings.extend(own);
    settings
}

/// Returns true if the server refuses this schema of an answer: OpenAI has only those of objects, and DeepSeek none.
pub(crate) fn refuses_schema(dialect: Dialect, schema: &Value) -> bool {
    match dialect {
        Dialect::OpenAi => schema.get("type").is_none_or(|kind| kind != "object"),
        Dialect::DeepSeek => true,
        Dialect::OpenRouter | Dialect::Ollama | Dialect::Compatible | Dialect::Mistral => false,
    }
}

/// Returns true for a model of DeepSeek that thinks, as all do unless the request says otherwise.
fn is_thinking_deepseek(dialect: Dialect, body: &JsonMap) -> bool {
    let mode = body.get("thinking").and_then(|thinking| thinking.get("type"));
    dialect == Dialect::DeepSeek && mode.is_none_or(|mode| mode != "disabled")
}

fn response_format(dialect: Dialect, config: &GenerateContentConfig) -> Option<Value> {
    match (&config.response_schema, config.response_mime_type.as_deref()) {
        (Some(schema), _) if refuses_schema(dialect, schema) => None,
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

/// Keywords that strict mode refuses.
const NOT_STRICT: [&str; 20] = [
    "allOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "default",
    "minLength",
    "maxLength",
    "uniqueItems",
    "contains",
    "prefixItems",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "patternProperties",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// The formats of texts in strict mode.
const STRICT_FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Returns true if a schema is valid in strict mode: each object is closed, each property is required, and there is no
/// other keyword than strict mode knows.
pub(crate) fn is_strict(schema: &Value) -> bool {
    let Some(schema) = schema.as_object() else { return false };
    let has = |key: &str| schema.contains_key(key);
    let is_typed = ["type", "anyOf", "$ref", "enum", "const"].into_iter().any(has);
    let has_unknown = NOT_STRICT.into_iter().any(has) || has("$ref") && schema.len() > 1;
    let is_format = |format: &Value| STRICT_FORMATS.iter().any(|strict| format == strict);
    is_typed
        && !has_unknown
        && schema.get("format").is_none_or(is_format)
        && is_closed(schema)
        && ["properties", "$defs", "definitions"]
            .into_iter()
            .filter_map(|key| schema.get(key)?.as_object())
            .all(all_strict)
        && schema.get("items").is_none_or(is_strict)
        && schema.get("anyOf").and_then(Value::as_array).is_none_or(|schemas| schemas.iter().all(is_strict))
}

fn all_strict(schemas: &JsonMap) -> bool {
    schemas.values().all(is_strict)
}

/// Returns true unless the schema is one of an object with optional or further properties.
fn is_closed(schema: &JsonMap) -> bool {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return schema.get("type").is_none_or(|kind| kind != "object");
    };
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |key: &String| required.is_some_and(|required| required.iter().any(|name| name == key));
    schema.get("additionalProperties") == Some(&Value::Bool(false)) && properties.keys().all(is_required)
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
        assert_eq!(Value::Object(settings("gpt-4.1", Dialect::OpenAi, false, &config)), json!({"user": "ada"}));
    }
}
