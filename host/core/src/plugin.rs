//! Plugins: hooks into every run of a runner, whatever its app.

use std::sync::Arc;

use async_trait::async_trait;

use crate::callback::Callback;
use crate::content::Content;
use crate::context::CallContext;
use crate::error::{ModelError, RunError};
use crate::event::{Event, EventData};
use crate::model::Model;
use crate::tool::Tool;

/// Run hooks. A plugin's [`Callback`] methods run for every agent, for every tool call, and for every model call of LLM agents, before the
/// agents' own callbacks; what code asks models by itself passes [`Plugin::model`] only. The hooks here run once a run, or once an event.
/// Plugins run in the order in which they were registered, and the first that answers wins: those after it, and the agent's callbacks, are
/// not asked.
#[async_trait]
pub trait Plugin: Callback {
    /// When the user has said something: a content takes the place of the message.
    async fn on_user_message(&self, cx: &CallContext, message: &Content) -> Result<Option<Content>, RunError> {
        let _ = (cx, message);
        Ok(None)
    }

    /// Before the agent runs: a content is the run's answer, and no agent runs.
    async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        let _ = cx;
        Ok(None)
    }

    /// Before an event is stored and yielded, partial ones too: what is given takes its place in both. The event's id, invocation and
    /// time stay.
    async fn on_event(&self, cx: &CallContext, event: &Event) -> Result<Option<EventData>, RunError> {
        let _ = (cx, event);
        Ok(None)
    }

    /// What an agent asks in the place of the model that was found under `name`. It comes after all callbacks: what it is sent is what the
    /// model would be sent, and what it answers is what callbacks are shown. The first plugin is the outermost.
    ///
    /// # Errors
    /// As looking the model up, unless something else takes its place.
    fn model(
        &self,
        cx: &CallContext,
        name: &str,
        found: Result<Arc<dyn Model>, ModelError>,
    ) -> Result<Arc<dyn Model>, ModelError> {
        let _ = (cx, name);
        found
    }

    /// What is called in the place of a tool. As with [`Plugin::model`], callbacks have had their say before it, and are shown what it
    /// answers.
    fn tool(&self, cx: &CallContext, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        let _ = cx;
        tool
    }

    /// Whether it follows the run into agents that are called as tools. It then has its say at their model and tool calls too, and before
    /// and after them; they have no message, no stored events and no end of their own that it could be told of.
    fn follows_into_tools(&self) -> bool {
        true
    }

    /// After a run that did not fail. Every plugin is asked.
    async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        let _ = cx;
        Ok(())
    }

    /// After a run that failed. Every plugin is told.
    async fn on_run_error(&self, cx: &CallContext, error: &RunError) {
        let _ = (cx, error);
    }

    /// When the runner is closed.
    async fn close(&self) {}
}
