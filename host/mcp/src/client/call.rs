//! Requests for tools: limits of time, cancellation at the server, and errors that a model can read.

use hatchery_core::{CallContext, ToolError};
use rmcp::RoleClient;
use rmcp::model::{CancelledNotification, CancelledNotificationParam, ClientRequest, RequestId, ServerResult};
use rmcp::service::{Peer, PeerRequestOptions, ServiceError};

use super::connection::{Connection, describe_causes, http_error};
use super::supervisor::Server;

impl Server {
    /// Sends a request for a tool, whose progress is reported in `cx`. One whose future is dropped is cancelled at the
    /// server.
    ///
    /// # Errors
    /// The error for the model. `what` is the request, such as "the call of `echo`".
    pub(super) async fn request(
        &self,
        connection: &Connection,
        request: ClientRequest,
        what: &str,
        tool: &str,
        cx: &CallContext,
    ) -> Result<ServerResult, ToolError> {
        let limits = &connection.limits;
        let options = PeerRequestOptions::with_timeout(limits.call_timeout)
            .reset_timeout_on_progress()
            .with_max_total_timeout(limits.max_call_time);
        let request = connection.peer.send_request_with_option(request, options);
        let sent = connection.progress().send(request, tool, cx).await;
        let (handle, _reporting) = sent.map_err(|error| self.call_error(connection, what, &error))?;
        let mut abandoned = AbandonedRequest { peer: &connection.peer, id: Some(handle.id.clone()) };
        let result = handle.await_response().await;
        abandoned.id = None;
        result.map_err(|error| self.call_error(connection, what, &error))
    }

    /// Returns the error for the model of a request that has failed.
    pub(super) fn call_error(&self, connection: &Connection, what: &str, error: &ServiceError) -> ToolError {
        if let Some(challenge) = connection.refusal(error) {
            self.set_challenge(challenge);
        }
        let server = &self.name;
        ToolError::Recoverable(match error {
            ServiceError::McpError(error) => format!("the MCP server `{server}` refused {what}: {}", error.message),
            ServiceError::Timeout { timeout } => format!(
                "the MCP server `{server}` did not answer {what} within {} s, so the call was cancelled; it may have had an \
                 effect",
                timeout.as_secs_f64()
            ),
            _ if connection.is_closed() => format!(
                "the connection to the MCP server `{server}` ended during {what}, which may have had an effect: {}",
                connection.failure().for_callers()
            ),
            ServiceError::TransportSend(error) => {
                let reason = describe_causes(error.error.as_ref());
                if http_error(error.error.as_ref()).is_some_and(reqwest::Error::is_connect) {
                    format!("{what} did not reach the MCP server `{server}`: {reason}")
                } else {
                    format!("{what} of the MCP server `{server}` failed, and may have had an effect: {reason}")
                }
            }
            error => format!("{what} of the MCP server `{server}` failed: {error}"),
        })
    }
}

/// Cancels a request at the server if it is dropped before the request has ended.
struct AbandonedRequest<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for AbandonedRequest<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) else { return };
        let peer = self.peer.clone();
        let params =
            CancelledNotificationParam::new(Some(id), Some("the run was cancelled, or waits for a person".into()));
        runtime.spawn(async move { peer.send_notification(CancelledNotification::new(params).into()).await });
    }
}
