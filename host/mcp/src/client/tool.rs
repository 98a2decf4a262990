//! A tool of an MCP server.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, Tool, ToolError};
use hatchery_engine::validation::check_value;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CallToolResult, ClientRequest, RequestParamsMeta,
    ServerResult,
};
use rmcp::service::ServiceError;
use serde_json::Value;

use super::connection::Connection;
use super::input::CallInput;
use super::session_servers::ServerInUse;
use super::{content, elicitation};

/// Maximum number of input requests of one call.
const MAX_ROUNDS: usize = 8;

/// A tool of a server, as one toolset offers it.
pub(super) struct McpTool {
    pub(super) server: ServerInUse,
    /// The declaration for the model. Its name can have a prefix, and no characters that models refuse.
    pub(super) declaration: Arc<FunctionDeclaration>,
    /// The name that the server knows.
    pub(super) name: String,
    /// The name in the names of the artifacts that its files are stored as.
    pub(super) artifact_name: String,
    pub(super) requires_confirmation: bool,
    pub(super) is_idempotent: bool,
}

#[async_trait]
impl Tool for McpTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        format!("mcp:{}/{}", self.server.name, self.name).into()
    }

    fn requires_confirmation(&self) -> bool {
        self.requires_confirmation
    }

    fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        // A call that has failed is not made again with its answers.
        self.call_with_input(args, cx).await.inspect_err(|_| elicitation::forget(cx))
    }
}

impl McpTool {
    /// Calls the tool. Returns the status of the call if a person must answer first.
    async fn call_with_input(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let connection = self.server.connection().await.map_err(|error| self.unavailable(&error.for_callers()))?;
        let input = Arc::new(CallInput::resume(&self.server.name, &self.server.config, cx).await?);
        let result = self.request_with_input(&connection, args, &input, cx).await?;
        if let Some(waiting) = input.elicitation.pause(&self.server.name, cx)? {
            return Ok(waiting);
        }
        // Without a question there is a result.
        let result = result.ok_or_else(|| self.unexpected_response(&connection))?;
        let converted = content::convert(result).map_err(ToolError::Recoverable)?;
        if let (Some(schema), Some(structured)) =
            (&self.declaration.response, converted.response.get(content::STRUCTURED))
        {
            check_value(schema, structured.clone(), cx).await.map_err(|reason| {
                let message = "answered with structured content that does not match its own output schema";
                ToolError::Recoverable(format!("the MCP server `{}` {message}: {reason}", self.server.name))
            })?;
        }
        content::respond(converted, &self.server.name, &self.artifact_name, cx).await
    }

    fn unavailable(&self, reason: &str) -> ToolError {
        let Self { server, name, .. } = self;
        ToolError::Recoverable(format!(
            "tool `{name}` is not available now, since there is no connection to the MCP server `{}`: {reason}",
            server.name
        ))
    }

    /// Calls the tool, and repeats the call with the input that it requests. `None` if a person must answer first.
    async fn request_with_input(
        &self,
        connection: &Connection,
        args: JsonMap,
        input: &Arc<CallInput>,
        cx: &CallContext,
    ) -> Result<Option<CallToolResult>, ToolError> {
        let _admission = connection.admit_requests(input).await;
        let mut params = CallToolRequestParams::new(self.name.clone()).with_arguments(args);
        if let Some(parent) = cx.span().header() {
            params.set_traceparent(&parent);
        }
        for _ in 0..MAX_ROUNDS {
            let required = tokio::select! {
                result = self.request(connection, params.clone(), cx) => match result? {
                    CallToolResponse::InputRequired(required) => required,
                    CallToolResponse::Complete(result) => return Ok(Some(result)),
                    _ => return Err(self.unexpected_response(connection)),
                },
                () = input.elicitation.wait_for_question() => return Ok(None),
            };
            let responses = input.answers(&required.input_requests.unwrap_or_default()).await;
            let refuse = |reason| ToolError::Recoverable(format!("the tool `{}` {reason}", self.name));
            let Some(responses) = responses.map_err(refuse)? else { return Ok(None) };
            (params.input_responses, params.request_state) = (Some(responses), required.request_state);
        }
        Err(ToolError::Recoverable(format!("the tool `{}` asked for input {MAX_ROUNDS} times", self.name)))
    }

    /// Sends one request.
    async fn request(
        &self,
        connection: &Connection,
        params: CallToolRequestParams,
        cx: &CallContext,
    ) -> Result<CallToolResponse, ToolError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        match self.server.request(connection, request, &self.request_label(), &self.declaration.name, cx).await? {
            ServerResult::CallToolResult(result) => Ok(result.into()),
            ServerResult::InputRequiredResult(required) => Ok(required.into()),
            _ => Err(self.unexpected_response(connection)),
        }
    }

    /// Returns the name of the request in errors.
    fn request_label(&self) -> String {
        format!("the call of `{}`", self.name)
    }

    fn unexpected_response(&self, connection: &Connection) -> ToolError {
        self.server.call_error(connection, &self.request_label(), &ServiceError::UnexpectedResponse)
    }
}
