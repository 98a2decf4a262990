//! What a component file is, wants and offers, as data for people and scripts.

use serde::Serialize;
use serde_json::Value;

use crate::bindings::exports::hatchery::agent::guest_agents::AgentKind;
use crate::cache::sha256;
use crate::component::Component;
use crate::error::LoadError;
use crate::loader::{LoadOptions, load_bytes};
use crate::names::roots;

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
    /// The version of `hatchery:agent` that it was built for.
    pub contract: String,
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

/// Looks at the bytes of a component: checks, compiles and describes it as serving would.
///
/// # Errors
/// As loading it.
pub async fn inspect(options: &LoadOptions, name: &str, bytes: Vec<u8>) -> Result<Inspection, LoadError> {
    let (size, hash) = (bytes.len() as u64, sha256(&bytes));
    let (component, _) = load_bytes(options, name, bytes, hash).await?;
    Ok(describe(&component, size))
}

fn describe(component: &Component, size: u64) -> Inspection {
    let roots = roots(component);
    let agents = component.agents().iter().map(|agent| {
        let (kind, model, tools) = match &agent.kind {
            AgentKind::Llm(llm) => ("llm", llm.model.clone(), llm.tools.clone()),
            AgentKind::Sequential => ("sequential", None, Vec::new()),
            AgentKind::Parallel => ("parallel", None, Vec::new()),
            AgentKind::Loop(_) => ("loop", None, Vec::new()),
            AgentKind::Custom(custom) => ("custom", custom.model.clone(), custom.tools.clone()),
        };
        InspectedAgent {
            name: agent.name.clone(),
            description: agent.description.clone(),
            kind,
            model,
            tools,
            sub_agents: agent.sub_agents.clone(),
            is_app: roots.contains(&agent.name.as_str()),
        }
    });
    let tools = component.tools().map(|(declaration, is_long_running)| InspectedTool {
        name: declaration.name.clone(),
        description: declaration.description.clone(),
        parameters: declaration.parameters.clone(),
        response: declaration.response.clone(),
        is_long_running,
    });
    let callbacks = component
        .callback_names()
        .map(|name| InspectedCallback { name: name.into(), points: component.callback_points(name).to_vec() });
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
    }
}
