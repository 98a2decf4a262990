//! An app that calls one tool, as the model of an agent does: with the same hooks, checks and confirmations.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    Agent, AgentKind, CallContext, Content, Event, FunctionCall, JsonMap, LlmAgent, LlmRequest, LlmResponse, Model,
    ModelError, ModelRef, PartData, REQUEST_CREDENTIAL, ResponseStream, StreamingMode, Tool, ToolError, WrapperTool,
};
use hatchery_engine::App;
use rmcp::model::CallToolResult;
use serde_json::Value;

use super::content;

/// The app of the sessions of calls of single tools. Each call has a session, which is deleted when the call ends.
pub const TOOL_CALL_APP: &str = "mcp-tools";

/// The keys of results that are not objects, and of errors, as models see them.
const RESULT: &str = "result";
const ERROR: &str = "error";

pub(super) struct ToolCall {
    pub(super) app: Arc<App>,
    tool: Arc<RecordedTool>,
}

impl ToolCall {
    /// Creates the call.
    ///
    /// # Errors
    /// If the tool cannot be used.
    pub(super) fn new(tool: Arc<dyn Tool>, args: JsonMap) -> Result<Self, String> {
        let tool = Arc::new(RecordedTool { tool, result: Mutex::default() });
        let name = Tool::declaration(tool.as_ref()).name.clone();
        let agent = LlmAgent {
            model: Some(ModelRef::Object("mcp-client".into(), Arc::new(SingleCall { name, args }))),
            tools: vec![tool.clone()],
            ..LlmAgent::default()
        };
        let agent = Agent::new("mcp", "", AgentKind::Llm(Box::new(agent)));
        let app = App::new(TOOL_CALL_APP, agent).map_err(|error| error.to_string())?;
        Ok(Self { app: Arc::new(app), tool })
    }

    /// Returns the result of the call, in the events of its runs.
    ///
    /// # Errors
    /// The error for the client's model.
    pub(super) fn result(&self, events: &[Arc<Event>]) -> Result<CallToolResult, String> {
        let name = &Tool::declaration(self.tool.as_ref()).name;
        if events.iter().flat_map(|event| event.function_calls()).any(|call| call.name == REQUEST_CREDENTIAL) {
            return Err(format!(
                "the tool `{name}` needs a credential of the user, which MCP clients are not asked for"
            ));
        }
        let responses = events.iter().flat_map(|event| event.function_responses());
        let Some(response) = responses.filter(|response| response.name == *name).last() else {
            // A long-running tool has not returned anything yet.
            return Ok(content::result(Value::Null));
        };
        let result = self.tool.result.lock_unpoisoned().take();
        match result {
            Some(result) if is_response(&result, &response.response) => Ok(content::result(result)),
            _ => match response.response.get(ERROR) {
                Some(Value::String(message)) if response.response.len() == 1 => Err(message.clone()),
                _ => Ok(content::result(Value::Object(response.response.clone()))),
            },
        }
    }
}

/// Returns true if models see this response for a result.
fn is_response(result: &Value, response: &JsonMap) -> bool {
    match result {
        Value::Null => response.is_empty(),
        Value::Object(result) => result == response,
        result => response.len() == 1 && response.get(RESULT) == Some(result),
    }
}

/// Records the last result as the tool has returned it.
struct RecordedTool {
    tool: Arc<dyn Tool>,
    result: Mutex<Option<Value>>,
}

#[async_trait]
impl WrapperTool for RecordedTool {
    fn inner(&self) -> &dyn Tool {
        self.tool.as_ref()
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let result = self.tool.call(args, cx).await;
        *self.result.lock_unpoisoned() = result.as_ref().ok().cloned();
        result
    }
}

/// The client's model, which has made one call.
struct SingleCall {
    name: String,
    args: JsonMap,
}

#[async_trait]
impl Model for SingleCall {
    async fn generate(&self, request: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        let has_called = request.contents.iter().any(|content| content.function_responses().next().is_some());
        let response = if has_called {
            LlmResponse::text("done")
        } else {
            let (name, args) = (self.name.clone(), self.args.clone());
            let call = PartData::FunctionCall(FunctionCall { name, args, ..FunctionCall::default() });
            LlmResponse { content: Some(Content::new("model", vec![call.into()])), ..LlmResponse::default() }
        };
        Ok(futures::stream::iter([Ok(response)]).boxed())
    }
}
