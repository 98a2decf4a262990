//! One client: its handshake, its lists, its calls, and notifications of changed tools.

#![expect(deprecated, reason = "clients of revisions before 2026-07-28 ask for log messages")]

use std::sync::Mutex;

use hatchery_core::ClientScope;
use hatchery_core::sync::MutexExt;
use http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorData, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::transport::IntoTransport;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{McpService, resources};

const INSTRUCTIONS: &str = "Tools whose names begin with `run_` send a message to an agent. To continue a conversation, pass the `session` of \
                            the agent's last answer.";

/// The state of one client.
pub(super) struct Session {
    service: McpService,
    /// Ends the task that notifies the client of changed tools.
    closed: DropGuard,
    /// The lowest level of the log messages that the client wants. `None` if it has not asked for any.
    log_level: Mutex<Option<LoggingLevel>>,
    /// Counts the session. `None` for standard input and output.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Session {
    pub(super) fn new(service: McpService, permit: Option<OwnedSemaphorePermit>) -> Self {
        let closed = CancellationToken::new().drop_guard();
        Self { service, closed, log_level: Mutex::default(), _permit: permit }
    }
}

/// Serves one client over a transport. Returns when the client closes it, or when `stop` completes.
///
/// # Errors
/// The reason why the handshake has failed.
pub(super) async fn serve<T, E, A>(
    service: McpService,
    transport: T,
    stop: impl Future<Output = ()>,
) -> Result<(), String>
where
    T: IntoTransport<RoleServer, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let serve = async {
        let running = Session::new(service, None).serve(transport).await.map_err(|error| error.to_string())?;
        running.waiting().await.map(drop).map_err(|error| error.to_string())
    };
    tokio::select! {
        result = serve => result,
        () = stop => Ok(()),
    }
}

/// Returns the scope of the client that has sent a request. `None` if it is not limited.
pub(super) fn scope(context: &RequestContext<RoleServer>) -> Option<&ClientScope> {
    context.extensions.get::<Parts>()?.extensions.get()
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_completions()
            .enable_logging()
            .build();
        let implementation = Implementation::new("hatchery", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(implementation).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.service.tools().await.list(scope(&context))))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        mut context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let log_level = *self.log_level.lock_unpoisoned();
        // Since 2026-07-28 each request has its own.
        if let (Some(level), None) = (log_level, context.meta.log_level()) {
            context.meta.set_log_level(level);
        }
        let tools = self.service.tools().await;
        let Some(target) = tools.target(&request.name, scope(&context)) else {
            return Err(ErrorData::invalid_params(format!("Unknown tool: {}", request.name), None));
        };
        let args = request.arguments.unwrap_or_default();
        Ok(self.service.call(target, args, &context).await.into())
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        *self.log_level.lock_unpoisoned() = Some(request.level);
        Ok(())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(self.service.resources(&context).await?))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(self.service.resource(&request.uri, &context).await?.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.service.completion(&request, &context).await
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut changes = self.service.0.catalog.changes();
        let closed = self.closed.token().clone();
        tokio::spawn(closed.run_until_cancelled_owned(async move {
            while changes.changed().await.is_ok() && context.peer.notify_tool_list_changed().await.is_ok() {}
        }));
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        // The library removes capabilities that the server does not announce.
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.service.0.catalog.changes();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.changed() => match changed {
                    Ok(()) if context.sink().notify_tool_list_changed().await.is_err() => return Ok(()),
                    Ok(()) => {}
                    // The catalog never changes again.
                    Err(_) => context.cancelled().await,
                }
            }
        }
    }
}
