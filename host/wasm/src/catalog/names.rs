//! Name resolution for the items of components: `component/item`, or just `item` if that is unambiguous or has an
//! owner.

mod build;
mod models;
mod owners;
mod permissions;
mod tool_agents;

use std::collections::{BTreeMap, HashSet};
use std::mem;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{
    Agent, Callback, CodeExecutor, DEFAULT_CODE_EXECUTOR, ExampleProvider, ItemKind, ItemResolver, JsonMap, Plugin,
    ResolveError, Summarizer, Tool, Toolset,
};
use hatchery_engine::builtin;

use crate::contract::component::Component;
use crate::policy::Grants;
pub(crate) use owners::{NameOwners, ShadowedItems, StoredNames};

/// Components by name.
pub(crate) type Components = BTreeMap<String, Arc<Component>>;

/// The grants of the components whose items an app uses, by component.
pub(crate) type UsedGrants = BTreeMap<String, Arc<Grants>>;

/// Resolves names to items of components. [`NameOwners`] decides which of several components an unqualified name means.
pub(crate) struct NameResolver<'a> {
    pub(crate) components: &'a Components,
    pub(crate) owners: &'a NameOwners,
    /// The items of the host. Agents of components can use its toolsets and its default code executor. `None` if there
    /// are none.
    pub(crate) native: Option<&'a dyn ItemResolver>,
    /// The components that were found since [`NameResolver::take_used`].
    used: Mutex<UsedGrants>,
}

impl<'a> NameResolver<'a> {
    pub(crate) fn new(
        components: &'a Components,
        owners: &'a NameOwners,
        native: Option<&'a dyn ItemResolver>,
    ) -> Self {
        Self { components, owners, native, used: Mutex::default() }
    }

    /// Returns the components that were found since the last call, with their grants.
    pub(crate) fn take_used(&self) -> UsedGrants {
        mem::take(&mut *self.used.lock_unpoisoned())
    }

    fn record_use(&self, component: &Component) {
        self.used
            .lock_unpoisoned()
            .entry(component.name().into())
            .or_insert_with(|| component.settings().grants.clone());
    }
}

impl ItemResolver for NameResolver<'_> {
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, ResolveError> {
        if let Some(tool) = builtin::tool(name) {
            return Ok(tool);
        }
        self.item(ItemKind::Tool, name, Component::tool)
    }

    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, ResolveError> {
        self.item(ItemKind::Callback, name, Component::callback)
    }

    fn agent(&self, name: &str) -> Result<Agent, ResolveError> {
        let (component, item) = self.find(ItemKind::Agent, name)?;
        self.build(component, item)
    }

    fn toolset(&self, name: &str) -> Result<Arc<dyn Toolset>, ResolveError> {
        if let Some(component) = self.components.get(name)
            && let Some(toolset) = component.toolset()
        {
            self.record_use(component);
            return Ok(toolset);
        }
        match (self.find(ItemKind::Toolset, name), self.native) {
            (Ok((component, item)), _) => {
                component.named_toolset(item).ok_or_else(|| self.unknown(ItemKind::Toolset, name))
            }
            (Err(error @ ResolveError::Unknown { .. }), Some(native)) => match native.toolset(name) {
                Err(ResolveError::Unknown { .. }) => Err(error),
                found => found,
            },
            (Err(error), _) => Err(error),
        }
    }

    fn plugin(&self, name: &str, args: JsonMap) -> Result<Arc<dyn Plugin>, ResolveError> {
        let (component, item) = self.find(ItemKind::Plugin, name)?;
        component.plugin(item, args).ok_or_else(|| self.unknown(ItemKind::Plugin, name))
    }

    fn code_executor(&self, name: &str) -> Result<Arc<dyn CodeExecutor>, ResolveError> {
        match (self.item(ItemKind::CodeExecutor, name, Component::code_executor), self.native) {
            (Err(ResolveError::Unknown { .. }), Some(native)) if name == DEFAULT_CODE_EXECUTOR => {
                native.code_executor(name)
            }
            (found, _) => found,
        }
    }

    fn summarizer(&self, name: &str) -> Result<Arc<dyn Summarizer>, ResolveError> {
        self.item(ItemKind::Summarizer, name, Component::summarizer)
    }

    fn examples(&self, name: &str) -> Result<Arc<dyn ExampleProvider>, ResolveError> {
        self.item(ItemKind::Examples, name, Component::examples)
    }
}

/// Gets an item of a component by name.
type GetItem<T> = fn(&Arc<Component>, &str) -> Option<Arc<T>>;

impl NameResolver<'_> {
    fn item<T: ?Sized>(&self, kind: ItemKind, name: &str, get: GetItem<T>) -> Result<Arc<T>, ResolveError> {
        let (component, item) = self.find(kind, name)?;
        get(component, item).ok_or_else(|| self.unknown(kind, name))
    }

    /// Returns the component that exports `name`, and the item's name in it. Records that the component is used.
    fn find<'n>(&self, kind: ItemKind, name: &'n str) -> Result<(&Arc<Component>, &'n str), ResolveError> {
        self.search(kind, name).inspect(|(component, _)| self.record_use(component))
    }

    fn search<'n>(&self, kind: ItemKind, name: &'n str) -> Result<(&Arc<Component>, &'n str), ResolveError> {
        if let Some((component, item)) = name.split_once('/') {
            let component = self.components.get(component).filter(|component| component.exports_item(kind, item));
            return component.map(|component| (component, item)).ok_or_else(|| self.unknown(kind, name));
        }
        let mut candidates = self.components.values().filter(|component| component.exports_item(kind, name));
        match (candidates.next(), candidates.next()) {
            (Some(component), None) => match self.owners.owner(kind, name).filter(|owner| *owner != component.name()) {
                None => Ok((component, name)),
                Some(owner) => Err(ResolveError::Unusable {
                    kind,
                    name: name.into(),
                    reason: format!(
                        "it belongs to `{owner}`, which is not loaded; to use an item of another component, qualify it, as in `{}/{name}`",
                        component.name()
                    ),
                }),
            },
            (None, _) => Err(self.unknown(kind, name)),
            (Some(first), Some(second)) => {
                let owner = self.owners.owner(kind, name).and_then(|owner| self.components.get(owner));
                if let Some(owner) = owner.filter(|owner| owner.exports_item(kind, name)) {
                    return Ok((owner, name));
                }
                let all = [first, second].into_iter().chain(candidates);
                let candidates = all.map(|component| format!("{}/{name}", component.name())).collect();
                Err(ResolveError::Ambiguous { kind, name: name.into(), candidates })
            }
        }
    }

    fn unknown(&self, kind: ItemKind, name: &str) -> ResolveError {
        let mut known: Vec<String> = Vec::new();
        for component in self.components.values() {
            known.extend(component.names_with_toolset(kind).map(|item| match kind {
                ItemKind::Toolset => item.to_owned(),
                _ => format!("{}/{item}", component.name()),
            }));
        }
        if kind == ItemKind::Tool {
            known.extend(builtin::tools().names().map(str::to_owned));
        }
        ResolveError::Unknown { kind, name: name.into(), known }
    }
}

/// Returns the agents of a component that are not sub-agents of its other agents. They become apps.
pub(crate) fn root_agents(component: &Component) -> Vec<&str> {
    let sub_agents = component.agents().iter().flat_map(|agent| &agent.sub_agents);
    let below: HashSet<&str> = sub_agents
        .map(|sub_agent| match sub_agent.split_once('/') {
            Some((owner, name)) if owner == component.name() => name,
            Some(_) | None => sub_agent,
        })
        .collect();
    component.names(ItemKind::Agent).filter(|name| !below.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use hatchery_core::{CallContext, CodeInput, CodeOutput, ToolError};
    use hatchery_engine::StaticCatalog;

    use super::*;

    struct Executor(&'static str);

    #[async_trait]
    impl CodeExecutor for Executor {
        fn name(&self) -> &str {
            self.0
        }

        async fn execute(&self, _: CodeInput, _: &CallContext) -> Result<CodeOutput, ToolError> {
            Ok(CodeOutput::default())
        }
    }

    #[test]
    fn agents_of_components_find_the_default_code_executor_of_the_host_and_no_other() {
        let executors = ["sandbox", "python"].map(|name| Arc::new(Executor(name)));
        let native = executors.into_iter().fold(StaticCatalog::default(), |native, it| native.with_code_executor(it));
        let (components, owners) = (Components::new(), NameOwners::default());
        let resolver = NameResolver::new(&components, &owners, Some(&native));
        assert_eq!(resolver.code_executor("sandbox").unwrap().name(), "sandbox");
        assert!(matches!(resolver.code_executor("python"), Err(ResolveError::Unknown { .. })));
    }
}
