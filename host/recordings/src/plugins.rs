//! Registration of the plugins by name.

use std::sync::Arc;

use hatchery_core::Plugin;
use hatchery_engine::Factories;

use crate::{Recorder, Replayer};

/// The names under which [`register`] registers the plugins. Their argument `folder` is a path.
pub const PLUGIN_NAMES: [&str; 3] = ["recorder", "adk_replay", "replay"];

/// Registers [`Recorder`] as `recorder`, and [`Replayer`] as `adk_replay` and `replay`.
pub fn register(plugins: &mut Factories<Arc<dyn Plugin>>) {
    plugins.register("recorder", |args| into_plugin(Recorder::from_args(args)));
    plugins.register("adk_replay", |args| into_plugin(Replayer::from_args(args)));
    plugins.register_alias("replay", "adk_replay");
}

fn into_plugin(plugin: Result<impl Plugin + 'static, serde_json::Error>) -> Result<Arc<dyn Plugin>, String> {
    plugin.map(|plugin| Arc::new(plugin) as Arc<dyn Plugin>).map_err(|error| error.to_string())
}
