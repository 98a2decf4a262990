//! Plugins: the list of a runner, its source, and the plugins that come with the engine.

pub mod config;

mod builtin;
mod chain;
mod context_filter;
mod global_instruction;
mod logging;
mod reflect_and_retry;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Callbacks, Content, Event, EventData, Invocation, Model, ModelError, Plugin, RunError, Tool,
    remove_proof,
};
use thiserror::Error;
use tokio::time::sleep;

pub(crate) use builtin::plugins as builtin_plugins;
pub(crate) use chain::HookChain;
pub use config::{ConfiguredPlugins, PluginConfig};
pub use context_filter::ContextFilter;
pub use global_instruction::GlobalInstruction;
pub use logging::Logging;
pub use reflect_and_retry::ReflectAndRetry;

use crate::deadline::Deadline;

/// Timeout of `on_run_error` of a plugin once the run is cancelled.
const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_millis(25);

/// Plugins in the order in which they run. A run can be cancelled while a hook waits. Cheap to clone.
#[derive(Clone, Default)]
pub struct Plugins {
    plugins: Arc<[Arc<dyn Plugin>]>,
}

/// Source of a runner's plugins. It is read at the start of each run, and the run keeps these plugins.
#[async_trait]
pub trait PluginSource: Send + Sync {
    /// Returns the plugins for a run that starts now.
    ///
    /// # Errors
    /// If one of them is missing. The run does not start then, since the plugin might be a filter.
    fn current(&self) -> Result<Plugins, RunError>;

    /// Closes all plugins: no run follows.
    async fn close(&self);
}

/// A fixed list.
#[async_trait]
impl PluginSource for Plugins {
    fn current(&self) -> Result<Plugins, RunError> {
        Ok(self.clone())
    }

    async fn close(&self) {
        for plugin in self.iter() {
            plugin.close().await;
        }
    }
}

/// The plugins of another source after one more.
pub(crate) struct PrependedPlugin {
    pub(crate) plugin: Arc<dyn Plugin>,
    pub(crate) rest: Arc<dyn PluginSource>,
}

#[async_trait]
impl PluginSource for PrependedPlugin {
    fn current(&self) -> Result<Plugins, RunError> {
        Ok(self.rest.current()?.prepend(self.plugin.clone()))
    }

    async fn close(&self) {
        self.plugin.close().await;
        self.rest.close().await;
    }
}

/// Two plugins have the same name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("Plugin with name '{0}' already registered.")]
pub struct DuplicatePlugin(pub String);

impl Plugins {
    /// Creates a list in this order.
    ///
    /// # Errors
    /// If two have the same name.
    pub fn new(plugins: Vec<Arc<dyn Plugin>>) -> Result<Self, DuplicatePlugin> {
        for (index, plugin) in plugins.iter().enumerate() {
            if plugins.iter().take(index).any(|earlier| earlier.name() == plugin.name()) {
                return Err(DuplicatePlugin(plugin.name().into()));
            }
        }
        Ok(Self::new_unchecked(plugins))
    }

    pub(crate) fn new_unchecked(plugins: Vec<Arc<dyn Plugin>>) -> Self {
        Self { plugins: plugins.into() }
    }

    /// Returns the plugins in order, without copying them.
    pub(crate) fn to_arc(&self) -> Arc<[Arc<dyn Plugin>]> {
        self.plugins.clone()
    }

    /// Returns the plugins in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Plugin>> {
        self.plugins.iter()
    }

    /// Returns the list with one more plugin at the front. It replaces a plugin of the same name.
    #[must_use]
    pub fn prepend(&self, plugin: Arc<dyn Plugin>) -> Self {
        let others = self.plugins.iter().filter(|other| other.name() != plugin.name()).cloned();
        Self::new_unchecked(std::iter::once(plugin.clone()).chain(others).collect())
    }

    /// Returns the plugins that also run in agents that are called as tools.
    pub(crate) fn for_agent_tools(&self) -> Vec<Arc<dyn Plugin>> {
        self.iter().filter(|plugin| plugin.follows_into_tools()).cloned().collect()
    }

    /// Returns the plugin of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Plugin>> {
        self.iter().find(|plugin| plugin.name() == name)
    }

    /// Returns the hooks of an agent that has these callbacks.
    pub(crate) fn chain(&self, callbacks: &Callbacks) -> HookChain {
        HookChain { plugins: self.plugins.clone(), callbacks: Some(callbacks.clone()) }
    }

    /// Returns the hooks of calls that only plugins see.
    pub(crate) fn chain_without_callbacks(&self) -> HookChain {
        HookChain { plugins: self.plugins.clone(), callbacks: None }
    }

    pub(crate) async fn on_user_message(
        &self,
        cx: &CallContext,
        message: &Content,
    ) -> Result<Option<Content>, RunError> {
        for plugin in self.iter() {
            if let Some(replacement) = run_cancellable(cx, plugin.on_user_message(cx, message)).await? {
                return Ok(Some(replacement));
            }
        }
        Ok(None)
    }

    pub(crate) async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        for plugin in self.iter() {
            if let Some(answer) = run_cancellable(cx, plugin.before_run(cx)).await? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// Returns the event that replaces `event`. Its id, invocation and time are the same.
    pub(crate) async fn on_event(&self, cx: &CallContext, event: &Event) -> Result<Option<Arc<Event>>, RunError> {
        for plugin in self.iter() {
            if let Some(data) = run_cancellable(cx, plugin.on_event(cx, event)).await? {
                return Ok(Some(Event::new(replacement(cx, event, data))));
            }
        }
        Ok(None)
    }

    /// Returns the model after all plugins have wrapped or replaced it.
    pub(crate) fn model(
        &self,
        cx: &CallContext,
        name: &str,
        resolved: Result<Arc<dyn Model>, ModelError>,
    ) -> Result<Arc<dyn Model>, ModelError> {
        self.plugins.iter().rev().fold(resolved, |resolved, plugin| plugin.model(cx, name, resolved))
    }

    /// Returns the tool after all plugins have wrapped or replaced it.
    pub(crate) fn tool(&self, cx: &CallContext, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        self.plugins.iter().rev().fold(tool, |tool, plugin| plugin.tool(cx, tool))
    }

    pub(crate) async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        for plugin in self.iter() {
            run_cancellable(cx, plugin.after_run(cx)).await?;
        }
        Ok(())
    }

    pub(crate) async fn on_run_error(&self, cx: &CallContext, error: &RunError, deadline: Deadline) {
        for plugin in self.iter() {
            let out_of_time = async {
                cx.invocation.cancel.cancelled().await;
                sleep(SHUTDOWN_GRACE_PERIOD).await;
            };
            tokio::select! {
                biased;
                () = plugin.on_run_error(cx, error) => {}
                () = out_of_time => {}
                () = deadline.wait_for_report_end() => {}
            }
        }
    }
}

/// Returns the event that replaces `event`. It is signed if `event` is signed and the author is the same, so that the
/// proof covers the stored event.
fn replacement(cx: &CallContext, event: &Event, data: EventData) -> EventData {
    let Invocation { signer, session_key, run_config, .. } = cx.invocation.as_ref();
    let mut data = EventData {
        id: event.id.clone(),
        invocation_id: event.invocation_id.clone(),
        partial: event.partial,
        timestamp: event.timestamp,
        ..data
    };
    data.actions.state_delta = cx.invocation.apply_temp_state(std::mem::take(&mut data.actions.state_delta));
    let changed = data.actions.compaction.take();
    if let Some(summary) = &event.actions.compaction {
        // The events that it covers are for the host to decide.
        let mut summary = summary.clone();
        if let Some(changed) = changed {
            summary.compacted_content = changed.compacted_content;
        }
        data.actions.compaction = Some(summary);
    } else if changed.is_some() {
        tracing::warn!(invocation = %event.invocation_id, "a plugin set `actions.compaction` of an event; it is ignored, since only the host compacts sessions");
    }
    match signer.claim(session_key, event).filter(|_| data.author == event.author) {
        Some(claim) => signer.sign(session_key, &mut data, claim),
        None => remove_proof(&mut data),
    }
    run_config.add_custom_metadata(&mut data);
    data
}

/// Runs a hook until it returns or the run is cancelled.
async fn run_cancellable<T>(cx: &CallContext, hook: impl Future<Output = Result<T, RunError>>) -> Result<T, RunError> {
    tokio::select! {
        biased;
        result = hook => result,
        () = cx.invocation.cancel.cancelled() => Err(RunError::Cancelled),
    }
}
