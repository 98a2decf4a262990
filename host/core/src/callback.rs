//! Callbacks: code that runs before and after an agent, a model call or a tool call, and may replace what they do.

use async_trait::async_trait;

use crate::content::{Content, JsonMap};
use crate::context::CallContext;
use crate::error::{ModelError, RunError, ToolError};
use crate::model::{LlmRequest, LlmResponse};

/// A callback. Its place in an agent's lists decides which of its methods is called; the others keep their default, which changes
/// nothing. An error ends the run.
#[async_trait]
pub trait Callback: Send + Sync {
    /// Its name, for messages.
    fn name(&self) -> &str;

    /// Before an agent runs: a content is its answer, and the agent does not run.
    async fn before_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        let _ = cx;
        Ok(None)
    }

    /// After an agent has run: a content is added to what it said.
    async fn after_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        let _ = cx;
        Ok(None)
    }

    /// When an agent has failed: a content is its answer, and the run goes on.
    async fn on_agent_error(&self, cx: &CallContext, error: &RunError) -> Result<Option<Content>, RunError> {
        let _ = (cx, error);
        Ok(None)
    }

    /// Before a model call: may change the request; a response takes the place of the model's.
    async fn before_model(&self, cx: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        let _ = (cx, request);
        Ok(None)
    }

    /// After each response of a model, partial ones too: a response takes its place.
    async fn after_model(&self, cx: &CallContext, response: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        let _ = (cx, response);
        Ok(None)
    }

    /// When a model call has failed: a response takes the place of the failure, and passes [`Callback::after_model`].
    async fn on_model_error(
        &self,
        cx: &CallContext,
        request: &LlmRequest,
        error: &ModelError,
    ) -> Result<Option<LlmResponse>, RunError> {
        let _ = (cx, request, error);
        Ok(None)
    }

    /// Before a tool call: may change the arguments; a map takes the place of the tool's answer.
    async fn before_tool(&self, cx: &CallContext, tool: &str, args: &mut JsonMap) -> Result<Option<JsonMap>, RunError> {
        let _ = (cx, tool, args);
        Ok(None)
    }

    /// After a tool call, also one that a callback answered: a map takes the place of the answer.
    async fn after_tool(
        &self,
        cx: &CallContext,
        tool: &str,
        args: &JsonMap,
        response: &JsonMap,
    ) -> Result<Option<JsonMap>, RunError> {
        let _ = (cx, tool, args, response);
        Ok(None)
    }

    /// When a tool call has failed: a map takes the place of the failure, and passes [`Callback::after_tool`].
    async fn on_tool_error(
        &self,
        cx: &CallContext,
        tool: &str,
        args: &JsonMap,
        error: &ToolError,
    ) -> Result<Option<JsonMap>, RunError> {
        let _ = (cx, tool, args, error);
        Ok(None)
    }
}
