//! One client: its handshake, its lists, its calls, and notifications of changed tools and resources.

#![expect(deprecated, reason = "clients of revisions before 2026-07-28 ask for log messages")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use hatchery_core::ClientScope;
use hatchery_core::sync::MutexExt;
use http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorData, GetPromptRequestParams,
    GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, LoggingLevel, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::transport::IntoTransport;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::McpService;
use super::call::user;
use super::session_limit::SessionPermit;
use super::subscriptions::{ArtifactChange, Subscriptions};

const INSTRUCTIONS: &str = "Tools whose names begin with `run_` send a message to an agent. To continue a conversation, pass the `session` of \
                            the agent's last answer.";

/// The state of one client.
pub(super) struct Session {
    service: McpService,
    /// Ends the task that notifies the client of changes.
    closed: DropGuard,
    /// True once the task that notifies the client of changes was started.
    has_notifier: AtomicBool,
    subscriptions: Subscriptions,
    /// The lowest level of log messages for the client. `None` if it has not requested any.
    log_level: Mutex<Option<LoggingLevel>>,
    /// Counts the session. `None` for standard input and output.
    _permit: Option<SessionPermit>,
}

impl Session {
    pub(super) fn new(service: McpService, permit: Option<SessionPermit>) -> Self {
        let closed = CancellationToken::new().drop_guard();
        Self {
            service,
            closed,
            has_notifier: AtomicBool::new(false),
            subscriptions: Subscriptions::default(),
            log_level: Mutex::default(),
            _permit: permit,
        }
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

/// Returns true if the sender of a request may use every app, and items that belong to no app.
pub(super) fn has_every_app(context: &RequestContext<RoleServer>) -> bool {
    scope(context).is_none_or(|scope| scope.has_every_app())
}

/// A change that a client is notified of.
enum Change {
    Tools,
    /// The resource at this URI.
    Resource(String),
}

/// The changes that one client is notified of.
struct Changes {
    /// `None` once the catalog does not change any more.
    catalog: Option<watch::Receiver<u64>>,
    exposure: watch::Receiver<u64>,
    artifacts: broadcast::Receiver<ArtifactChange>,
    subscriptions: Subscriptions,
}

impl Changes {
    fn new(service: &McpService, subscriptions: Subscriptions) -> Self {
        let (catalog, artifacts) = (Some(service.0.catalog.changes()), service.0.changes.subscribe());
        Self { catalog, exposure: service.0.exposure_changes.subscribe(), artifacts, subscriptions }
    }

    /// Waits for the next change.
    async fn next(&mut self) -> Change {
        loop {
            let catalog = async {
                match &mut self.catalog {
                    Some(catalog) => catalog.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = catalog => match changed {
                    Ok(()) => return Change::Tools,
                    Err(_) => self.catalog = None,
                },
                // The service owns the sender.
                Ok(()) = self.exposure.changed() => return Change::Tools,
                uri = self.subscriptions.next_change(&mut self.artifacts) => return Change::Resource(uri),
            }
        }
    }
}

/// Waits until a run of this user has stored an artifact.
async fn stored_by(user: &str, changes: &mut broadcast::Receiver<ArtifactChange>) {
    loop {
        match changes.recv().await {
            Ok(change) if &*change.user == user => return,
            Err(broadcast::error::RecvError::Lagged(_)) => return,
            Ok(_) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_prompts()
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
        self.service.call(target, request, &context).await
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        // The library compares arguments with their headers, for tools whose schemas have `x-mcp-header`.
        self.service.loaded_tools().tool(name).cloned()
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
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(self.service.templates(&context)))
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let target = self.service.subscription_target(&request.uri, &context).await?;
        let added = self.subscriptions.add(request.uri, target).await;
        added.map_err(|reason| ErrorData::invalid_params(reason, None))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.remove(&request.uri);
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(self.service.prompts(&context)))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.service.prompt(request, &context).await
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
        // A client can send this notification several times.
        if self.has_notifier.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut changes = Changes::new(&self.service, self.subscriptions.clone());
        let closed = self.closed.token().clone();
        tokio::spawn(closed.run_until_cancelled_owned(async move {
            loop {
                let sent = match changes.next().await {
                    Change::Tools => context.peer.notify_tool_list_changed().await,
                    Change::Resource(uri) => {
                        context.peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await
                    }
                };
                if sent.is_err() {
                    break;
                }
            }
        }));
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        // The library removes capabilities that the server does not announce.
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let subscriptions = Subscriptions::default();
        // The client has its confirmation already, so changes count from here on.
        let mut changes = Changes::new(&self.service, subscriptions.clone());
        let mut stored = self.service.0.changes.subscribe();
        let filter = context.accepted();
        for uri in filter.resource_subscriptions.iter().flatten() {
            let target = self.service.subscription_target(uri, context.request_context()).await?;
            let added = subscriptions.add(uri.clone(), target).await;
            added.map_err(|reason| ErrorData::invalid_params(reason, None))?;
        }
        let (wants_tools, wants_list) = (filter.tools_list_changed, filter.resources_list_changed);
        let user = user(context.request_context());
        loop {
            let sent = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.next() => match change {
                    Change::Tools if wants_tools == Some(true) => context.sink().notify_tool_list_changed().await,
                    Change::Tools => Ok(()),
                    Change::Resource(uri) => context.sink().notify_resource_updated(uri).await,
                },
                () = stored_by(user, &mut stored), if wants_list == Some(true) => {
                    context.sink().notify_resource_list_changed().await
                }
            };
            if sent.is_err() {
                return Ok(());
            }
        }
    }
}
