//! What the agents of components are described with and is not their component's own. It is judged by the component's
//! grants, as what its code asks for is: what an agent's model is shown and can call, its component sees as well.

use std::sync::Arc;

use hatchery_core::{CallContext, Capabilities, Capability, ItemKind, RunError};
use hatchery_engine::llm::{Placeholder, placeholders};

use super::{Names, offers};
use crate::contract::bindings::hatchery::agent::specs;
use crate::contract::component::{AgentSpec, Component};
use crate::policy::{Access, GrantReport, Grants, Permission, RequestedGrants, lines};

/// Something that an agent is described with and that may need a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Need {
    Model(String),
    Memory,
    Artifacts,
    State(Access, String),
    /// An item by its full name.
    Item(ItemKind, String),
}

impl Need {
    fn want(&self) -> Permission<'_> {
        match self {
            Self::Model(name) => Permission::Model(name),
            Self::Memory => Permission::Memory,
            Self::Artifacts => Permission::Artifacts(Access::Read),
            Self::State(access, key) => Permission::State(*access, key),
            Self::Item(kind, name) => Permission::Item(*kind, name),
        }
    }
}

/// Returns what the component's agents are described with and is not free to every component. Items of others count
/// when their names are full ones: which component a short name is of, only a catalog knows.
pub(crate) fn described(component: &Component) -> RequestedGrants {
    let full = |kind, name: &str| {
        let is_full = kind == ItemKind::Toolset || name.contains('/');
        (is_full && !offers(component, kind, name)).then(|| name.to_owned())
    };
    let (free, mut requests) = (Grants::default(), RequestedGrants::default());
    for need in component.agents().iter().flat_map(|spec| permissions(spec, &full)) {
        if !need.want().is_granted(&free, component.name()) {
            requests.want(need.want());
        }
    }
    requests
}

impl Names<'_> {
    /// Returns whether `component` is granted all that this agent of it is described with.
    pub(super) fn is_within_grants(&self, component: &Component, spec: &AgentSpec) -> bool {
        self.lacking(component, [spec]).next().is_none()
    }

    /// Says what the agents of these components are described with and their components are not granted, with the lines
    /// that grant all of it.
    pub(super) fn explain_lacking(&self, components: &[Arc<Component>]) -> String {
        let (mut sentences, mut blocks) = (Vec::new(), Vec::new());
        for component in components {
            let (name, grants) = (component.name(), &component.settings().grants);
            let mut requests = RequestedGrants::default();
            for need in self.lacking(component, component.agents()) {
                match need.want().private_owner(grants, name) {
                    Some(_) => {
                        let denied = grants.check(&name.into(), need.want()).map_err(|denial| denial.to_string());
                        sentences.extend(denied.err().filter(|denied| !sentences.contains(denied)));
                    }
                    None => requests.want(need.want()),
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

    fn lacking<'a>(
        &'a self,
        component: &'a Component,
        specs: impl IntoIterator<Item = &'a AgentSpec> + 'a,
    ) -> impl Iterator<Item = Need> + 'a {
        let full = |kind, name: &str| self.qualified_name(component, kind, name);
        let grants = &component.settings().grants;
        let all = specs.into_iter().flat_map(move |spec| permissions(spec, &full));
        all.filter(|need| !need.want().is_granted(grants, component.name()))
    }

    /// The full name of another component's item; `None` for one of `home` and for one that nobody offers.
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

/// Collects what an agent is described with. `full` gives the full name of an item of another component.
fn permissions(spec: &AgentSpec, full: &dyn Fn(ItemKind, &str) -> Option<String>) -> Vec<Need> {
    let mut permissions = Needs { full, found: Vec::new() };
    permissions.items(ItemKind::Agent, &spec.sub_agents);
    spec.callbacks().for_each(|(_, name)| permissions.item(ItemKind::Callback, name));
    match &spec.kind {
        specs::AgentKind::Llm(llm) => permissions.llm(llm),
        specs::AgentKind::Custom(custom) => {
            permissions.found.extend(custom.model.clone().map(Need::Model));
            permissions.tools(&custom.tools);
        }
        specs::AgentKind::Sequential | specs::AgentKind::Parallel | specs::AgentKind::Loop(_) => {}
    }
    permissions.found
}

struct Needs<'a> {
    full: &'a dyn Fn(ItemKind, &str) -> Option<String>,
    found: Vec<Need>,
}

impl Needs<'_> {
    fn llm(&mut self, llm: &specs::LlmAgent) {
        self.found.extend(llm.model.clone().map(Need::Model));
        self.instruction(&llm.instruction);
        self.instruction(&llm.global_instruction);
        self.tools(&llm.tools);
        for set in &llm.toolsets {
            match (self.full)(ItemKind::Toolset, &set.name) {
                Some(owner) if set.only.is_empty() => self.found.push(Need::Item(ItemKind::Toolset, owner)),
                Some(owner) => {
                    let only = set.only.iter().map(|tool| Need::Item(ItemKind::Tool, format!("{owner}/{tool}")));
                    self.found.extend(only);
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
        self.found.extend(llm.output_key.clone().map(|key| Need::State(Access::Write, key)));
        llm.callbacks().for_each(|(_, name)| self.item(ItemKind::Callback, name));
    }

    fn instruction(&mut self, instruction: &specs::Instruction) {
        if let specs::Instruction::Text(template) = instruction {
            self.found.extend(placeholders(template).map(|placeholder| match placeholder {
                Placeholder::State(key) => Need::State(Access::Read, key.into()),
                Placeholder::Artifact(_) => Need::Artifacts,
            }));
        }
    }

    /// Names of tools that come with the host win, as they do where agents are built.
    fn tools(&mut self, names: &[String]) {
        for name in names {
            match name.as_str() {
                "load_memory" | "preload_memory" => self.found.push(Need::Memory),
                "load_artifacts" => self.found.push(Need::Artifacts),
                // These do nothing outside of the run.
                "exit_loop" | "code_execution" => {}
                builtin if hatchery_engine::builtin::tools().contains(builtin) => {
                    self.found.push(Need::Item(ItemKind::Tool, builtin.into()));
                }
                name => self.item(ItemKind::Tool, name),
            }
        }
    }

    fn items(&mut self, kind: ItemKind, names: &[String]) {
        names.iter().for_each(|name| self.item(kind, name));
    }

    fn item(&mut self, kind: ItemKind, name: &str) {
        self.found.extend((self.full)(kind, name).map(|name| Need::Item(kind, name)));
    }
}

/// The rights of a component's agents while they run: its grants.
pub(super) struct Rights {
    component: Arc<str>,
    grants: Arc<Grants>,
}

impl Rights {
    pub(super) fn of(component: &Component) -> Arc<dyn Capabilities> {
        Arc::new(Self { component: component.name().into(), grants: component.settings().grants.clone() })
    }
}

impl Capabilities for Rights {
    fn check(&self, cx: &CallContext, capability: Capability<'_>) -> Result<(), RunError> {
        let want = match capability {
            Capability::ReadState(key) => Permission::State(Access::Read, key),
            Capability::WriteState(key) => Permission::State(Access::Write, key),
            Capability::ReadArtifacts => Permission::Artifacts(Access::Read),
            Capability::WriteArtifacts => Permission::Artifacts(Access::Write),
        };
        self.grants.check(&self.component, want).map_err(|denial| denial.end(cx))
    }
}
