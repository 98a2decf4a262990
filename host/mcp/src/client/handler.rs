//! Requests and notifications of a server: answers pings, and input requests during calls.

#![expect(deprecated, reason = "servers of earlier revisions use roots, sampling and log messages")]

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestMethod, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability, ErrorData, FormElicitationCapability,
    Implementation, ListRootsRequestMethod, ListRootsResult, LoggingMessageNotificationParam,
    ProgressNotificationParam, ProtocolVersion, SamplingCapability,
};
use rmcp::service::{NotificationContext, RequestContext, ServiceRole};
use rmcp::{ClientHandler, RoleClient, Service};

use super::connection::ConnectionState;

/// Counts unsolicited messages of the server, and closes the connection if there are too many.
pub(super) struct GuardedHandler(pub(super) Handler);

impl Service<RoleClient> for GuardedHandler {
    async fn handle_request(
        &self,
        request: <RoleClient as ServiceRole>::PeerReq,
        context: RequestContext<RoleClient>,
    ) -> Result<<RoleClient as ServiceRole>::Resp, ErrorData> {
        self.0.state.count_notification();
        Service::handle_request(&self.0, request, context).await
    }

    async fn handle_notification(
        &self,
        notification: <RoleClient as ServiceRole>::PeerNot,
        context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        self.0.state.count_notification();
        Service::handle_notification(&self.0, notification, context).await
    }

    fn get_info(&self) -> <RoleClient as ServiceRole>::Info {
        ClientHandler::get_info(&self.0)
    }
}

/// Answers a server. Roots are not offered, as the handshake declares.
pub(super) struct Handler {
    pub(super) server: Arc<str>,
    pub(super) state: Arc<ConnectionState>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("hatchery", env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        let form = || ElicitationCapability::new().with_form(FormElicitationCapability::new());
        capabilities.elicitation = self.state.can_elicit.then(form);
        capabilities.sampling = self.state.can_sample.then(SamplingCapability::default);
        ClientConfig::new(capabilities, implementation).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListRootsRequestMethod>())
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let Some(input) = self.state.current_call.get().filter(|_| self.state.can_elicit) else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        let message = "a person is asked; the call is cancelled, and made again with the answer";
        input.elicitation.answer(&request).await.ok_or_else(|| ErrorData::internal_error(message, None))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        if !self.state.can_sample {
            return Err(ErrorData::method_not_found::<CreateMessageRequestMethod>());
        }
        let input = self.state.current_call.get();
        let Some(sampler) = input.as_ref().and_then(|input| input.sampler.as_ref()) else {
            return Err(ErrorData::invalid_request("a model can be used during a call only", None));
        };
        sampler.create_message(&params).await.map_err(|reason| ErrorData::internal_error(reason, None))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        tracing::debug!(server = &*self.server, "the tools have changed");
        self.state.tools.mark_stale();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        tracing::debug!(server = &*self.server, "the resources have changed");
        self.state.resources.mark_stale();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        tracing::debug!(server = &*self.server, "the prompts have changed");
        self.state.prompts.mark_stale();
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let message = params.message.as_deref().unwrap_or_default();
        tracing::debug!(server = &*self.server, progress = params.progress, total = params.total, message, "progress");
        self.state.progress.report(params).await;
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        tracing::debug!(server = &*self.server, level = ?params.level, "{}", params.data);
    }
}
