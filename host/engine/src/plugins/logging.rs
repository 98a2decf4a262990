//! A plugin that logs each hook.

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Callback, Content, Event, EventData, JsonMap, LlmRequest, LlmResponse, ModelError, Plugin, RunError,
    ToolError, escape_control, pluralize, truncate_bytes, truncate_chars,
};
use serde_json::Value;

/// Maximum length of a line in bytes. Names and errors may be as long as a model or a component makes them.
const MAX_LINE: usize = 4 << 10;
/// Maximum length of text in a line, in characters.
const MAX_TEXT: usize = 200;
/// Maximum length of arguments and results in a line, in characters.
const MAX_ARGS: usize = 300;

/// Logs the hooks of runs at level `info`, with text cut to a readable length. Changes nothing.
#[derive(Debug, Default)]
pub struct Logging;

impl Logging {
    fn log(cx: &CallContext, hook: &str, text: &str) {
        let (invocation, text) = (&cx.invocation, truncate_bytes(text, MAX_LINE));
        let text = escape_control(&text);
        tracing::info!(target: "hatchery::runs", invocation = %invocation.id, session = %invocation.session_key.id, agent = %cx.agent, hook, "{text}");
    }
}

#[async_trait]
impl Callback for Logging {
    fn name(&self) -> &str {
        "logging_plugin"
    }

    async fn before_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        Self::log(cx, "before_agent", "");
        Ok(None)
    }

    async fn after_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        Self::log(cx, "after_agent", "");
        Ok(None)
    }

    async fn on_agent_error(&self, cx: &CallContext, error: &RunError) -> Result<Option<Content>, RunError> {
        Self::log(cx, "on_agent_error", &error.to_string());
        Ok(None)
    }

    async fn before_model(&self, cx: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        let tools: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        let last = request.contents.last().map(|content| summary(content)).unwrap_or_default();
        let contents = pluralize(request.contents.len(), "content", "contents");
        let text = format!("{contents} for `{}`, tools {tools:?}, last: {last}", request.model);
        Self::log(cx, "before_model", &text);
        Ok(None)
    }

    async fn after_model(&self, cx: &CallContext, response: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        let partial = if response.partial { "partial: " } else { "" };
        let text = response.content.as_ref().map(summary).unwrap_or_default();
        let error = response.error_code.as_deref().map(|code| format!(" ({code})")).unwrap_or_default();
        Self::log(cx, "after_model", &format!("{partial}{text}{error}"));
        Ok(None)
    }

    async fn on_model_error(
        &self,
        cx: &CallContext,
        _: &LlmRequest,
        error: &ModelError,
    ) -> Result<Option<LlmResponse>, RunError> {
        Self::log(cx, "on_model_error", &error.to_string());
        Ok(None)
    }

    async fn before_tool(&self, cx: &CallContext, tool: &str, args: &mut JsonMap) -> Result<Option<JsonMap>, RunError> {
        Self::log(cx, "before_tool", &format!("{tool}{}", json(args)));
        Ok(None)
    }

    async fn after_tool(
        &self,
        cx: &CallContext,
        tool: &str,
        _: &JsonMap,
        response: &JsonMap,
    ) -> Result<Option<JsonMap>, RunError> {
        Self::log(cx, "after_tool", &format!("{tool}: {}", json(response)));
        Ok(None)
    }

    async fn on_tool_error(
        &self,
        cx: &CallContext,
        tool: &str,
        _: &JsonMap,
        error: &ToolError,
    ) -> Result<Option<JsonMap>, RunError> {
        Self::log(cx, "on_tool_error", &format!("{tool}: {error}"));
        Ok(None)
    }
}

#[async_trait]
impl Plugin for Logging {
    async fn on_user_message(&self, cx: &CallContext, message: &Content) -> Result<Option<Content>, RunError> {
        Self::log(cx, "on_user_message", &summary(message));
        Ok(None)
    }

    async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        Self::log(cx, "before_run", "");
        Ok(None)
    }

    async fn on_event(&self, cx: &CallContext, event: &Event) -> Result<Option<EventData>, RunError> {
        let text = event.content.as_ref().map(|content| summary(content)).unwrap_or_default();
        Self::log(cx, "on_event", &format!("{} by {}: {text}", event.id, event.author));
        Ok(None)
    }

    async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        Self::log(cx, "after_run", "");
        Ok(())
    }

    async fn on_run_error(&self, cx: &CallContext, error: &RunError) {
        Self::log(cx, "on_run_error", &error.to_string());
    }
}

fn summary(content: &Content) -> String {
    let mut pieces = vec![content.text()];
    pieces.extend(content.function_calls().map(|call| format!("call {}{}", call.name, json(&call.args))));
    pieces
        .extend(content.function_responses().map(|answer| format!("answer {}{}", answer.name, json(&answer.response))));
    pieces.retain(|piece| !piece.is_empty());
    truncate_chars(&pieces.join("; "), MAX_TEXT)
}

fn json(map: &JsonMap) -> String {
    truncate_chars(&Value::Object(map.clone()).to_string(), MAX_ARGS)
}
