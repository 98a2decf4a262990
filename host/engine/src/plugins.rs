//! The plugins of a runner, where a runner finds them, and those that come with the engine.

pub mod config;

mod callbacks;
mod context_filter;
mod global_instruction;
mod logging;
pub mod recordings;
mod reflect_and_retry;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Callback, Content, Event, EventData, Invocation, Model, ModelError, Plugin, RunError, Tool,
    remove_proof,
};
use thiserror::Error;
use tokio::time::sleep;

pub use callbacks::CallbackPlugin;
pub use config::{ConfiguredPlugins, PluginConfig};
pub use context_filter::ContextFilter;
pub use global_instruction::GlobalInstruction;
pub use logging::Logging;
pub use recordings::{Recorder, Replay};
pub use reflect_and_retry::ReflectAndRetry;

/// How long a plugin that is told of a run's failure may take once the run is cancelled.
const LAST_WORD: Duration = Duration::from_millis(25);

/// Plugins in the order in which they run. A hook that waits does not keep a run from being cancelled. Cheap to clone.
#[derive(Clone, Default)]
pub struct Plugins {
    plugins: Arc<[Arc<dyn Plugin>]>,
    /// The same, as what they are to agents.
    callbacks: Arc<[Arc<dyn Callback>]>,
}

/// Where a runner finds its plugins. It is asked at the begin of each run, and the run keeps what it got.
#[async_trait]
pub trait PluginSource: Send + Sync {
    /// The plugins of a run that begins now.
    ///
    /// # Errors
    /// When one of them is not there. The run does not begin then: what the plugin would have kept back must not get through.
    fn current(&self) -> Result<Plugins, RunError>;

    /// Tells all of them that no run will follow.
    async fn close(&self);
}

/// Always the same ones.
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

/// Those of another source, and one before them.
pub(crate) struct First {
    pub(crate) plugin: Arc<dyn Plugin>,
    pub(crate) rest: Arc<dyn PluginSource>,
}

#[async_trait]
impl PluginSource for First {
    fn current(&self) -> Result<Plugins, RunError> {
        Ok(self.rest.current()?.with_first(self.plugin.clone()))
    }

    async fn close(&self) {
        self.plugin.close().await;
        self.rest.close().await;
    }
}

/// Two plugins have one name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("Plugin with name '{0}' already registered.")]
pub struct DuplicatePlugin(pub String);

impl Plugins {
    /// These plugins, in this order.
    ///
    /// # Errors
    /// When two have the same name.
    pub fn new(plugins: Vec<Arc<dyn Plugin>>) -> Result<Self, DuplicatePlugin> {
        for (index, plugin) in plugins.iter().enumerate() {
            if plugins.iter().take(index).any(|earlier| earlier.name() == plugin.name()) {
                return Err(DuplicatePlugin(plugin.name().into()));
            }
        }
        Ok(Self::of_unique_names(plugins))
    }

    pub(crate) fn of_unique_names(plugins: Vec<Arc<dyn Plugin>>) -> Self {
        let callbacks = plugins.iter().map(|plugin| plugin.clone() as Arc<dyn Callback>).collect();
        Self { plugins: plugins.into(), callbacks }
    }

    /// The plugins in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Plugin>> {
        self.plugins.iter()
    }

    /// The same with one more, before the others and instead of the one that has its name.
    #[must_use]
    pub fn with_first(&self, plugin: Arc<dyn Plugin>) -> Self {
        let others = self.plugins.iter().filter(|other| other.name() != plugin.name()).cloned();
        Self::of_unique_names(std::iter::once(plugin.clone()).chain(others).collect())
    }

    /// Those that follow a run into agents which are called as tools.
    pub(crate) fn that_follow(&self) -> Vec<Arc<dyn Plugin>> {
        self.iter().filter(|plugin| plugin.follows_into_tools()).cloned().collect()
    }

    /// The plugin of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Plugin>> {
        self.iter().find(|plugin| plugin.name() == name)
    }

    /// The callbacks that are asked, in order: the plugins, then the agent's own.
    pub(crate) fn before<'a>(&'a self, own: &'a [Arc<dyn Callback>]) -> impl Iterator<Item = &'a Arc<dyn Callback>> {
        self.callbacks.iter().chain(own)
    }

    pub(crate) async fn on_user_message(
        &self,
        cx: &CallContext,
        message: &Content,
    ) -> Result<Option<Content>, RunError> {
        for plugin in self.iter() {
            if let Some(replacement) = or_cancelled(cx, plugin.on_user_message(cx, message)).await? {
                return Ok(Some(replacement));
            }
        }
        Ok(None)
    }

    pub(crate) async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        for plugin in self.iter() {
            if let Some(answer) = or_cancelled(cx, plugin.before_run(cx)).await? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// What takes the place of an event, under the same id, of the same invocation, at the same time.
    pub(crate) async fn on_event(&self, cx: &CallContext, event: &Event) -> Result<Option<Arc<Event>>, RunError> {
        for plugin in self.iter() {
            if let Some(data) = or_cancelled(cx, plugin.on_event(cx, event)).await? {
                return Ok(Some(Event::new(replacement(cx, event, data))));
            }
        }
        Ok(None)
    }

    /// What is asked in the place of a model.
    pub(crate) fn model(
        &self,
        cx: &CallContext,
        name: &str,
        found: Result<Arc<dyn Model>, ModelError>,
    ) -> Result<Arc<dyn Model>, ModelError> {
        self.plugins.iter().rev().fold(found, |found, plugin| plugin.model(cx, name, found))
    }

    /// What is called in the place of a tool.
    pub(crate) fn tool(&self, cx: &CallContext, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        self.plugins.iter().rev().fold(tool, |tool, plugin| plugin.tool(cx, tool))
    }

    pub(crate) async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        for plugin in self.iter() {
            or_cancelled(cx, plugin.after_run(cx)).await?;
        }
        Ok(())
    }

    pub(crate) async fn on_run_error(&self, cx: &CallContext, error: &RunError) {
        for plugin in self.iter() {
            let out_of_time = async {
                cx.invocation.cancel.cancelled().await;
                sleep(LAST_WORD).await;
            };
            tokio::select! {
                biased;
                () = plugin.on_run_error(cx, error) => {}
                () = out_of_time => {}
            }
        }
    }
}

/// Returns the event that replaces `event`. It is signed if `event` is and the author is the same: what is proven is what is
/// stored.
fn replacement(cx: &CallContext, event: &Event, data: EventData) -> EventData {
    let Invocation { signer, session_key, .. } = cx.invocation.as_ref();
    let mut data = EventData {
        id: event.id.clone(),
        invocation_id: event.invocation_id.clone(),
        partial: event.partial,
        timestamp: event.timestamp,
        ..data
    };
    data.actions.state_delta = cx.invocation.without_temp(std::mem::take(&mut data.actions.state_delta));
    if data.actions.compaction.take().is_some() {
        tracing::warn!(invocation = %event.invocation_id, "a plugin has put `actions.compaction` into an event; it is left out, since only the host summarizes");
    }
    match signer.claim(session_key, event).filter(|_| data.author == event.author) {
        Some(claim) => signer.sign(session_key, &mut data, claim),
        None => remove_proof(&mut data),
    }
    data
}

/// What a hook gives, unless the run is cancelled while the hook waits.
async fn or_cancelled<T>(cx: &CallContext, hook: impl Future<Output = Result<T, RunError>>) -> Result<T, RunError> {
    tokio::select! {
        biased;
        result = hook => result,
        () = cx.invocation.cancel.cancelled() => Err(RunError::Cancelled),
    }
}
