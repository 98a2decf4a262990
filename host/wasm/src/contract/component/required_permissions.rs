//! Permissions that agents of a component need for items, models, state and artifacts that are not their component's
//! own. They are checked against the component's grants like the operations of its code, because a component sees
//! everything that its agents' models see and can call.

use hatchery_core::ItemKind;
use hatchery_engine::instructions::{Placeholder, placeholders};
use serde_json::Value;

use super::{AgentSpec, Component};
use crate::contract::bindings::hatchery::agent::specs;
use crate::contract::convert::parse_object;
use crate::policy::{Access, Grants, Permission, RequestedGrants};

/// A permission that an agent needs (the owned form of [`Permission`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequiredPermission {
    Model(String),
    Memory,
    Artifacts,
    State(Access, String),
    /// An item by its qualified name.
    Item(ItemKind, String),
}

impl RequiredPermission {
    pub(crate) fn as_permission(&self) -> Permission<'_> {
        match self {
            Self::Model(name) => Permission::Model(name),
            Self::Memory => Permission::Memory(Access::Read),
            Self::Artifacts => Permission::Artifacts(Access::Read),
            Self::State(access, key) => Permission::State(*access, key),
            Self::Item(kind, name) => Permission::Item(*kind, name),
        }
    }
}

/// Returns the permissions that the component's agents need and that are not free for every component. Items of others
/// only count if their names are qualified, because only a catalog can resolve unqualified names.
pub(crate) fn required_by_agents(component: &Component) -> RequestedGrants {
    let full = |kind, name: &str| {
        let is_full = kind == ItemKind::Toolset || name.contains('/');
        (is_full && !component.exports_item(kind, name)).then(|| name.to_owned())
    };
    let (no_grants, mut requests) = (Grants::default(), RequestedGrants::default());
    for required in component.agents().iter().flat_map(|spec| required_permissions(spec, &full)) {
        if !required.as_permission().is_granted(&no_grants, component.name()) {
            requests.add_permission(required.as_permission());
        }
    }
    requests
}

/// Collects the permissions that an agent needs. `full` returns the qualified name of an item of another component.
pub(crate) fn required_permissions(
    spec: &AgentSpec,
    full: &dyn Fn(ItemKind, &str) -> Option<String>,
) -> Vec<RequiredPermission> {
    let mut collector = Collector { full, permissions: Vec::new() };
    collector.items(ItemKind::Agent, &spec.sub_agents);
    spec.callbacks().for_each(|(_, name)| collector.item(ItemKind::Callback, name));
    match &spec.kind {
        specs::AgentKind::Llm(llm) => collector.llm(llm),
        specs::AgentKind::Custom(custom) => {
            collector.permissions.extend(custom.model.clone().map(RequiredPermission::Model));
            collector.tools(&custom.tools);
        }
        specs::AgentKind::Sequential | specs::AgentKind::Parallel | specs::AgentKind::Loop(_) => {}
    }
    collector.permissions
}

struct Collector<'a> {
    full: &'a dyn Fn(ItemKind, &str) -> Option<String>,
    permissions: Vec<RequiredPermission>,
}

impl Collector<'_> {
    fn llm(&mut self, llm: &specs::LlmAgent) {
        self.permissions.extend(llm.model.clone().map(RequiredPermission::Model));
        self.instruction(&llm.instruction);
        self.instruction(&llm.global_instruction);
        self.tools(&llm.tools);
        for set in &llm.toolsets {
            match (self.full)(ItemKind::Toolset, &set.name) {
                Some(owner) if set.only.is_empty() => {
                    self.permissions.push(RequiredPermission::Item(ItemKind::Toolset, owner))
                }
                Some(owner) => {
                    let only =
                        set.only.iter().map(|tool| RequiredPermission::Item(ItemKind::Tool, format!("{owner}/{tool}")));
                    self.permissions.extend(only);
                }
                None => {}
            }
        }
        if let specs::Examples::Chosen(provider) = &llm.examples {
            self.item(ItemKind::Examples, provider);
        }
        if let specs::CodeExecution::Host(runner) = &llm.code_execution {
            self.item(ItemKind::CodeExecutor, &runner.executor);
        }
        self.permissions.extend(llm.output_key.clone().map(|key| RequiredPermission::State(Access::Write, key)));
        llm.callbacks().for_each(|(_, name)| self.item(ItemKind::Callback, name));
    }

    fn instruction(&mut self, instruction: &specs::Instruction) {
        if let specs::Instruction::Text(template) = instruction {
            self.permissions.extend(placeholders(template).map(|placeholder| match placeholder {
                Placeholder::State(key) => RequiredPermission::State(Access::Read, key.into()),
                Placeholder::Artifact(_) => RequiredPermission::Artifacts,
            }));
        }
    }

    fn tools(&mut self, tools: &[specs::ToolUse]) {
        for tool in tools {
            let args = tool.args.as_deref().and_then(|json| parse_object(json, "`args`").ok()).unwrap_or_default();
            let arg = |key: &str| args.get(key).and_then(Value::as_str);
            match tool.name.as_str() {
                "AgentTool" => arg("agent").into_iter().for_each(|name| self.item(ItemKind::Agent, name)),
                "ExampleTool" => arg("examples").into_iter().for_each(|name| self.item(ItemKind::Examples, name)),
                "LongRunningFunctionTool" => arg("func").into_iter().for_each(|name| self.tool(name)),
                name @ ("vertex_ai_search" | "vertex_ai_rag_retrieval") => {
                    self.permissions.push(RequiredPermission::Item(ItemKind::Tool, name.into()));
                }
                name => self.tool(name),
            }
        }
    }

    /// Names of built-in tools take precedence, as when agents are built.
    fn tool(&mut self, name: &str) {
        match name {
            "load_memory" | "preload_memory" => self.permissions.push(RequiredPermission::Memory),
            "load_artifacts" => self.permissions.push(RequiredPermission::Artifacts),
            // These have no effect outside of the run.
            "exit_loop" | "get_user_choice" | "code_execution" => {}
            builtin if hatchery_engine::builtin::tools().contains(builtin) => {
                self.permissions.push(RequiredPermission::Item(ItemKind::Tool, builtin.into()));
            }
            name => self.item(ItemKind::Tool, name),
        }
    }

    fn items(&mut self, kind: ItemKind, names: &[String]) {
        names.iter().for_each(|name| self.item(kind, name));
    }

    fn item(&mut self, kind: ItemKind, name: &str) {
        self.permissions.extend((self.full)(kind, name).map(|name| RequiredPermission::Item(kind, name)));
    }
}
