//! Plugins of the host by name, and their configuration in `hatchery.yaml`.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use hatchery_core::Plugin;
use hatchery_engine::plugins::PluginConfig;
use hatchery_engine::{Extensions, Factories};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

static PLUGINS: LazyLock<Factories<Arc<dyn Plugin>>> = LazyLock::new(|| {
    let mut plugins = Extensions::builtin().plugins;
    hatchery_recordings::register(&mut plugins);
    plugins
});

/// Returns the plugins of the engine and those for recordings.
pub fn factories() -> &'static Factories<Arc<dyn Plugin>> {
    &PLUGINS
}

/// Returns the argument `folder` of a plugin for recordings.
pub(crate) fn folder(plugin: &PluginConfig) -> Option<&Path> {
    match plugin.args.get("folder") {
        Some(Value::String(path)) if has_folder(&plugin.name) => Some(Path::new(path)),
        _ => None,
    }
}

/// Resolves the argument `folder` of a plugin for recordings against `base`.
pub(crate) fn resolve_folder(plugin: &mut PluginConfig, base: &Path) {
    if has_folder(&plugin.name)
        && let Some(Value::String(path)) = plugin.args.get_mut("folder")
    {
        *path = base.join(&*path).display().to_string();
    }
}

fn has_folder(name: &str) -> bool {
    hatchery_recordings::PLUGIN_NAMES.contains(&name)
}

/// Deserializes a list of plugins and checks the arguments of registered ones.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PluginConfig>, D::Error> {
    let plugins: Vec<CheckedPlugin> = Deserialize::deserialize(deserializer)?;
    Ok(plugins.into_iter().map(|CheckedPlugin(plugin)| plugin).collect())
}

struct CheckedPlugin(PluginConfig);

impl<'de> Deserialize<'de> for CheckedPlugin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let plugin = PluginConfig::deserialize(deserializer)?;
        plugin.check(factories()).map_err(de::Error::custom)?;
        Ok(Self(plugin))
    }
}
