//! Plugins from configuration: a list of names with arguments.
//!
//! A name is that of a registered plugin or of a component's plugin. A component's plugin is resolved at the start of
//! each run. If it is missing, no run starts until it is back.

use std::fmt;
use std::sync::{Arc, Mutex};

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

/// The plugins of a list. Registered plugins are created once. Plugins of components are resolved again when the
/// catalog's generation changes.
pub struct ConfiguredPlugins {
    entries: Vec<Entry>,
    /// Names of registered plugins, for messages.
    registered: Vec<String>,
    catalog: Arc<dyn CatalogSource>,
    resolved: Mutex<ResolvedPlugins>,
}

enum Entry {
    Registered(Arc<dyn Plugin>),
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
        let plugins = Self::while_loading(list, registered, catalog)?;
        if let Err(error) = &plugins.resolved.lock_unpoisoned().plugins {
            return Err(error.clone());
        }
        Ok(plugins)
    }

    /// As [`ConfiguredPlugins::new`] while components are loading: a component's plugin may be missing. No run starts
    /// before it is loaded.
    ///
    /// # Errors
    /// If a registered plugin does not accept its arguments.
    pub fn while_loading(
        list: &[PluginConfig],
        registered: &Factories<Arc<dyn Plugin>>,
        catalog: Arc<dyn CatalogSource>,
    ) -> Result<Self, PluginError> {
        let entry = |(index, plugin): (usize, &PluginConfig)| match create(registered, plugin) {
            Some(Ok(plugin)) => Ok(Entry::Registered(plugin)),
            Some(Err(reason)) => Err(PluginError { index, name: plugin.name.clone(), reason }),
            None => Ok(Entry::Component(plugin.clone())),
        };
        let entries = list.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>()?;
        let registered: Vec<String> = registered.names().map(Into::into).collect();
        let CatalogSnapshot { generation, resolver } = catalog.snapshot();
        let plugins = resolve(&entries, &registered, resolver.as_ref());
        let resolved = Mutex::new(ResolvedPlugins { generation, plugins });
        Ok(Self { entries, registered, catalog, resolved })
    }

    /// Returns the names of the plugins in order. Empty if one is missing.
    pub fn names(&self) -> Vec<String> {
        match &self.resolved.lock_unpoisoned().plugins {
            Ok(plugins) => plugins.iter().map(|plugin| plugin.name().into()).collect(),
            Err(_) => Vec::new(),
        }
    }
}

#[async_trait]
impl PluginSource for ConfiguredPlugins {
    fn current(&self) -> Result<Plugins, RunError> {
        let CatalogSnapshot { generation, resolver } = self.catalog.snapshot();
        let mut resolved = self.resolved.lock_unpoisoned();
        if resolved.generation != generation {
            let plugins = resolve(&self.entries, &self.registered, resolver.as_ref());
            match (&resolved.plugins, &plugins) {
                (Ok(_), Err(error)) => tracing::error!("{error}; no run starts until it is available"),
                (Err(_), Ok(_)) => tracing::info!("all plugins are available again"),
                (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
            }
            if let Ok(replaced) = &resolved.plugins {
                close_replaced(replaced, plugins.as_ref().ok());
            }
            *resolved = ResolvedPlugins { generation, plugins };
        }
        let missing =
            |error: &PluginError| RunError::PluginMissing { plugin: error.name.clone(), reason: error.reason.clone() };
        resolved.plugins.as_ref().cloned().map_err(missing)
    }

    /// Closes registered plugins, and those of components as they are now.
    async fn close(&self) {
        let registered = self.entries.iter().filter_map(|entry| match entry {
            Entry::Registered(plugin) => Some(plugin.clone()),
            Entry::Component(_) => None,
        });
        let mut plugins: Vec<Arc<dyn Plugin>> = registered.collect();
        if let Ok(resolved) = &self.resolved.lock_unpoisoned().plugins {
            plugins.extend(resolved.iter().filter(|plugin| plugin.info().component.is_some()).cloned());
        }
        for plugin in plugins {
            plugin.close().await;
        }
    }
}

/// Closes the plugins of components that are gone or have another revision now, in tasks of their own. Runs that still
/// use them continue.
fn close_replaced(replaced: &Plugins, now: Option<&Plugins>) {
    let is_replaced = |plugin: &&Arc<dyn Plugin>| {
        let info = plugin.info();
        let is_current = || now.is_some_and(|now| now.iter().any(|other| other.info() == info));
        info.component.is_some() && !is_current()
    };
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    for plugin in replaced.iter().filter(is_replaced) {
        let plugin = plugin.clone();
        runtime.spawn(async move { plugin.close().await });
    }
}

/// Creates a registered plugin. `None` if the name is not registered.
fn create(registered: &Factories<Arc<dyn Plugin>>, plugin: &PluginConfig) -> Option<Result<Arc<dyn Plugin>, String>> {
    let created = registered.create(&plugin.name, plugin.args.clone())?;
    Some(created.map_err(|reason| format!("plugin `{}`: {reason}", plugin.name)))
}

fn resolve(entries: &[Entry], registered: &[String], resolver: &dyn ItemResolver) -> Result<Plugins, PluginError> {
    let mut plugins: Vec<Arc<dyn Plugin>> = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let (plugin, name) = match entry {
            Entry::Registered(plugin) => (plugin.clone(), plugin.name()),
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

/// Adds the names of registered plugins to those of an unknown name's error.
fn with_registered(error: ResolveError, registered: &[String]) -> ResolveError {
    match error {
        ResolveError::Unknown { kind, name, known } => {
            let others = known.into_iter().filter(|name| !registered.contains(name));
            let known = registered.iter().cloned().chain(others).collect();
            ResolveError::Unknown { kind, name, known }
        }
        error @ (ResolveError::Ambiguous { .. } | ResolveError::Unusable { .. }) => error,
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
