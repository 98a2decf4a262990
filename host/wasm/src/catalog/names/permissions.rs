//! Checks of the permissions that agents of components need, when agent trees are built and when they run.

use std::sync::Arc;

use hatchery_core::{CallContext, Capabilities, Capability, ItemKind, ResolveError, RunError};

use super::NameResolver;
use crate::contract::component::{AgentSpec, Component, RequiredPermission, required_permissions};
use crate::policy::{Access, GrantReport, Grants, Permission, RequestedGrants, grants_block};

impl NameResolver<'_> {
    /// Returns true if `component` is granted everything that this agent needs.
    pub(super) fn is_within_grants(&self, component: &Component, spec: &AgentSpec) -> bool {
        self.missing_permissions(component, [spec]).next().is_none()
    }

    /// Returns the error of an agent in whose tree agents of these components need permissions that are not granted,
    /// with the lines that grant them all. [`ResolveError::MissingGrants`] if these lines are sufficient.
    pub(super) fn explain_ungranted(&self, agent: String, components: &[Arc<Component>]) -> ResolveError {
        let (mut sentences, mut blocks) = (Vec::new(), Vec::new());
        for component in components {
            let (name, grants) = (component.name(), &component.settings().grants);
            let mut requests = RequestedGrants::default();
            for required in self.missing_permissions(component, component.agents()) {
                match required.as_permission().private_owner(grants, name) {
                    Some(_) => {
                        let denied = grants
                            .check(&name.into(), required.as_permission())
                            .map_err(|denial| denial.for_operator());
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
        let is_grantable = sentences.is_empty();
        if !blocks.is_empty() {
            let names: Vec<_> = blocks.iter().map(|(name, _)| format!("`{name}`")).collect();
            let commands: Vec<_> = blocks.iter().map(|(name, _)| format!("`hatchery grant {name}`")).collect();
            let block = grants_block(blocks);
            sentences.push(format!(
                "the agents of component {} need grants that it does not have; to grant them, run {}, or add to \
                 hatchery.yaml:\n{block}",
                names.join(" and "),
                commands.join(" and ")
            ));
        }
        let (kind, reason) = (ItemKind::Agent, sentences.join("\n"));
        if is_grantable {
            ResolveError::MissingGrants { kind, name: agent, reason }
        } else {
            ResolveError::Unusable { kind, name: agent, reason }
        }
    }

    fn missing_permissions<'a>(
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
    /// component exports; the name of a toolset that no component exports.
    fn qualified_name(&self, home: &Component, kind: ItemKind, name: &str) -> Option<String> {
        if home.exports_item(kind, name) {
            return None;
        }
        let has_tools = |component: &Arc<Component>| component.names(ItemKind::Tool).next().is_some();
        // The name of a component with tools means all of them, as when agents are built.
        if kind == ItemKind::Toolset && self.components.get(name).is_some_and(has_tools) {
            return Some(name.to_owned());
        }
        match self.find(kind, name) {
            Ok((owner, item)) => Some(format!("{}/{item}", owner.name())),
            // The host may have it.
            Err(_) => (kind == ItemKind::Toolset).then(|| name.to_owned()),
        }
    }
}

/// Checks the capabilities of a component's agents at run time against the component's grants.
pub(super) struct AgentCapabilities {
    component: Arc<str>,
    grants: Arc<Grants>,
}

impl AgentCapabilities {
    pub(super) fn for_component(component: &Component) -> Arc<dyn Capabilities> {
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
