//! Callbacks of agents as a plugin.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Callback, Content, JsonMap, LlmRequest, LlmResponse, ModelError, Plugin, RunError, ToolError,
};

use crate::authoring::build::callback::point;

/// Callbacks that run for every agent, model call and tool call of a runner. At each place they run in order, and the first that answers
/// wins.
///
/// ```
/// use hatchery_engine::plugins::CallbackPlugin;
///
/// let audit = CallbackPlugin::new("audit").before_tool_fn(|cx, tool, args| {
///     Box::pin(async move {
///         println!("{} calls {tool} with {args:?}", cx.agent);
///         Ok(None)
///     })
/// });
/// # hatchery_engine::Plugins::new(vec![std::sync::Arc::new(audit)]).unwrap();
/// ```
#[must_use]
pub struct CallbackPlugin {
    name: String,
    before_agent: Vec<Arc<dyn Callback>>,
    after_agent: Vec<Arc<dyn Callback>>,
    on_agent_error: Vec<Arc<dyn Callback>>,
    before_model: Vec<Arc<dyn Callback>>,
    after_model: Vec<Arc<dyn Callback>>,
    on_model_error: Vec<Arc<dyn Callback>>,
    before_tool: Vec<Arc<dyn Callback>>,
    after_tool: Vec<Arc<dyn Callback>>,
    on_tool_error: Vec<Arc<dyn Callback>>,
}

impl CallbackPlugin {
    /// A plugin of this name without callbacks.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            before_agent: Vec::new(),
            after_agent: Vec::new(),
            on_agent_error: Vec::new(),
            before_model: Vec::new(),
            after_model: Vec::new(),
            on_model_error: Vec::new(),
            before_tool: Vec::new(),
            after_tool: Vec::new(),
            on_tool_error: Vec::new(),
        }
    }

    point! { before_agent: before_agent, before_agent_fn, BeforeAgentFn, BeforeAgent, "before each agent" }
    point! { after_agent: after_agent, after_agent_fn, AfterAgentFn, AfterAgent, "after each agent" }
    point! {
        on_agent_error: on_agent_error, on_agent_error_fn, OnAgentErrorFn, OnAgentError, "when an agent has failed"
    }
    point! { before_model: before_model, before_model_fn, BeforeModelFn, BeforeModel, "before each model call" }
    point! { after_model: after_model, after_model_fn, AfterModelFn, AfterModel, "after each model response" }
    point! {
        on_model_error: on_model_error, on_model_error_fn, OnModelErrorFn, OnModelError, "when a model call has failed"
    }
    point! { before_tool: before_tool, before_tool_fn, BeforeToolFn, BeforeTool, "before each tool call" }
    point! { after_tool: after_tool, after_tool_fn, AfterToolFn, AfterTool, "after each tool call" }
    point! {
        on_tool_error: on_tool_error, on_tool_error_fn, OnToolErrorFn, OnToolError, "when a tool call has failed"
    }
}

/// The first answer of the callbacks of one place.
macro_rules! first {
    ($plugin:ident.$point:ident($($arg:expr),*)) => {{
        for callback in &$plugin.$point {
            if let Some(answer) = callback.$point($($arg),*).await? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }};
}

#[async_trait]
impl Callback for CallbackPlugin {
    fn name(&self) -> &str {
        &self.name
    }

    async fn before_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        first!(self.before_agent(cx))
    }

    async fn after_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        first!(self.after_agent(cx))
    }

    async fn on_agent_error(&self, cx: &CallContext, error: &RunError) -> Result<Option<Content>, RunError> {
        first!(self.on_agent_error(cx, error))
    }

    async fn before_model(&self, cx: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        first!(self.before_model(cx, request))
    }

    async fn after_model(&self, cx: &CallContext, response: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        first!(self.after_model(cx, response))
    }

    async fn on_model_error(
        &self,
        cx: &CallContext,
        request: &LlmRequest,
        error: &ModelError,
    ) -> Result<Option<LlmResponse>, RunError> {
        first!(self.on_model_error(cx, request, error))
    }

    async fn before_tool(&self, cx: &CallContext, tool: &str, args: &mut JsonMap) -> Result<Option<JsonMap>, RunError> {
        first!(self.before_tool(cx, tool, args))
    }

    async fn after_tool(
        &self,
        cx: &CallContext,
        tool: &str,
        args: &JsonMap,
        response: &JsonMap,
    ) -> Result<Option<JsonMap>, RunError> {
        first!(self.after_tool(cx, tool, args, response))
    }

    async fn on_tool_error(
        &self,
        cx: &CallContext,
        tool: &str,
        args: &JsonMap,
        error: &ToolError,
    ) -> Result<Option<JsonMap>, RunError> {
        first!(self.on_tool_error(cx, tool, args, error))
    }
}

impl Plugin for CallbackPlugin {}
