//! Plugins: hooks into every run of a runner, of all apps.

use std::sync::Arc;

use async_trait::async_trait;

use crate::call_context::CallContext;
use crate::callback::Callback;
use crate::content::Content;
use crate::error::{ModelError, RunError};
use crate::event::{Event, EventData};
use crate::model::Model;
use crate::tool::Tool;

/// A plugin as the code of runs sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginInfo {
    pub name: String,
    /// The names of its hooks; empty for a native plugin, which need not list them.
    pub hooks: Vec<String>,
    /// The component that exports it; `None` for a native plugin.
    pub component: Option<String>,
    /// The revision of the component.
    pub revision: Option<String>,
}

/// Hooks of runs. A plugin's [`Callback`] methods run for every agent, for every tool call, and for every model call of
/// LLM agents, before the agents' own callbacks. Model calls that code makes itself pass only through
/// [`Plugin::model`]. The hooks here run once per run or once per event.
///
/// Plugins run in order of registration, and the first answer wins: later plugins and the agent's callbacks do not run.
///
/// ```
/// use async_trait::async_trait;
/// use hatchery_core::{CallContext, Callback, Content, Plugin, RunError};
///
/// struct Maintenance;
///
/// impl Callback for Maintenance {
///     fn name(&self) -> &str {
///         "maintenance"
///     }
/// }
///
/// #[async_trait]
/// impl Plugin for Maintenance {
///     async fn before_run(&self, _cx: &CallContext) -> Result<Option<Content>, RunError> {
///         Ok(Some(Content::model("We are back at noon.")))
///     }
/// }
/// ```
#[async_trait]
pub trait Plugin: Callback {
    /// Runs when a message of the user arrives. The content replaces the message.
    async fn on_user_message(&self, cx: &CallContext, message: &Content) -> Result<Option<Content>, RunError> {
        let _ = (cx, message);
        Ok(None)
    }

    /// Runs before the agent. The content is the run's answer, and no agent runs.
    async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        let _ = cx;
        Ok(None)
    }

    /// Runs before an event is stored and sent, including partial ones and summaries. The data replaces the event in
    /// both. The event's id, invocation and time stay, and so does the range of a summary.
    async fn on_event(&self, cx: &CallContext, event: &Event) -> Result<Option<EventData>, RunError> {
        let _ = (cx, event);
        Ok(None)
    }

    /// Wraps or replaces the model `name` for this call. Runs after `before_model` callbacks and before `after_model`
    /// callbacks, so it sees the final request and its answer goes to the callbacks. The first plugin is the outermost.
    ///
    /// # Errors
    /// `resolved`'s error, unless the plugin has its own model.
    fn model(
        &self,
        cx: &CallContext,
        name: &str,
        resolved: Result<Arc<dyn Model>, ModelError>,
    ) -> Result<Arc<dyn Model>, ModelError> {
        let _ = (cx, name);
        resolved
    }

    /// Wraps or replaces a tool for this call. As with [`Plugin::model`], it sees the final arguments, and its answer
    /// goes to the `after_tool` callbacks.
    fn tool(&self, cx: &CallContext, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        let _ = cx;
        tool
    }

    /// Returns true if the plugin also runs in agents that are called as tools: around them and around their model and
    /// tool calls. Such agents have no user message, no stored events and no end of run, so those hooks do not run.
    fn follows_into_tools(&self) -> bool {
        true
    }

    /// Runs after a run that succeeded. All plugins run, in order.
    async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        let _ = cx;
        Ok(())
    }

    /// Runs after a run that failed. All plugins run, in order.
    async fn on_run_error(&self, cx: &CallContext, error: &RunError) {
        let _ = (cx, error);
    }

    /// Describes the plugin for the code of runs. The default has its name only.
    fn info(&self) -> PluginInfo {
        PluginInfo { name: self.name().into(), hooks: Vec::new(), component: None, revision: None }
    }

    /// Releases resources when the runner is closed.
    async fn close(&self) {}
}
