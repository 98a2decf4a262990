//! The YAML form of an agent config.

use hatchery_core::{GenerateContentConfig, HookPoint, JsonMap, Part, PartData, Planner};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub(super) use crate::authoring::tools::{describe_error, parse};

/// One YAML file. All agent classes share it, so that a key of another class is not reported as unknown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentConfig {
    #[serde(default, alias = "agentClass")]
    pub(super) agent_class: AgentClass,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default, alias = "subAgents")]
    pub(super) sub_agents: Vec<SubAgentRef>,
    #[serde(default, alias = "beforeAgentCallbacks")]
    pub(super) before_agent_callbacks: Vec<NameRef>,
    #[serde(default, alias = "afterAgentCallbacks")]
    pub(super) after_agent_callbacks: Vec<NameRef>,
    #[serde(default, alias = "onAgentErrorCallbacks")]
    pub(super) on_agent_error_callbacks: Vec<NameRef>,
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) fallback: Vec<String>,
    pub(super) instruction: Option<String>,
    #[serde(alias = "staticInstruction")]
    pub(super) static_instruction: Option<Value>,
    #[serde(alias = "globalInstruction")]
    pub(super) global_instruction: Option<String>,
    #[serde(alias = "includeContents")]
    pub(super) include_contents: Option<String>,
    #[serde(default, alias = "disallowTransferToParent")]
    pub(super) disallow_transfer_to_parent: bool,
    #[serde(default, alias = "disallowTransferToPeers")]
    pub(super) disallow_transfer_to_peers: bool,
    #[serde(alias = "inputSchema")]
    pub(super) input_schema: Option<Value>,
    #[serde(alias = "outputSchema")]
    pub(super) output_schema: Option<Value>,
    #[serde(alias = "outputKey")]
    pub(super) output_key: Option<String>,
    #[serde(alias = "maxSteps")]
    pub(super) max_steps: Option<u32>,
    #[serde(alias = "generateContentConfig")]
    pub(super) generate_content_config: Option<JsonMap>,
    pub(super) planner: Option<Value>,
    pub(super) examples: Option<Value>,
    #[serde(default)]
    pub(super) tools: Vec<ToolRef>,
    #[serde(alias = "codeExecutor")]
    pub(super) code_executor: Option<Value>,
    #[serde(default, alias = "beforeModelCallbacks")]
    pub(super) before_model_callbacks: Vec<NameRef>,
    #[serde(default, alias = "afterModelCallbacks")]
    pub(super) after_model_callbacks: Vec<NameRef>,
    #[serde(default, alias = "onModelErrorCallbacks")]
    pub(super) on_model_error_callbacks: Vec<NameRef>,
    #[serde(default, alias = "beforeToolCallbacks")]
    pub(super) before_tool_callbacks: Vec<NameRef>,
    #[serde(default, alias = "afterToolCallbacks")]
    pub(super) after_tool_callbacks: Vec<NameRef>,
    #[serde(default, alias = "onToolErrorCallbacks")]
    pub(super) on_tool_error_callbacks: Vec<NameRef>,
    #[serde(alias = "maxIterations")]
    pub(super) max_iterations: Option<u32>,
    /// Arguments of a registered agent class.
    pub(super) args: Option<JsonMap>,
}

/// The class of the agent that a file defines.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "String")]
pub(super) enum AgentClass {
    #[default]
    Llm,
    Sequential,
    Parallel,
    Loop,
    /// A class of an extension.
    Registered(String),
}

impl AgentClass {
    /// The names of the engine's own classes.
    pub(super) const BUILTIN: [&'static str; 4] = ["LlmAgent", "SequentialAgent", "ParallelAgent", "LoopAgent"];

    pub(super) fn name(&self) -> &str {
        let [llm, sequential, parallel, repeat] = Self::BUILTIN;
        match self {
            Self::Llm => llm,
            Self::Sequential => sequential,
            Self::Parallel => parallel,
            Self::Loop => repeat,
            Self::Registered(name) => name,
        }
    }
}

impl From<String> for AgentClass {
    fn from(name: String) -> Self {
        let short = without_package(&name);
        [Self::Llm, Self::Sequential, Self::Parallel, Self::Loop]
            .into_iter()
            .find(|class| class.name() == short)
            .unwrap_or(Self::Registered(name))
    }
}

/// Packages of ADK, whose classes and tools may be named with them.
const PACKAGES: [&str; 2] = ["google.adk.", "com.google.adk."];

/// Returns the name of a class or a tool of ADK without its package: `exit_loop` for `google.adk.tools.exit_loop`.
/// Other names are unchanged.
pub(super) fn without_package(name: &str) -> &str {
    let path = PACKAGES.iter().find_map(|package| name.strip_prefix(package));
    path.and_then(|path| path.rsplit('.').next()).unwrap_or(name)
}

/// Returns the name of a built-in tool for the name of its class, by which files of ADK refer to it. Other names are
/// unchanged.
pub(super) fn tool_of_class(name: &str) -> &str {
    match name {
        "VertexAiSearchTool" => "vertex_ai_search",
        other => other,
    }
}

fn tool_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|name| without_package(&name).to_owned())
}

/// A callback by name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping: write `- name: CALLBACK`")]
pub(super) struct NameRef {
    pub(super) name: String,
}

/// A tool by name, with optional arguments.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping: write `- name: TOOL`")]
pub(super) struct ToolRef {
    /// Without the package of ADK.
    #[serde(deserialize_with = "tool_name")]
    pub(super) name: String,
    pub(super) args: Option<JsonMap>,
    #[serde(default, alias = "requireConfirmation")]
    pub(super) require_confirmation: bool,
    /// False if an interrupted call must not be made again.
    #[serde(default = "default_true")]
    pub(super) idempotent: bool,
}

fn default_true() -> bool {
    true
}

/// A sub-agent: either another file or an agent of a component.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping: write `config_path: FILE` or `code: AGENT`")]
pub(super) struct SubAgentRef {
    #[serde(alias = "configPath")]
    pub(super) config_path: Option<String>,
    pub(super) code: Option<String>,
}

/// Returns the key of a point's callbacks, such as `before_agent_callbacks`.
pub(super) fn callbacks_key(point: HookPoint) -> String {
    format!("{}_callbacks", point.name())
}

impl AgentConfig {
    /// Returns the callbacks of each hook point.
    pub(super) fn callbacks(&self) -> [(HookPoint, &[NameRef]); HookPoint::ALL.len()] {
        [
            (HookPoint::BeforeAgent, &self.before_agent_callbacks),
            (HookPoint::AfterAgent, &self.after_agent_callbacks),
            (HookPoint::OnAgentError, &self.on_agent_error_callbacks),
            (HookPoint::BeforeModel, &self.before_model_callbacks),
            (HookPoint::AfterModel, &self.after_model_callbacks),
            (HookPoint::OnModelError, &self.on_model_error_callbacks),
            (HookPoint::BeforeTool, &self.before_tool_callbacks),
            (HookPoint::AfterTool, &self.after_tool_callbacks),
            (HookPoint::OnToolError, &self.on_tool_error_callbacks),
        ]
    }

    /// Returns a key that the agent's class does not have, and the class that has it.
    pub(super) fn misplaced_key(&self) -> Option<(String, &'static str)> {
        let llm = [
            ("model", self.model.is_some()),
            ("fallback", !self.fallback.is_empty()),
            ("instruction", self.instruction.is_some()),
            ("static_instruction", self.static_instruction.is_some()),
            ("global_instruction", self.global_instruction.is_some()),
            ("include_contents", self.include_contents.is_some()),
            ("disallow_transfer_to_parent", self.disallow_transfer_to_parent),
            ("disallow_transfer_to_peers", self.disallow_transfer_to_peers),
            ("input_schema", self.input_schema.is_some()),
            ("output_schema", self.output_schema.is_some()),
            ("output_key", self.output_key.is_some()),
            ("max_steps", self.max_steps.is_some()),
            ("generate_content_config", self.generate_content_config.is_some()),
            ("planner", self.planner.is_some()),
            ("examples", self.examples.is_some()),
            ("tools", !self.tools.is_empty()),
            ("code_executor", self.code_executor.is_some()),
        ];
        let callbacks = self.callbacks().into_iter().filter(|(point, _)| !point.is_for_all_agents());
        let callbacks = callbacks.map(|(point, names)| (callbacks_key(point), !names.is_empty()));
        let llm = llm.into_iter().map(|(key, is_set)| (key.to_owned(), is_set)).chain(callbacks);
        if self.agent_class != AgentClass::Llm
            && let Some((key, _)) = llm.into_iter().find(|(_, is_set)| *is_set)
        {
            return Some((key, "LlmAgent"));
        }
        if self.agent_class != AgentClass::Loop && self.max_iterations.is_some() {
            return Some(("max_iterations".into(), "LoopAgent"));
        }
        if !matches!(self.agent_class, AgentClass::Registered(_)) && self.args.is_some() {
            return Some(("args".into(), "registered agent classes"));
        }
        None
    }

    /// Returns the key of a limit that is 0, with which the agent could not even begin.
    pub(super) fn zero_limit(&self) -> Option<&'static str> {
        let limits = [("max_iterations", self.max_iterations), ("max_steps", self.max_steps)];
        limits.into_iter().find_map(|(key, limit)| (limit == Some(0)).then_some(key))
    }
}

/// Returns the name in a reference of ADK to code of Python, `{ name: …, args: … }`. `None` for any other value.
pub(super) fn code_reference(value: &Value) -> Option<&str> {
    let keys = value.as_object()?;
    keys.get("name")?.as_str().filter(|_| keys.keys().all(|key| key == "name" || key == "args"))
}

/// Reads a static instruction: a text, a part, a list of both, or a content, as ADK allows.
pub(super) fn static_instruction(instruction: Option<&Value>) -> Result<Vec<Part>, String> {
    let parts = match instruction {
        None => return Ok(Vec::new()),
        Some(Value::Array(parts)) => parts.clone(),
        Some(Value::Object(content)) => match content.get("parts") {
            Some(Value::Array(parts)) => parts.clone(),
            Some(_) | None => vec![Value::Object(content.clone())],
        },
        Some(other) => vec![other.clone()],
    };
    let parts = parts.into_iter().map(static_part).collect::<Result<Vec<_>, _>>()?;
    if parts.is_empty() {
        Err("`static_instruction` is empty; write its text, or leave it out".into())
    } else {
        Ok(parts)
    }
}

fn static_part(part: Value) -> Result<Part, String> {
    let part = match part {
        Value::String(text) => Part::text(text),
        part @ Value::Object(_) => parse(part).map_err(|reason| format!("static_instruction: {reason}"))?,
        _ => Part::default(),
    };
    match &part.data {
        PartData::Text(text) if text.trim().is_empty() => {
            Err("`static_instruction` has an empty text; write it, or leave it out".into())
        }
        PartData::Text(_) | PartData::InlineData(_) | PartData::FileData(_) => Ok(part),
        _ => {
            let kinds = "a text, `{ text: … }`, `{ inlineData: … }`, `{ fileData: … }`, or a list of these";
            Err(format!("`static_instruction` can be {kinds}"))
        }
    }
}

/// Reads a planner: its name, or the settings of the model's own thinking.
pub(super) fn planner(planner: Option<&Value>) -> Result<Option<Planner>, String> {
    let Some(planner) = planner else { return Ok(None) };
    let unknown = || {
        let known = "`plan_re_act` or `{ thinking_config: { … } }`";
        Err(format!("`planner` can be {known}, not `{planner}`"))
    };
    match camel_keys(planner.clone()) {
        Value::String(name) if name == "plan_re_act" => Ok(Some(Planner::PlanReAct)),
        Value::Object(mut map) if map.len() == 1 => match map.remove("thinkingConfig") {
            Some(config @ Value::Object(_)) => Ok(Some(Planner::Thinking(config))),
            Some(_) | None => unknown(),
        },
        _ => unknown(),
    }
}

/// Reads settings of model calls, with keys in either spelling. Keys inside a schema are not converted.
pub(super) fn generate_content_config(config: Option<JsonMap>) -> Result<GenerateContentConfig, String> {
    let Some(config) = config else { return Ok(GenerateContentConfig::default()) };
    let config = serde_path_to_error::deserialize(camel_keys(Value::Object(config)));
    let config: GenerateContentConfig = config.map_err(|error| describe_error(&error))?;
    config.check()?;
    Ok(config)
}

/// Keys whose values have keys of the author's own.
const OWN_KEYS: [&str; 3] = ["extraBody", "headers", "labels"];

fn camel_keys(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| {
                    let key = camel(&key);
                    let has_own_keys = key.ends_with("Schema") || OWN_KEYS.contains(&key.as_str());
                    let value = if has_own_keys { value } else { camel_keys(value) };
                    (key, value)
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(camel_keys).collect()),
        other => other,
    }
}

fn camel(key: &str) -> String {
    let mut camel = String::with_capacity(key.len());
    let mut upper = false;
    for c in key.chars() {
        match c {
            '_' if !camel.is_empty() => upper = true,
            _ if upper => {
                camel.extend(c.to_uppercase());
                upper = false;
            }
            _ => camel.push(c),
        }
    }
    camel
}
