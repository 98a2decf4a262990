//! Settings and tools under the names of the Anthropic API.

use std::borrow::Cow;

use hatchery_core::{FunctionDeclaration, GenerateContentConfig, JsonMap, LlmRequest};
use serde::Serialize;
use serde_json::{Value, json};

use super::version::ClaudeVersion;
use crate::prompt;

/// The highest temperature.
const MAX_TEMPERATURE: f64 = 1.0;
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
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<&'a Value>,
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
    let input_schema = prompt::parameters(tool);
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

/// What the settings of a request depend on.
pub(super) struct SettingsContext {
    pub(super) version: ClaudeVersion,
    pub(super) has_tools: bool,
    /// True if thoughts are sent back that are bound to the conversation before them.
    pub(super) has_bound_thoughts: bool,
    /// The schema of the answer.
    pub(super) format: Option<Value>,
}

/// Returns the settings as keys of the body, without those that the model refuses.
pub(super) fn settings(context: SettingsContext, config: &GenerateContentConfig) -> JsonMap {
    let SettingsContext { version, has_tools, has_bound_thoughts, format } = context;
    let mut settings = JsonMap::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            settings.insert(key.to_owned(), value);
        }
    };
    let thinking = config.extra.get("thinkingConfig");
    let thinking = thinking.and_then(|thinking| Thinking::new(thinking, version, config.max_output_tokens));
    let is_thinking = thinking.as_ref().is_some_and(|thinking| thinking.mode != ThinkingMode::Disabled);
    let max_tokens = version.default_max_tokens().saturating_add(thinking.as_ref().map_or(0, Thinking::budget));
    set("max_tokens", Some(config.max_output_tokens.unwrap_or(max_tokens).into()));
    if version.is_sampled() && !is_thinking {
        let both = version.takes_temperature_with_top_p() || config.temperature.is_none();
        set("temperature", config.temperature.map(|temperature| temperature.min(MAX_TEMPERATURE).into()));
        set("top_p", config.top_p.filter(|_| both).map(Value::from));
        set("top_k", config.top_k.map(|top_k| Value::from(top_k as u64)));
    }
    set("stop_sequences", config.stop_sequences.as_deref().and_then(stop_sequences));
    // A model that thinks cannot be forced to call a tool, and newer models always think.
    let choice = config.extra.get("toolConfig").filter(|_| has_tools).and_then(tool_choice);
    let can_force = version.takes_forced_calls() && !is_thinking;
    set("tool_choice", choice.filter(|choice| can_force || !is_forced(choice)));
    let effort = thinking.as_ref().filter(|_| version.thinks_adaptively()).and_then(|thinking| thinking.effort);
    set("output_config", output_config(effort, format));
    let thinking = thinking.map(|thinking| thinking.json());
    set("thinking", if has_bound_thoughts { Some(with_binding(thinking)) } else { thinking });
    for (key, value) in prompt::extra_body(config).filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str())) {
        set(key, Some(value.clone()));
    }
    settings
}

/// Returns the setting of a model that thinks, by which the API drops thoughts that do not belong to the conversation any
/// more: instructions and tools may change from call to call.
fn with_binding(thinking: Option<Value>) -> Value {
    let mut thinking = thinking.unwrap_or_else(|| json!({ "type": "adaptive" }));
    if let Some(thinking) = thinking.as_object_mut() {
        thinking.insert("block_binding".to_owned(), json!({ "prefix_mismatch_behavior": "drop_block" }));
    }
    thinking
}

/// Returns the sequences with a visible character; others are refused.
fn stop_sequences(sequences: &[String]) -> Option<Value> {
    let visible: Vec<_> = sequences.iter().filter(|sequence| !sequence.trim().is_empty()).cloned().collect();
    (!visible.is_empty()).then(|| visible.into())
}

/// The setting `thinkingConfig`.
struct Thinking {
    mode: ThinkingMode,
    /// True if summaries of the thoughts are returned.
    are_shown: bool,
    effort: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThinkingMode {
    Disabled,
    /// A number of tokens.
    Budget(u64),
    /// The model decides.
    Adaptive,
}

impl Thinking {
    /// `limit` is the limit of tokens in the response, which must exceed the budget. `None` if the model does not think.
    fn new(config: &Value, version: ClaudeVersion, limit: Option<u64>) -> Option<Self> {
        let level = config.get("thinkingLevel").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
        let effort = match level.as_str() {
            "minimal" | "low" => Some("low"),
            "medium" => Some("medium"),
            "high" => Some("high"),
            _ => None,
        };
        let mode = match config.get("thinkingBudget").and_then(Value::as_u64) {
            _ if !version.can_think() => return None,
            // Newer models refuse to be told not to think.
            Some(0) if !version.has_thinking_budget() => return None,
            Some(0) => ThinkingMode::Disabled,
            Some(budget) if version.has_thinking_budget() => ThinkingMode::Budget(budget_within(budget, limit)?),
            None if !version.thinks_adaptively() => ThinkingMode::Budget(budget_within(budget_of(effort), limit)?),
            _ => ThinkingMode::Adaptive,
        };
        let are_shown = config.get("includeThoughts").and_then(Value::as_bool).unwrap_or(false);
        Some(Self { mode, are_shown, effort })
    }

    fn budget(&self) -> u64 {
        match self.mode {
            ThinkingMode::Budget(budget) => budget,
            ThinkingMode::Disabled | ThinkingMode::Adaptive => 0,
        }
    }

    fn json(&self) -> Value {
        match self.mode {
            ThinkingMode::Disabled => json!({ "type": "disabled" }),
            ThinkingMode::Budget(budget) => json!({ "type": "enabled", "budget_tokens": budget }),
            ThinkingMode::Adaptive if self.are_shown => json!({ "type": "adaptive", "display": "summarized" }),
            ThinkingMode::Adaptive => json!({ "type": "adaptive" }),
        }
    }
}

/// Returns the budget of an effort, for models that cannot decide by themselves.
fn budget_of(effort: Option<&str>) -> u64 {
    match effort {
        Some("low") => MIN_THINKING_BUDGET,
        Some("high") => 16_384,
        _ => 4_096,
    }
}

/// Returns a budget that leaves tokens for the answer. `None` if the limit is too low for thinking.
fn budget_within(budget: u64, limit: Option<u64>) -> Option<u64> {
    let budget = budget.max(MIN_THINKING_BUDGET);
    match limit {
        Some(limit) if limit <= MIN_THINKING_BUDGET => None,
        Some(limit) if limit <= budget => Some((limit / 2).max(MIN_THINKING_BUDGET)),
        _ => Some(budget),
    }
}

fn output_config(effort: Option<&str>, format: Option<Value>) -> Option<Value> {
    let mut output = JsonMap::new();
    if let Some(effort) = effort {
        output.insert("effort".to_owned(), effort.into());
    }
    if let Some(schema) = format {
        output.insert("format".to_owned(), json!({ "type": "json_schema", "schema": schema }));
    }
    (!output.is_empty()).then_some(Value::Object(output))
}

fn is_forced(choice: &Value) -> bool {
    choice.get("type").is_some_and(|kind| kind == "any" || kind == "tool")
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
