//! What a component file is, wants and offers, as data for people and scripts.

use std::path::Path;
use std::sync::Arc;

use hatchery_core::ItemKind;
use serde::Serialize;
use serde_json::Value;

use crate::catalog::loader::{LoadOptions, admit, check_name, load_bytes, read};
use crate::catalog::names::roots;
use crate::catalog::settings::ComponentSettings;
use crate::contract::bindings::hatchery::agent::specs::AgentKind;
use crate::contract::component::{AgentSpec, Component, Hook, MODEL_PREFIX};
use crate::contract::version::Contract;
use crate::error::LoadError;
use crate::policy::{GrantReport, RequestedGrants};
use crate::runtime::cache::sha256;

/// A component file, looked at.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The component's name.
    pub name: String,
    /// Bytes of the file.
    pub size: u64,
    /// SHA-256 of the file.
    pub sha256: String,
    /// The version of `hatchery:agent` that it was built for; none when its tools are plain functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<String>,
    /// Interfaces that it wants.
    pub imports: Vec<String>,
    /// Interfaces that it offers.
    pub exports: Vec<String>,
    /// Its agents.
    pub agents: Vec<InspectedAgent>,
    /// Its tools.
    pub tools: Vec<InspectedTool>,
    /// Its callbacks.
    pub callbacks: Vec<InspectedCallback>,
    /// Its plugins.
    pub plugins: Vec<InspectedPlugin>,
    /// Names of its code executors.
    pub code_executors: Vec<String>,
    /// Names of its summarizers.
    pub summarizers: Vec<String>,
    /// Names of its providers of examples.
    pub examples: Vec<String>,
    /// Names of its models, as agents write them.
    pub models: Vec<String>,
    /// What it requests, and what it would be granted.
    pub grants: GrantReport,
    /// Why the host would not load it. Then what it offers is known only if the reason is not about its code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Whether its code was run to ask what it offers. If not, all that is known of its items is `exports`.
    pub is_described: bool,
}

/// An agent of a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InspectedAgent {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// `llm`, `sequential`, `parallel`, `loop` or `custom`.
    pub kind: &'static str,
    /// Its model, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tools that it can call.
    pub tools: Vec<String>,
    /// Sets of tools that it can call.
    pub toolsets: Vec<String>,
    /// Agents below it.
    pub sub_agents: Vec<String>,
    /// True when it becomes an app.
    pub is_app: bool,
}

/// A tool of a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InspectedTool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// JSON Schema of its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    /// True when its result comes later.
    pub is_long_running: bool,
    /// True when a person has to agree to each call.
    pub requires_confirmation: bool,
}

/// A callback of a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InspectedCallback {
    /// Its name.
    pub name: String,
    /// Where it may be used.
    pub points: Vec<String>,
}

/// A plugin of a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InspectedPlugin {
    /// Its name.
    pub name: String,
    /// The hooks that it has.
    pub hooks: Vec<String>,
}

/// Looks at the bytes of a component: checks and compiles it, and has it describe itself without any of the rights that it is granted.
///
/// # Errors
/// As loading it.
pub async fn inspect(options: &LoadOptions, name: &str, bytes: Vec<u8>) -> Result<Inspection, LoadError> {
    let (size, hash) = (bytes.len() as u64, sha256(&bytes));
    let settings = options.settings.of(name);
    let mut options = options.clone();
    let without_rights = ComponentSettings { grants: Arc::default(), warm: None, refusal: None, ..settings.clone() };
    options.settings.components.insert(name.to_owned(), without_rights);
    let (component, _) = load_bytes(&options, name, bytes.into(), hash).await?;
    Ok(described(&component, size, &settings))
}

/// Looks at a component's file. Code that the host would not admit is not run: then only what can be read from the file is shown.
///
/// # Errors
/// As loading it, but for being refused.
pub async fn inspect_file(options: &LoadOptions, path: &Path) -> Result<Inspection, LoadError> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    check_name(&name, path)?;
    let bytes = read(options, path).await?;
    let refused = match admit(options, path, bytes.clone()).await {
        Ok(_) => None,
        Err(LoadError::Refused(reason)) => Some(reason),
        Err(error) => return Err(error),
    };
    match refused {
        None => inspect(options, &name, bytes.into()).await,
        Some(reason) => unrun(&name, &bytes, reason, &options.settings.of(&name)),
    }
}

/// What the bytes say without being run.
fn unrun(name: &str, bytes: &[u8], reason: String, settings: &ComponentSettings) -> Result<Inspection, LoadError> {
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

fn described(component: &Component, size: u64, settings: &ComponentSettings) -> Inspection {
    let roots = roots(component);
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
    let plain = |kind| (kind, None, Vec::new(), Vec::new());
    let (kind, model, tools, toolsets) = match &spec.kind {
        AgentKind::Llm(llm) => {
            let toolsets = llm.toolsets.iter().map(|set| set.name.clone()).collect();
            ("llm", llm.model.clone(), llm.tools.clone(), toolsets)
        }
        AgentKind::Sequential => plain("sequential"),
        AgentKind::Parallel => plain("parallel"),
        AgentKind::Loop(_) => plain("loop"),
        AgentKind::Custom(custom) => ("custom", custom.model.clone(), custom.tools.clone(), Vec::new()),
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

fn names(hooks: &[Hook]) -> Vec<String> {
    hooks.iter().map(|hook| hook.name()).collect()
}
