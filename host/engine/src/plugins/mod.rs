//! The plugins of a runner, and those that come with the engine.

mod context_filter;
mod global_instruction;
mod logging;
mod reflect_and_retry;

use std::sync::Arc;

use hatchery_core::{CallContext, Callback, Content, Event, EventData, Plugin, RunError};
use thiserror::Error;

pub use context_filter::ContextFilter;
pub use global_instruction::GlobalInstruction;
pub use logging::Logging;
pub use reflect_and_retry::ReflectAndRetry;

/// Plugins in the order in which they run.
#[derive(Clone, Default)]
pub struct Plugins {
    plugins: Vec<Arc<dyn Plugin>>,
    /// The same, as what they are to agents.
    callbacks: Vec<Arc<dyn Callback>>,
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
        let callbacks = plugins.iter().map(|plugin| plugin.clone() as Arc<dyn Callback>).collect();
        Ok(Self { plugins, callbacks })
    }

    /// The plugin of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Plugin>> {
        self.plugins.iter().find(|plugin| plugin.name() == name)
    }

    /// Tells all of them that no run will follow.
    pub async fn close(&self) {
        for plugin in &self.plugins {
            plugin.close().await;
        }
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
        for plugin in &self.plugins {
            if let Some(replacement) = plugin.on_user_message(cx, message).await? {
                return Ok(Some(replacement));
            }
        }
        Ok(None)
    }

    pub(crate) async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        for plugin in &self.plugins {
            if let Some(answer) = plugin.before_run(cx).await? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// What takes the place of an event, under the same id, of the same invocation, at the same time.
    pub(crate) async fn on_event(&self, cx: &CallContext, event: &Event) -> Result<Option<Arc<Event>>, RunError> {
        for plugin in &self.plugins {
            if let Some(mut data) = plugin.on_event(cx, event).await? {
                data.actions.state_delta = cx.invocation.without_temp(data.actions.state_delta);
                return Ok(Some(Event::new(EventData {
                    id: event.id.clone(),
                    invocation_id: event.invocation_id.clone(),
                    partial: event.partial,
                    timestamp: event.timestamp,
                    ..data
                })));
            }
        }
        Ok(None)
    }

    pub(crate) async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        for plugin in &self.plugins {
            plugin.after_run(cx).await?;
        }
        Ok(())
    }

    pub(crate) async fn on_run_error(&self, cx: &CallContext, error: &RunError) {
        for plugin in &self.plugins {
            plugin.on_run_error(cx, error).await;
        }
    }
}
