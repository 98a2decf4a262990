//! Settings and tools under the names of the Anthropic API.

use hatchery_core::{FunctionDeclaration, GenerateContentConfig, JsonMap, LlmRequest};
use serde::Serialize;
use serde_json::{Value, json};

use crate::prompt;

/// The limit of tokens in a response, which the API requires.
const DEFAULT_MAX_TOKENS: u64 = 8_192;
/// The smallest budget of thinking that is accepted.
const MIN_THINKING_BUDGET: u64 = 1_024;
/// Keys that `httpOptions.extraBody` may not set, and the one for the prompt cache, which is not a key of the body.
const RESERVED_KEYS: [&str; 7] = ["model", "messages", "system", "tools", "stream", "anthropic_version", CACHE_CONTROL];
const CACHE_CONTROL: &str = "cache_control";

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ToolJson<'a> {
    Function(Tool<'a>),
    ModelTool(&'a Value),
}

#[derive(Serialize)]
pub(super) struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: InputSchema<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<&'a Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum InputSchema<'a> {
    Given(&'a Value),
    None { r#type: &'static str, properties: JsonMap },
}

/// Returns the tools. The error names a tool of the model that belongs to another provider.
pub(super) fn tools(request: &LlmRequest) -> Result<Vec<ToolJson<'_>>, String> {
    let functions = request.tools.iter().map(|tool| Ok(ToolJson::Function(function(tool))));
    let model_tools = request.model_tools.iter().map(|tool| match tool.get("type") {
        Some(_) => Ok(ToolJson::ModelTool(tool)),
        None => Err(format!("the Anthropic API does not have the model tool {tool}; remove it, or use a Gemini model")),
    });
    functions.chain(model_tools).collect()
}

fn function(tool: &FunctionDeclaration) -> Tool<'_> {
    let input_schema = match &tool.parameters {
        Some(parameters) => InputSchema::Given(parameters),
        None => InputSchema::None { r#type: "object", properties: JsonMap::new() },
    };
    Tool { name: &tool.name, description: &tool.description, input_schema, cache_control: None }
}

/// Marks the last tool for the prompt cache.
pub(super) fn mark_last<'a>(tools: &mut [ToolJson<'a>], cache_control: Option<&'a Value>) {
    if let Some(ToolJson::Function(tool)) = tools.last_mut() {
        tool.cache_control = cache_control;
    }
}

/// Returns the mark of the prompt cache, if the prompt is to be cached.
pub(super) fn cache_control(config: &GenerateContentConfig) -> Option<&Value> {
    config.extra.get("httpOptions")?.get("extraBody")?.get(CACHE_CONTROL).filter(|value| value.is_object())
}

/// Returns the settings as keys of the body.
pub(super) fn settings(config: &GenerateContentConfig) -> JsonMap {
    let mut settings = JsonMap::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            settings.insert(key.to_owned(), value);
        }
    };
    let thinking = config.extra.get("thinkingConfig").map(Thinking::new);
    let budget = thinking.as_ref().and_then(|thinking| thinking.budget).unwrap_or(0);
    set("max_tokens", Some(config.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS.saturating_add(budget)).into()));
    set("temperature", config.temperature.map(Value::from));
    set("top_p", config.top_p.map(Value::from));
    set("top_k", config.top_k.map(|top_k| Value::from(top_k as u64)));
    set("stop_sequences", config.stop_sequences.clone().map(Value::from));
    set("tool_choice", config.extra.get("toolConfig").and_then(tool_choice));
    set("output_config", output_config(config, thinking.as_ref()));
    set("thinking", thinking.map(|thinking| thinking.json()));
    for (key, value) in prompt::extra_body(config).filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str())) {
        set(key, Some(value.clone()));
    }
    settings
}

/// The setting `thinkingConfig`.
struct Thinking {
    /// `None` if the model decides.
    budget: Option<u64>,
    /// True if summaries of the thoughts are returned.
    are_shown: bool,
    effort: Option<&'static str>,
}

impl Thinking {
    fn new(config: &Value) -> Self {
        let budget = config.get("thinkingBudget").and_then(Value::as_u64);
        let level = config.get("thinkingLevel").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
        Self {
            budget: budget.map(|budget| if budget == 0 { 0 } else { budget.max(MIN_THINKING_BUDGET) }),
            are_shown: config.get("includeThoughts").and_then(Value::as_bool).unwrap_or(false),
            effort: match level.as_str() {
                "minimal" | "low" => Some("low"),
                "medium" => Some("medium"),
                "high" => Some("high"),
                _ => None,
            },
        }
    }

    fn json(&self) -> Value {
        match self.budget {
            Some(0) => json!({ "type": "disabled" }),
            Some(budget) => json!({ "type": "enabled", "budget_tokens": budget }),
            None if self.are_shown => json!({ "type": "adaptive", "display": "summarized" }),
            None => json!({ "type": "adaptive" }),
        }
    }
}

fn output_config(config: &GenerateContentConfig, thinking: Option<&Thinking>) -> Option<Value> {
    let mut output = JsonMap::new();
    if let Some(effort) = thinking.and_then(|thinking| thinking.effort) {
        output.insert("effort".to_owned(), effort.into());
    }
    if let Some(schema) = &config.response_schema {
        output.insert("format".to_owned(), json!({ "type": "json_schema", "schema": close_objects(schema) }));
    }
    (!output.is_empty()).then_some(Value::Object(output))
}

/// Returns a schema in which objects accept no other properties, which the API requires.
fn close_objects(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let mut map: JsonMap = map.iter().map(|(key, value)| (key.clone(), close_objects(value))).collect();
            if map.get("type").is_some_and(|kind| kind == "object") {
                map.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            Value::Object(map)
        }
        Value::Array(items) => items.iter().map(close_objects).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

fn tool_choice(tool_config: &Value) -> Option<Value> {
    let calling = tool_config.get("functionCallingConfig")?;
    let allowed = calling.get("allowedFunctionNames").and_then(Value::as_array).map(Vec::as_slice);
    match (calling.get("mode")?.as_str()?, allowed) {
        ("ANY", Some([name])) => Some(json!({ "type": "tool", "name": name })),
        ("ANY", _) => Some(json!({ "type": "any" })),
        ("NONE", _) => Some(json!({ "type": "none" })),
        ("AUTO", _) => Some(json!({ "type": "auto" })),
        _ => None,
    }
}
