//! A tool of an MCP server.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, Tool, ToolError};
use hatchery_engine::validation::check_value;
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CallToolResult, CancelledNotification,
    CancelledNotificationParam, ClientRequest, RequestId, RequestParamsMeta, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, ServiceError};
use serde_json::{Value, json};

use super::connection::{Connection, describe_causes};
use super::content::{self, FILES, File};
use super::elicitation::Elicitation;
use super::supervisor::Server;

/// How often a call may ask for input before it ends.
const MAX_ROUNDS: usize = 8;

/// A tool of a server, as one toolset offers it.
pub(super) struct McpTool {
    pub(super) server: Arc<Server>,
    /// The declaration for the model. Its name can have a prefix.
    pub(super) declaration: Arc<FunctionDeclaration>,
    /// The name that the server knows.
    pub(super) name: String,
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
        let connection = self.server.connection().await.map_err(|error| self.unavailable(&error.for_callers()))?;
        let elicitation = Arc::new(Elicitation::resume(cx).await?);
        let result = self.request_with_input(&connection, args, &elicitation, cx).await?;
        if let Some(waiting) = elicitation.pause(&self.server.name, cx)? {
            return Ok(waiting);
        }
        // Without a question there is a result.
        let result = result.ok_or_else(|| self.failed(&connection, &ServiceError::UnexpectedResponse))?;
        let converted = content::convert(result).map_err(ToolError::Recoverable)?;
        if let (Some(schema), Some(structured)) =
            (&self.declaration.response, converted.response.get(content::STRUCTURED))
        {
            check_value(schema, structured.clone(), cx).await.map_err(|reason| {
                let message = "answered with structured content that does not match its own output schema";
                ToolError::Recoverable(format!("the MCP server `{}` {message}: {reason}", self.server.name))
            })?;
        }
        let mut response = converted.response;
        if !converted.files.is_empty() {
            response.insert(FILES.into(), self.store(converted.files, cx).await?);
        }
        Ok(Value::Object(response))
    }
}

impl McpTool {
    fn unavailable(&self, reason: &str) -> ToolError {
        let Self { server, name, .. } = self;
        ToolError::Recoverable(format!(
            "tool `{name}` is not available now, since there is no connection to the MCP server `{}`: {reason}",
            server.name
        ))
    }

    /// Calls the tool, and again with what it asks for. `None` if a person is to be asked first.
    async fn request_with_input(
        &self,
        connection: &Connection,
        args: JsonMap,
        elicitation: &Arc<Elicitation>,
        cx: &CallContext,
    ) -> Result<Option<CallToolResult>, ToolError> {
        let _admission = connection.admit_questions(elicitation).await;
        let mut params = CallToolRequestParams::new(self.name.clone()).with_arguments(args);
        if let Some(parent) = cx.span().header() {
            params.set_traceparent(&parent);
        }
        for _ in 0..MAX_ROUNDS {
            let required = tokio::select! {
                result = self.request(connection, params.clone()) => match result? {
                    CallToolResponse::InputRequired(required) => required,
                    CallToolResponse::Complete(result) => return Ok(Some(result)),
                    _ => return Err(self.failed(connection, &ServiceError::UnexpectedResponse)),
                },
                () = elicitation.asked() => return Ok(None),
            };
            if !self.server.config.elicitation {
                let (server, tool) = (&self.server.name, &self.name);
                let message =
                    format!("the tool `{tool}` asks a person, which the MCP server `{server}` may not do here");
                return Err(ToolError::Recoverable(message));
            }
            let responses = elicitation.answers(&required.input_requests.unwrap_or_default());
            let refuse = |reason| ToolError::Recoverable(format!("the tool `{}` {reason}", self.name));
            let Some(responses) = responses.map_err(refuse)? else { return Ok(None) };
            (params.input_responses, params.request_state) = (Some(responses), required.request_state);
        }
        Err(ToolError::Recoverable(format!("the tool `{}` asked for input {MAX_ROUNDS} times", self.name)))
    }

    /// Sends one request. A call whose future is dropped is cancelled at the server.
    async fn request(
        &self,
        connection: &Connection,
        params: CallToolRequestParams,
    ) -> Result<CallToolResponse, ToolError> {
        let limits = &connection.limits;
        let options = PeerRequestOptions::with_timeout(limits.call_timeout)
            .reset_timeout_on_progress()
            .with_max_total_timeout(limits.max_call_time);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let handle = connection.peer.send_request_with_option(request, options).await;
        let handle = handle.map_err(|error| self.failed(connection, &error))?;
        let mut abandoned = AbandonedCall { peer: &connection.peer, id: Some(handle.id.clone()) };
        let result = handle.await_response().await;
        abandoned.id = None;
        match result {
            Ok(ServerResult::CallToolResult(result)) => Ok(result.into()),
            Ok(ServerResult::InputRequiredResult(required)) => Ok(required.into()),
            Ok(_) => Err(self.failed(connection, &ServiceError::UnexpectedResponse)),
            Err(error) => Err(self.failed(connection, &error)),
        }
    }

    fn failed(&self, connection: &Connection, error: &ServiceError) -> ToolError {
        if let Some(challenge) = connection.refusal(error) {
            self.server.set_challenge(challenge);
        }
        let (server, tool) = (&self.server.name, &self.name);
        ToolError::Recoverable(match error {
            ServiceError::McpError(error) => {
                format!("the MCP server `{server}` refused the call of `{tool}`: {}", error.message)
            }
            ServiceError::Timeout { timeout } => format!(
                "the MCP server `{server}` did not answer the call of `{tool}` within {} s, so the call was cancelled; \
                 it may have had an effect",
                timeout.as_secs_f64()
            ),
            _ if connection.is_closed() => format!(
                "the connection to the MCP server `{server}` ended during the call of `{tool}`, which may have had an \
                 effect: {}",
                connection.failure().for_callers()
            ),
            ServiceError::TransportSend(error) => format!(
                "the call of `{tool}` did not reach the MCP server `{server}`: {}",
                describe_causes(error.error.as_ref())
            ),
            error => format!("the call of `{tool}` of the MCP server `{server}` failed: {error}"),
        })
    }

    /// Stores files as artifacts. Returns their names, versions and types.
    async fn store(&self, files: Vec<File>, cx: &CallContext) -> Result<Value, ToolError> {
        let mut stored = Vec::with_capacity(files.len());
        for (index, file) in files.into_iter().enumerate() {
            let mime_type = file.blob.mime_type.clone();
            let (bytes, uri) = (file.blob.data.len(), file.uri.clone());
            let extension = file.blob.extension();
            let name = format!("{}{}-{index}.{extension}", artifact_prefix(&self.server.name), self.name);
            let version = cx.save_artifact(&name, &file.into_part()).await?;
            let mut entry = json!({"artifact": name, "version": version, "mimeType": mime_type, "bytes": bytes});
            if let (Some(uri), Some(entry)) = (uri, entry.as_object_mut()) {
                entry.insert("uri".into(), uri.into());
            }
            stored.push(entry);
        }
        Ok(stored.into())
    }
}

/// Returns what the names of all artifacts from a server begin with.
pub(super) fn artifact_prefix(server: &str) -> String {
    format!("mcp/{server}/")
}

/// Cancels a call at the server if it is dropped before the call has ended.
struct AbandonedCall<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for AbandonedCall<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) else { return };
        let peer = self.peer.clone();
        let params =
            CancelledNotificationParam::new(Some(id), Some("the run was cancelled, or waits for a person".into()));
        runtime.spawn(async move { peer.send_notification(CancelledNotification::new(params).into()).await });
    }
}
