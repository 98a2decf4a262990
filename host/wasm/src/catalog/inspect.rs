//! Inspection of a component file: metadata, imports, exports, items and grants, as data for people and scripts.

use std::path::Path;
use std::sync::Arc;

use hatchery_core::ItemKind;
use serde::Serialize;
use serde_json::Value;

use crate::catalog::loader::{LoadOptions, check_load_policy, check_name, load_bytes, read};
use crate::catalog::names::root_agents;
use crate::contract::bindings::hatchery::agent::specs::{AgentKind, ToolUse};
use crate::contract::component::{AgentSpec, Component, ComponentSettings, Hook, MODEL_PREFIX};
use crate::contract::version::Contract;
use crate::error::LoadError;
use crate::policy::{GrantReport, RequestedGrants};
use crate::runtime::cache::sha256;

/// The result of inspecting a component file.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    pub name: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// SHA-256 of the file.
    pub sha256: String,
    /// The version of `hatchery:agent` that it was built for. `None` if its tools are plain functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<String>,
    /// Imported interfaces.
    pub imports: Vec<String>,
    /// Exported interfaces.
    pub exports: Vec<String>,
    pub agents: Vec<InspectedAgent>,
    pub tools: Vec<InspectedTool>,
    /// Names of its toolsets, whose tools are computed before each model call.
    pub toolsets: Vec<String>,
    pub callbacks: Vec<InspectedCallback>,
    pub plugins: Vec<InspectedPlugin>,
    pub code_executors: Vec<String>,
    pub summarizers: Vec<String>,
    /// Names of its example providers.
    pub examples: Vec<String>,
    /// Names of its models as agents refer to them, `component:NAME/model`.
    pub models: Vec<String>,
    /// Requested grants compared with the grants that it has.
    pub grants: GrantReport,
    /// The reason why the host would not load it. Its items are then only known if the reason is not about its code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// True if its code was run to describe its items. Otherwise only its `exports` are known.
    pub is_described: bool,
}

/// An agent of a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InspectedAgent {
    pub name: String,
    pub description: String,
    /// `llm`, `sequential`, `parallel`, `loop` or `custom`.
    pub kind: &'static str,
    /// Its model, if the agent names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its tools, with their arguments.
    pub tools: Vec<String>,
    pub toolsets: Vec<String>,
    pub sub_agents: Vec<String>,
    /// True if the agent becomes an app.
    pub is_app: bool,
}

/// A tool of a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InspectedTool {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// JSON Schema of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    /// True if its result arrives later.
    pub is_long_running: bool,
    /// True if a person must confirm each call.
    pub requires_confirmation: bool,
}

/// A callback of a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InspectedCallback {
    pub name: String,
    /// Hook points at which it may be used.
    pub points: Vec<String>,
}

/// A plugin of a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InspectedPlugin {
    pub name: String,
    /// Hooks that it implements.
    pub hooks: Vec<String>,
}

impl Inspection {
    /// Inspects a loaded component with its current grants. Its file has `size` bytes.
    pub fn from_component(component: &Component, size: u64) -> Self {
        inspect_loaded(component, size, component.settings())
    }
}

/// Inspects the bytes of a component: checks and compiles it, and runs `describe` without any of its grants.
///
/// # Errors
/// The same as when loading it.
pub async fn inspect(options: &LoadOptions, name: &str, bytes: Vec<u8>) -> Result<Inspection, LoadError> {
    let (size, hash) = (bytes.len() as u64, sha256(&bytes));
    let settings = options.settings.for_component(name);
    let mut options = options.clone();
    let without_grants = ComponentSettings { grants: Arc::default(), warm: None, refusal: None, ..settings.clone() };
    options.settings.components.insert(name.to_owned(), without_grants);
    let (component, _) = load_bytes(&options, name, bytes.into(), hash).await?;
    Ok(inspect_loaded(&component, size, &settings))
}

/// Inspects a component file. Code that the load policy rejects is not run; then the report has only the data in the
/// file.
///
/// # Errors
/// The same as when loading it, except for a rejection by the load policy.
pub async fn inspect_file(options: &LoadOptions, path: &Path) -> Result<Inspection, LoadError> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    check_name(&name, path)?;
    let bytes = read(options, path).await?;
    let refused = match check_load_policy(options, path, bytes.clone()).await {
        Ok(_) => None,
        Err(LoadError::Refused(reason)) => Some(reason),
        Err(error) => return Err(error),
    };
    match refused {
        None => inspect(options, &name, bytes.into()).await,
        Some(reason) => inspect_unloaded(&name, &bytes, reason, &options.settings.for_component(&name)),
    }
}

/// Inspects the bytes without running the code.
fn inspect_unloaded(
    name: &str,
    bytes: &[u8],
    reason: String,
    settings: &ComponentSettings,
) -> Result<Inspection, LoadError> {
    let contract = Contract::read(name, bytes)?;
    let requests = RequestedGrants::read(name, bytes)?;
    Ok(Inspection {
        name: name.into(),
        size: bytes.len() as u64,
        sha256: sha256(bytes),
        contract: contract.version,
        imports: contract.imports,
        exports: contract.exports,
        agents: Vec::new(),
        tools: Vec::new(),
        toolsets: Vec::new(),
        callbacks: Vec::new(),
        plugins: Vec::new(),
        code_executors: Vec::new(),
        summarizers: Vec::new(),
        examples: Vec::new(),
        models: Vec::new(),
        grants: GrantReport::new(requests.as_ref(), &RequestedGrants::default(), &settings.grants),
        refused: Some(reason),
        is_described: false,
    })
}

fn inspect_loaded(component: &Component, size: u64, settings: &ComponentSettings) -> Inspection {
    let roots = root_agents(component);
    let agents = component.agents().iter().map(|spec| agent(spec, roots.contains(&spec.name.as_str())));
    let tools = component.tools().iter().map(|tool| InspectedTool {
        name: tool.declaration.name.clone(),
        description: tool.declaration.description.clone(),
        parameters: tool.declaration.parameters.clone(),
        response: tool.declaration.response.clone(),
        is_long_running: tool.is_long_running,
        requires_confirmation: tool.requires_confirmation,
    });
    let callbacks = component
        .names(ItemKind::Callback)
        .map(|name| InspectedCallback { name: name.into(), points: names(component.callback_points(name)) });
    let plugins = component
        .names(ItemKind::Plugin)
        .map(|name| InspectedPlugin { name: name.into(), hooks: names(component.plugin_hooks(name)) });
    Inspection {
        name: component.name().into(),
        size,
        sha256: component.sha256().into(),
        contract: component.contract().version.clone(),
        imports: component.contract().imports.clone(),
        exports: component.contract().exports.clone(),
        agents: agents.collect(),
        tools: tools.collect(),
        toolsets: component.names(ItemKind::Toolset).map(Into::into).collect(),
        callbacks: callbacks.collect(),
        plugins: plugins.collect(),
        code_executors: component.names(ItemKind::CodeExecutor).map(Into::into).collect(),
        summarizers: component.names(ItemKind::Summarizer).map(Into::into).collect(),
        examples: component.names(ItemKind::Examples).map(Into::into).collect(),
        models: component
            .names(ItemKind::Model)
            .map(|model| format!("{MODEL_PREFIX}{}/{model}", component.name()))
            .collect(),
        grants: component.grant_report_with(&settings.grants),
        refused: settings.refusal.clone(),
        is_described: true,
    }
}

fn agent(spec: &AgentSpec, is_app: bool) -> InspectedAgent {
    let without_tools = |kind| (kind, None, Vec::new(), Vec::new());
    let (kind, model, tools, toolsets) = match &spec.kind {
        AgentKind::Llm(llm) => {
            let toolsets = llm.toolsets.iter().map(|set| set.name.clone()).collect();
            ("llm", llm.model.clone(), tool_uses(&llm.tools), toolsets)
        }
        AgentKind::Sequential => without_tools("sequential"),
        AgentKind::Parallel => without_tools("parallel"),
        AgentKind::Loop(_) => without_tools("loop"),
        AgentKind::Custom(custom) => ("custom", custom.model.clone(), tool_uses(&custom.tools), Vec::new()),
    };
    InspectedAgent {
        name: spec.name.clone(),
        description: spec.description.clone(),
        kind,
        model,
        tools,
        toolsets,
        sub_agents: spec.sub_agents.clone(),
        is_app,
    }
}

fn tool_uses(tools: &[ToolUse]) -> Vec<String> {
    let describe_tool = |tool: &ToolUse| {
        let args = tool.args.as_deref().map(|args| format!(" {args}"));
        let approval = if tool.requires_confirmation == Some(true) { " (needs approval)" } else { "" };
        format!("{}{}{approval}", tool.name, args.unwrap_or_default())
    };
    tools.iter().map(describe_tool).collect()
}

fn names(hooks: &[Hook]) -> Vec<String> {
    hooks.iter().map(|hook| hook.name()).collect()
}
