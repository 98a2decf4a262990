//! Plugins as an operator lists them: by name and with arguments, those that come with the engine and those of components.
//!
//! A plugin of a component is the one that serves when a run begins. When there is none any more, no run begins until it is back.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{Instruction, ItemResolver, JsonMap, Plugin, ResolveError, RunError};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use thiserror::Error;

use crate::catalog_source::{CatalogSnapshot, CatalogSource};

use super::{ContextFilter, GlobalInstruction, Logging, PluginSource, Plugins, Recorder, ReflectAndRetry, Replayer};

/// The plugins that come with the engine, by the names that lists use.
pub const BUILTIN_NAMES: [&str; 6] =
    ["logging", "global_instruction", "context_filter", "reflect_and_retry", "recorder", "adk_replay"];

/// A plugin in a list: `name`, or `{name, args}`. Arguments of a plugin that comes with the engine are checked when this is read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PluginConfig {
    /// A name of [`BUILTIN_NAMES`], or of a component's plugin.
    pub name: String,
    /// What the plugin is made with.
    pub args: JsonMap,
}

/// Why the plugins of a list cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("plugins[{index}]: {reason}")]
pub struct PluginError {
    /// Its place in the list, from 0.
    pub index: usize,
    /// Its name in the list.
    pub name: String,
    /// What is wrong, and what there is instead.
    pub reason: String,
}

/// The plugins of a list. Those of components are looked up anew when what is loaded has changed; those of the engine stay the same.
pub struct ConfiguredPlugins {
    listed: Vec<Listed>,
    catalog: Arc<dyn CatalogSource>,
    found: Mutex<Found>,
}

/// A plugin of the list.
enum Listed {
    Builtin(Arc<dyn Plugin>),
    OfComponent(PluginConfig),
}

/// What the names of the list stand for.
struct Found {
    /// In what was loaded under this number.
    generation: u64,
    plugins: Result<Plugins, PluginError>,
}

impl ConfiguredPlugins {
    /// The plugins of `list`; `loaded` tells what is loaded whenever it is asked.
    ///
    /// # Errors
    /// When one of them is not there now, does not take its arguments, or has the name of another.
    pub fn new(list: &[PluginConfig], catalog: Arc<dyn CatalogSource>) -> Result<Self, PluginError> {
        let plugins = Self::while_loading(list, catalog)?;
        if let Err(error) = &plugins.found().plugins {
            return Err(error.clone());
        }
        Ok(plugins)
    }

    /// As [`ConfiguredPlugins::new`] while components are still being loaded: one of theirs may be missing. No run begins before it is
    /// there.
    ///
    /// # Errors
    /// When one that comes with the engine does not take its arguments.
    pub fn while_loading(list: &[PluginConfig], catalog: Arc<dyn CatalogSource>) -> Result<Self, PluginError> {
        let listed = list.iter().enumerate().map(|(index, plugin)| match builtin(&plugin.name, &plugin.args) {
            Some(Ok(plugin)) => Ok(Listed::Builtin(plugin)),
            Some(Err(reason)) => Err(PluginError { index, name: plugin.name.clone(), reason }),
            None => Ok(Listed::OfComponent(plugin.clone())),
        });
        let listed = listed.collect::<Result<Vec<_>, _>>()?;
        let CatalogSnapshot { generation, resolver } = catalog.snapshot();
        let plugins = find(&listed, resolver.as_ref());
        let found = Mutex::new(Found { generation, plugins });
        Ok(Self { listed, catalog, found })
    }

    /// The names by which the plugins know themselves, in order.
    pub fn names(&self) -> Vec<String> {
        match &self.found().plugins {
            Ok(plugins) => plugins.iter().map(|plugin| plugin.name().into()).collect(),
            Err(_) => Vec::new(),
        }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock_unpoisoned()
    }
}

#[async_trait]
impl PluginSource for ConfiguredPlugins {
    fn current(&self) -> Result<Plugins, RunError> {
        let CatalogSnapshot { generation, resolver } = self.catalog.snapshot();
        let mut found = self.found();
        if found.generation != generation {
            let plugins = find(&self.listed, resolver.as_ref());
            match (&found.plugins, &plugins) {
                (Ok(_), Err(error)) => tracing::error!("{error}; no run begins before it is back"),
                (Err(_), Ok(_)) => tracing::info!("all plugins are there again"),
                (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
            }
            *found = Found { generation, plugins };
        }
        let missing =
            |error: &PluginError| RunError::PluginMissing { plugin: error.name.clone(), reason: error.reason.clone() };
        found.plugins.as_ref().cloned().map_err(missing)
    }

    /// Components have nothing to close: their code ends with each run.
    async fn close(&self) {
        for plugin in &self.listed {
            match plugin {
                Listed::Builtin(plugin) => plugin.close().await,
                Listed::OfComponent(_) => {}
            }
        }
    }
}

fn find(listed: &[Listed], lookup: &dyn ItemResolver) -> Result<Plugins, PluginError> {
    let mut found: Vec<Arc<dyn Plugin>> = Vec::with_capacity(listed.len());
    for (index, plugin) in listed.iter().enumerate() {
        let (plugin, name) = match plugin {
            Listed::Builtin(plugin) => (plugin.clone(), plugin.name()),
            Listed::OfComponent(PluginConfig { name, args }) => {
                let plugin = lookup.plugin(name, args.clone()).map_err(|error| {
                    let reason = with_builtins(error).to_string();
                    PluginError { index, name: name.clone(), reason }
                })?;
                (plugin, name.as_str())
            }
        };
        if let Some(earlier) = found.iter().position(|earlier| earlier.name() == plugin.name()) {
            let reason = format!("plugin `{}` is plugins[{earlier}] already; leave one of them out", plugin.name());
            return Err(PluginError { index, name: name.into(), reason });
        }
        found.push(plugin);
    }
    Ok(Plugins::new_unchecked(found))
}

/// A name that is found nowhere could have been one of ours.
fn with_builtins(error: ResolveError) -> ResolveError {
    match error {
        ResolveError::Unknown { kind, name, known } => {
            let known = BUILTIN_NAMES.iter().map(|name| (*name).to_owned()).chain(known).collect();
            ResolveError::Unknown { kind, name, known }
        }
        error @ (ResolveError::Ambiguous { .. } | ResolveError::Unusable { .. }) => error,
    }
}

/// The plugin of this name that comes with the engine; nothing when there is none.
fn builtin(name: &str, args: &JsonMap) -> Option<Result<Arc<dyn Plugin>, String>> {
    let made = match name {
        "logging" | "logging_plugin" => parse(args).map(|NoArgs {}| Arc::new(Logging) as Arc<dyn Plugin>),
        "global_instruction" => parse(args).and_then(GlobalInstructionArgs::plugin),
        "context_filter" | "context_filter_plugin" => parse(args).map(ContextFilterArgs::plugin),
        "reflect_and_retry" | "reflect_and_retry_plugin" => parse(args).map(ReflectAndRetryArgs::plugin),
        "recorder" => recordings(Recorder::from_args(args.clone())),
        "adk_replay" | "replay" => recordings(Replayer::from_args(args.clone())),
        _ => return None,
    };
    Some(made.map_err(|reason| format!("plugin `{name}`: {reason}")))
}

fn recordings(made: Result<impl Plugin + 'static, serde_json::Error>) -> Result<Arc<dyn Plugin>, String> {
    made.map(|plugin| Arc::new(plugin) as Arc<dyn Plugin>).map_err(|error| error.to_string())
}

fn parse<T: DeserializeOwned>(args: &JsonMap) -> Result<T, String> {
    serde_json::from_value(Value::Object(args.clone())).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GlobalInstructionArgs {
    /// A template, as an agent's own instruction is.
    instruction: String,
}

impl GlobalInstructionArgs {
    fn plugin(self) -> Result<Arc<dyn Plugin>, String> {
        if self.instruction.trim().is_empty() {
            return Err("`instruction` is empty".into());
        }
        Ok(Arc::new(GlobalInstruction::new(Instruction::Template(self.instruction))))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextFilterArgs {
    /// How many turns models are sent.
    turns: NonZeroUsize,
}

impl ContextFilterArgs {
    fn plugin(self) -> Arc<dyn Plugin> {
        Arc::new(ContextFilter::new(self.turns))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReflectAndRetryArgs {
    /// How often in a row each tool may fail and be tried again.
    max_retries: u32,
}

impl Default for ReflectAndRetryArgs {
    fn default() -> Self {
        Self { max_retries: 3 }
    }
}

impl ReflectAndRetryArgs {
    fn plugin(self) -> Arc<dyn Plugin> {
        Arc::new(ReflectAndRetry::new(self.max_retries))
    }
}

impl PluginConfig {
    /// The folder in the arguments of a plugin that comes with the engine.
    pub fn folder(&self) -> Option<&Path> {
        match (self.name.as_str(), self.args.get("folder")) {
            ("recorder" | "adk_replay" | "replay", Some(Value::String(path))) => Some(Path::new(path)),
            _ => None,
        }
    }

    /// Puts relative paths in the arguments of a plugin that comes with the engine below `folder`.
    pub fn resolve_paths(&mut self, folder: &Path) {
        if let ("recorder" | "adk_replay" | "replay", Some(Value::String(path))) =
            (self.name.as_str(), self.args.get_mut("folder"))
        {
            *path = folder.join(&*path).display().to_string();
        }
    }

    /// This, when its arguments are right as far as one can know.
    fn checked<E: de::Error>(self) -> Result<Self, E> {
        match builtin(&self.name, &self.args) {
            Some(Err(reason)) => Err(E::custom(reason)),
            Some(Ok(_)) | None => Ok(self),
        }
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
        PluginConfig { name: name.into(), args: JsonMap::new() }.checked()
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PluginConfig, A::Error> {
        let PluginWithArgs { name, args } = Deserialize::deserialize(MapAccessDeserializer::new(map))?;
        PluginConfig { name, args }.checked()
    }
}
