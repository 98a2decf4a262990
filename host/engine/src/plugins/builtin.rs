//! The registry of plugins that come with the engine.

use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock};

use hatchery_core::{Instruction, JsonMap, Plugin};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ContextFilter, GlobalInstruction, Logging, ReflectAndRetry};
use crate::factories::Factories;

static PLUGINS: LazyLock<Factories<Arc<dyn Plugin>>> = LazyLock::new(|| {
    let mut plugins = Factories::default();
    plugins.register("logging", |args| parse(args).map(|NoArgs {}| Arc::new(Logging) as Arc<dyn Plugin>));
    plugins.register("global_instruction", |args| parse(args).and_then(GlobalInstructionArgs::plugin));
    plugins.register("context_filter", |args| parse(args).map(ContextFilterArgs::plugin));
    plugins.register("reflect_and_retry", |args| parse(args).map(ReflectAndRetryArgs::plugin));
    // Names of the same plugins in ADK.
    plugins.register_alias("logging_plugin", "logging");
    plugins.register_alias("context_filter_plugin", "context_filter");
    plugins.register_alias("reflect_and_retry_plugin", "reflect_and_retry");
    plugins.register_alias("reflect_retry_tool_plugin", "reflect_and_retry");
    plugins
});

/// Returns the plugins that come with the engine.
pub(crate) fn plugins() -> &'static Factories<Arc<dyn Plugin>> {
    &PLUGINS
}

fn parse<T: DeserializeOwned>(args: JsonMap) -> Result<T, String> {
    serde_json::from_value(Value::Object(args)).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GlobalInstructionArgs {
    /// A template, as an agent's own instruction.
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
    /// Number of turns that models are sent.
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
    /// Number of retries of each tool after consecutive failures.
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
