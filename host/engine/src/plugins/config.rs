//! Plugins from configuration: a list of names with arguments.
//!
//! A name refers to a registered plugin or to a component's plugin. A component's plugin is resolved at the start of
//! each run. If it is missing, new runs fail until it is loaded again.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{ItemResolver, JsonMap, Plugin, ResolveError, RunError};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use thiserror::Error;

use super::{PluginSource, Plugins, builtin};
use crate::catalog_source::{CatalogSnapshot, CatalogSource};
use crate::factories::Factories;

/// A plugin in a list: `name`, or `{name, args}`. Arguments of a plugin that comes with the engine are checked when
/// this is deserialized.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PluginConfig {
    /// A name in `Extensions::plugins`, or the name of a component's plugin.
    pub name: String,
    pub args: JsonMap,
}

/// An error in a list of plugins.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("plugins[{index}]: {reason}")]
pub struct PluginError {
    /// Index in the list, from 0.
    pub index: usize,
    /// The name in the list.
    pub name: String,
    /// The problem, with the known names if the plugin is unknown.
    pub reason: String,
}

/// The plugins of a list, which can be replaced. Registered plugins are created once. Plugins of components are
/// resolved again when the catalog's generation changes.
pub struct ConfiguredPlugins {
    registered: Factories<Arc<dyn Plugin>>,
    catalog: Arc<dyn CatalogSource>,
    state: Mutex<PluginState>,
}

struct PluginState {
    list: PluginList,
    resolved: ResolvedPlugins,
    /// Registered plugins of earlier lists that runs may still use.
    replaced: Vec<Arc<dyn Plugin>>,
}

/// A list of plugins whose registered ones are created.
#[derive(Clone)]
pub struct PluginList(Vec<Entry>);

#[derive(Clone)]
enum Entry {
    Registered { config: PluginConfig, plugin: Arc<dyn Plugin> },
    Component(PluginConfig),
}

/// The plugins of the list in one generation of the catalog.
struct ResolvedPlugins {
    generation: u64,
    plugins: Result<Plugins, PluginError>,
}

impl ConfiguredPlugins {
    /// Creates the plugins of `list`. `registered` are usually `Extensions::plugins`.
    ///
    /// # Errors
    /// If a plugin is unknown, does not accept its arguments, or has the name of another.
    pub fn new(
        list: &[PluginConfig],
        registered: &Factories<Arc<dyn Plugin>>,
        catalog: Arc<dyn CatalogSource>,
    ) -> Result<Self, PluginError> {
        let plugins = Self::new_while_loading(list, registered, catalog)?;
        if let Err(error) = &plugins.state().resolved.plugins {
            return Err(error.clone());
        }
        Ok(plugins)
    }

    /// As [`ConfiguredPlugins::new`] while components are loading: a component's plugin may be missing. New runs
    /// fail until it is loaded.
    ///
    /// # Errors
    /// If a registered plugin does not accept its arguments.
    pub fn new_while_loading(
        list: &[PluginConfig],
        registered: &Factories<Arc<dyn Plugin>>,
        catalog: Arc<dyn CatalogSource>,
    ) -> Result<Self, PluginError> {
        let list = PluginList::create(list, registered, None)?;
        let resolved = list.resolve(registered, catalog.as_ref());
        let state = Mutex::new(PluginState { list, resolved, replaced: Vec::new() });
        Ok(Self { registered: registered.clone(), catalog, state })
    }

    /// Creates the plugins of another list for [`ConfiguredPlugins::replace`]. Plugins that this list has with the same
    /// arguments are kept.
    ///
    /// # Errors
    /// If a plugin is unknown, does not accept its arguments, or has the name of another.
    pub fn prepare(&self, list: &[PluginConfig]) -> Result<PluginList, PluginError> {
        let list = PluginList::create(list, &self.registered, Some(&self.state().list))?;
        list.resolve(&self.registered, self.catalog.as_ref()).plugins?;
        Ok(list)
    }

    /// Replaces the list. Runs keep the plugins that they have started with, which are closed when they have ended.
    pub fn replace(&self, list: PluginList) {
        let mut state = self.state();
        let resolved = list.resolve(&self.registered, self.catalog.as_ref());
        if let Ok(before) = &state.resolved.plugins {
            close_replaced(before, resolved.plugins.as_ref().ok());
        }
        let before = std::mem::replace(&mut state.list, list);
        let is_kept = |plugin: &Arc<dyn Plugin>| state.list.native_plugins().any(|kept| Arc::ptr_eq(kept, plugin));
        let removed: Vec<_> = before.native_plugins().filter(|plugin| !is_kept(plugin)).cloned().collect();
        state.replaced.extend(removed);
        state.resolved = resolved;
    }

    /// Returns the names of the plugins in order. Empty if one is missing.
    pub fn names(&self) -> Vec<String> {
        match &self.state().resolved.plugins {
            Ok(plugins) => plugins.iter().map(|plugin| plugin.name().into()).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Returns the reason why new runs are rejected: a missing plugin. `None` if all are available.
    pub fn problem(&self) -> Option<PluginError> {
        self.state().resolved.plugins.as_ref().err().cloned()
    }

    fn state(&self) -> MutexGuard<'_, PluginState> {
        self.state.lock_unpoisoned()
    }
}

impl PluginList {
    /// Creates the registered plugins of a list. Plugins of `before` with the same arguments are kept.
    fn create(
        list: &[PluginConfig],
        registered: &Factories<Arc<dyn Plugin>>,
        before: Option<&Self>,
    ) -> Result<Self, PluginError> {
        let kept = |config: &PluginConfig| {
            before?.0.iter().find_map(|entry| match entry {
                Entry::Registered { config: earlier, plugin } if earlier == config => Some(Ok(plugin.clone())),
                Entry::Registered { .. } | Entry::Component(_) => None,
            })
        };
        let entry = |(index, config): (usize, &PluginConfig)| match kept(config).or_else(|| create(registered, config))
        {
            Some(Ok(plugin)) => Ok(Entry::Registered { config: config.clone(), plugin }),
            Some(Err(reason)) => Err(PluginError { index, name: config.name.clone(), reason }),
            None => Ok(Entry::Component(config.clone())),
        };
        Ok(Self(list.iter().enumerate().map(entry).collect::<Result<_, _>>()?))
    }

    fn native_plugins(&self) -> impl Iterator<Item = &Arc<dyn Plugin>> {
        self.0.iter().filter_map(|entry| match entry {
            Entry::Registered { plugin, .. } => Some(plugin),
            Entry::Component(_) => None,
        })
    }

    fn resolve(&self, registered: &Factories<Arc<dyn Plugin>>, catalog: &dyn CatalogSource) -> ResolvedPlugins {
        let CatalogSnapshot { generation, resolver } = catalog.snapshot();
        ResolvedPlugins { generation, plugins: resolve(&self.0, registered, resolver.as_ref()) }
    }
}

#[async_trait]
impl PluginSource for ConfiguredPlugins {
    fn current(&self) -> Result<Plugins, RunError> {
        let mut state = self.state();
        if state.resolved.generation != self.catalog.snapshot().generation {
            let resolved = state.list.resolve(&self.registered, self.catalog.as_ref());
            match (&state.resolved.plugins, &resolved.plugins) {
                (Ok(_), Err(error)) => tracing::error!("{error}; new runs are rejected until it is available"),
                (Err(_), Ok(_)) => tracing::info!("all plugins are available again"),
                (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
            }
            if let Ok(replaced) = &state.resolved.plugins {
                close_replaced(replaced, resolved.plugins.as_ref().ok());
            }
            state.resolved = resolved;
        }
        close_all(state.replaced.extract_if(.., |plugin| Arc::strong_count(plugin) == 1));
        let missing =
            |error: &PluginError| RunError::PluginMissing { plugin: error.name.clone(), reason: error.reason.clone() };
        state.resolved.plugins.as_ref().cloned().map_err(missing)
    }

    /// Closes registered plugins, and the current plugins of components.
    async fn close(&self) {
        let mut plugins: Vec<Arc<dyn Plugin>> = {
            let mut state = self.state();
            let replaced = std::mem::take(&mut state.replaced);
            replaced.into_iter().chain(state.list.native_plugins().cloned()).collect()
        };
        if let Ok(resolved) = &self.state().resolved.plugins {
            plugins.extend(resolved.iter().filter(|plugin| plugin.info().component.is_some()).cloned());
        }
        for plugin in plugins {
            plugin.close().await;
        }
    }
}

/// Closes component plugins that were removed or replaced, each in its own task. Runs that still use them continue.
fn close_replaced(replaced: &Plugins, now: Option<&Plugins>) {
    let is_replaced = |plugin: &&Arc<dyn Plugin>| {
        let info = plugin.info();
        let is_current = || now.is_some_and(|now| now.iter().any(|other| other.info() == info));
        info.component.is_some() && !is_current()
    };
    close_all(replaced.iter().filter(is_replaced).cloned());
}

/// Closes plugins, each in its own task.
fn close_all(plugins: impl Iterator<Item = Arc<dyn Plugin>>) {
    let runtime = tokio::runtime::Handle::try_current();
    for plugin in plugins {
        if let Ok(runtime) = &runtime {
            runtime.spawn(async move { plugin.close().await });
        }
    }
}

/// Creates a registered plugin. `None` if the name is not registered.
fn create(registered: &Factories<Arc<dyn Plugin>>, plugin: &PluginConfig) -> Option<Result<Arc<dyn Plugin>, String>> {
    let created = registered.create(&plugin.name, plugin.args.clone())?;
    Some(created.map_err(|reason| format!("plugin `{}`: {reason}", plugin.name)))
}

fn resolve(
    entries: &[Entry],
    registered: &Factories<Arc<dyn Plugin>>,
    resolver: &dyn ItemResolver,
) -> Result<Plugins, PluginError> {
    let mut plugins: Vec<Arc<dyn Plugin>> = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let (plugin, name) = match entry {
            Entry::Registered { plugin, .. } => (plugin.clone(), plugin.name()),
            Entry::Component(PluginConfig { name, args }) => {
                let plugin = resolver.plugin(name, args.clone()).map_err(|error| {
                    let reason = with_registered(error, registered).to_string();
                    PluginError { index, name: name.clone(), reason }
                })?;
                (plugin, name.as_str())
            }
        };
        if let Some(earlier) = plugins.iter().position(|earlier| earlier.name() == plugin.name()) {
            let reason = format!("plugin `{}` is plugins[{earlier}] already; leave one of them out", plugin.name());
            return Err(PluginError { index, name: name.into(), reason });
        }
        plugins.push(plugin);
    }
    Ok(Plugins::new_unchecked(plugins))
}

/// Adds the names of registered plugins to the names in the error for an unknown name.
fn with_registered(error: ResolveError, registered: &Factories<Arc<dyn Plugin>>) -> ResolveError {
    match error {
        ResolveError::Unknown { kind, name, known } => {
            let others = known.into_iter().filter(|name| !registered.contains(name));
            let known = registered.names().map(Into::into).chain(others).collect();
            ResolveError::Unknown { kind, name, known }
        }
        error @ (ResolveError::Ambiguous { .. }
        | ResolveError::Unusable { .. }
        | ResolveError::MissingGrants { .. }) => error,
    }
}

impl PluginConfig {
    /// Checks the arguments if the plugin is in `registered`.
    ///
    /// # Errors
    /// Returns the reason if they are not accepted.
    pub fn check(&self, registered: &Factories<Arc<dyn Plugin>>) -> Result<(), String> {
        create(registered, self).map_or(Ok(()), |plugin| plugin.map(|_| ()))
    }

    /// Checks the arguments of a plugin that comes with the engine.
    fn validate<E: de::Error>(self) -> Result<Self, E> {
        self.check(builtin::plugins()).map_err(E::custom)?;
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for PluginConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PluginVisitor)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginWithArgs {
    name: String,
    #[serde(default)]
    args: JsonMap,
}

struct PluginVisitor;

impl<'de> Visitor<'de> for PluginVisitor {
    type Value = PluginConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a plugin, or a mapping of `name` and `args`")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<PluginConfig, E> {
        PluginConfig { name: name.into(), args: JsonMap::new() }.validate()
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PluginConfig, A::Error> {
        let PluginWithArgs { name, args } = Deserialize::deserialize(MapAccessDeserializer::new(map))?;
        PluginConfig { name, args }.validate()
    }
}
