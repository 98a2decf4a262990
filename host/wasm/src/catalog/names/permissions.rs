//! Permissions that agents of components need for items, models, state and artifacts that are not their component's
//! own. They are checked against the component's grants like the operations of its code, because a component sees
//! everything that its agents' models see and can call.

use std::sync::Arc;

use hatchery_core::{CallContext, Capabilities, Capability, ItemKind, RunError};
use hatchery_engine::llm::{Placeholder, placeholders};

use super::{NameResolver, offers};
use crate::contract::bindings::hatchery::agent::specs;
use crate::contract::component::{AgentSpec, Component};
use crate::policy::{Access, GrantReport, Grants, Permission, RequestedGrants, lines};

/// A permission that an agent needs (the owned form of [`Permission`]).
#[derive(Debug, Clone, PartialEq, Eq)]
enum RequiredPermission {
    Model(String),
    Memory,
    Artifacts,
    State(Access, String),
    /// An item by its qualified name.
    Item(ItemKind, String),
}

impl RequiredPermission {
    fn as_permission(&self) -> Permission<'_> {
        match self {
            Self::Model(name) => Permission::Model(name),
            Self::Memory => Permission::Memory,
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
        (is_full && !offers(component, kind, name)).then(|| name.to_owned())
    };
    let (no_grants, mut requests) = (Grants::default(), RequestedGrants::default());
    for required in component.agents().iter().flat_map(|spec| required_permissions(spec, &full)) {
        if !required.as_permission().is_granted(&no_grants, component.name()) {
            requests.add_permission(required.as_permission());
        }
    }
    requests
}

impl NameResolver<'_> {
    /// Returns true if `component` is granted everything that this agent collector.
    pub(super) fn is_within_grants(&self, component: &Component, spec: &AgentSpec) -> bool {
        self.ungranted(component, [spec]).next().is_none()
    }

    /// Describes the permissions that these components' agents need and that are not granted, with the lines that grant
    /// them all.
    pub(super) fn explain_ungranted(&self, components: &[Arc<Component>]) -> String {
        let (mut sentences, mut blocks) = (Vec::new(), Vec::new());
        for component in components {
            let (name, grants) = (component.name(), &component.settings().grants);
            let mut requests = RequestedGrants::default();
            for required in self.ungranted(component, component.agents()) {
                match required.as_permission().private_owner(grants, name) {
                    Some(_) => {
                        let denied =
                            grants.check(&name.into(), required.as_permission()).map_err(|denial| denial.to_string());
                        sentences.extend(denied.err().filter(|denied| !sentences.contains(denied)));
                    }
                    None => requests.add_permission(required.as_permission()),
                }
            }
            let missing =
                GrantReport::new(Some(&requests), &RequestedGrants::default(), &Grants::default()).missing_grants();
            if !missing.is_empty() {
                tracing::warn!(
                    target: "hatchery::audit", component = name, action = "describe its agents", grant = missing.join("; "),
                    "denied"
                );
                blocks.push((name, missing));
            }
        }
        if !blocks.is_empty() {
            let names: Vec<_> = blocks.iter().map(|(name, _)| format!("`{name}`")).collect();
            let lines = lines(blocks);
            sentences.push(format!(
                "the agents of component {} are described with more than it is granted; to grant it, add to \
                 hatchery.yaml:\n{lines}",
                names.join(" and ")
            ));
        }
        sentences.join("\n")
    }

    fn ungranted<'a>(
        &'a self,
        component: &'a Component,
        specs: impl IntoIterator<Item = &'a AgentSpec> + 'a,
    ) -> impl Iterator<Item = RequiredPermission> + 'a {
        let full = |kind, name: &str| self.qualified_name(component, kind, name);
        let grants = &component.settings().grants;
        let all = specs.into_iter().flat_map(move |spec| required_permissions(spec, &full));
        all.filter(|required| !required.as_permission().is_granted(grants, component.name()))
    }

    /// Returns the qualified name of another component's item. `None` for an item of `home`, and for one that no
    /// component exports.
    fn qualified_name(&self, home: &Component, kind: ItemKind, name: &str) -> Option<String> {
        if offers(home, kind, name) {
            return None;
        }
        if kind == ItemKind::Toolset {
            return Some(name.to_owned());
        }
        let (owner, item) = self.find(kind, name).ok()?;
        Some(format!("{}/{item}", owner.name()))
    }
}

/// Collects the permissions that an agent needs. `full` returns the qualified name of an item of another component.
fn required_permissions(spec: &AgentSpec, full: &dyn Fn(ItemKind, &str) -> Option<String>) -> Vec<RequiredPermission> {
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

    /// NameResolver of built-in tools take precedence, as when agents are built.
    fn tools(&mut self, names: &[String]) {
        for name in names {
            match name.as_str() {
                "load_memory" | "preload_memory" => self.permissions.push(RequiredPermission::Memory),
                "load_artifacts" => self.permissions.push(RequiredPermission::Artifacts),
                // These have no effect outside of the run.
                "exit_loop" | "code_execution" => {}
                builtin if hatchery_engine::builtin::tools().contains(builtin) => {
                    self.permissions.push(RequiredPermission::Item(ItemKind::Tool, builtin.into()));
                }
                name => self.item(ItemKind::Tool, name),
            }
        }
    }

    fn items(&mut self, kind: ItemKind, names: &[String]) {
        names.iter().for_each(|name| self.item(kind, name));
    }

    fn item(&mut self, kind: ItemKind, name: &str) {
        self.permissions.extend((self.full)(kind, name).map(|name| RequiredPermission::Item(kind, name)));
    }
}

/// Checks the capabilities of a component's agents at run time against the component's grants.
pub(super) struct AgentCapabilities {
    component: Arc<str>,
    grants: Arc<Grants>,
}

impl AgentCapabilities {
    pub(super) fn of(component: &Component) -> Arc<dyn Capabilities> {
        Arc::new(Self { component: component.name().into(), grants: component.settings().grants.clone() })
    }
}

impl Capabilities for AgentCapabilities {
    fn check(&self, cx: &CallContext, capability: Capability<'_>) -> Result<(), RunError> {
        let permission = match capability {
            Capability::ReadState(key) => Permission::State(Access::Read, key),
            Capability::WriteState(key) => Permission::State(Access::Write, key),
            Capability::ReadArtifacts => Permission::Artifacts(Access::Read),
            Capability::WriteArtifacts => Permission::Artifacts(Access::Write),
        };
        self.grants.check(&self.component, permission).map_err(|denial| denial.run_error(cx))
    }
}
