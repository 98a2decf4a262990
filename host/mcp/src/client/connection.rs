//! One connection to a server, from the handshake to the end.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hatchery_core::sync::MutexExt;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::model::{Prompt, ProtocolVersion, Resource};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, RunningService, ServiceError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, InsufficientScopeError, StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
    StreamableHttpError,
};
use tokio_util::sync::CancellationToken;

use super::McpError;
use super::flood::FloodGuard;
use super::handler::{GuardedHandler, Handler};
use super::input::{CallInput, CurrentCall, CurrentCallGuard};
use super::listing::ToolListing;
use super::lists::ServerList;
use super::oauth::Authorization;
use super::progress::ProgressReports;
use super::sse::SseTransport;
use super::stdio::{self, Process};
use super::{prompts, resources};
use crate::config::{Handshake, HttpServer, Limits, ServerConfig, StdioServer, Transport};

/// A connection that takes longer than this part of the `connect_timeout` is logged.
const SLOW_PART: u32 = 6;

/// The state that the parts of a connection share.
pub(super) struct ConnectionState {
    limits: Limits,
    flood: FloodGuard,
    /// The first reason why the connection has ended.
    failure: Mutex<Option<McpError>>,
    pub(super) tools: ServerList<ToolListing>,
    pub(super) resources: ServerList<Vec<Resource>>,
    pub(super) prompts: ServerList<Vec<Prompt>>,
    pub(super) progress: ProgressReports,
    /// True once a request was made.
    is_used: AtomicBool,
    /// True if the server may ask a person.
    pub(super) can_elicit: bool,
    /// True if the server may use a model.
    pub(super) can_sample: bool,
    /// The call that the server may ask about.
    pub(super) current_call: Arc<CurrentCall>,
    /// Closes the connection.
    close: CancellationToken,
}

impl ConnectionState {
    fn new(config: &ServerConfig) -> Arc<Self> {
        let limits = &config.limits;
        Arc::new(Self {
            flood: FloodGuard::new(limits.max_notifications),
            can_elicit: config.elicitation,
            can_sample: config.sampling.is_some(),
            current_call: Arc::default(),
            limits: limits.clone(),
            failure: Mutex::default(),
            tools: ServerList::default(),
            resources: ServerList::default(),
            prompts: ServerList::default(),
            progress: ProgressReports::default(),
            is_used: AtomicBool::new(false),
            close: CancellationToken::new(),
        })
    }

    /// Closes the connection for this reason, unless there is an earlier one.
    pub(super) fn fail(&self, error: McpError) {
        self.failure.lock_unpoisoned().get_or_insert(error);
        self.close.cancel();
    }

    pub(super) fn count_notification(&self) {
        if !self.flood.admit(Instant::now()) {
            self.fail(McpError::Flood(self.limits.max_notifications));
        }
    }

    pub(super) fn failure(&self) -> McpError {
        self.failure.lock_unpoisoned().clone().unwrap_or(McpError::Closed(String::new()))
    }
}

/// A connection that is ready for requests. Cheap to share; [`OpenConnection`] owns its end.
pub(super) struct Connection {
    pub(super) server: Arc<str>,
    pub(super) limits: Limits,
    pub(super) peer: Peer<RoleClient>,
    state: Arc<ConnectionState>,
}

impl Connection {
    /// Returns the tools. They are listed once, and again after they have changed.
    pub(super) async fn tools(&self) -> Result<Arc<ToolListing>, McpError> {
        self.state.is_used.store(true, Ordering::Release);
        self.state.tools.get(self.can_cache_lists(), ToolListing::fetch(self)).await
    }

    /// Returns the resources, as [`Connection::tools`] does. Empty if the server offers none.
    pub(super) async fn resources(&self) -> Result<Arc<Vec<Resource>>, McpError> {
        self.state.resources.get(self.can_cache_lists(), resources::fetch(self)).await
    }

    /// Returns the prompts, as [`Connection::tools`] does.
    pub(super) async fn prompts(&self) -> Result<Arc<Vec<Prompt>>, McpError> {
        self.state.prompts.get(self.can_cache_lists(), prompts::fetch(self)).await
    }

    /// Returns true before revision 2026-07-28. Since then a list says for how long it is valid, which the library
    /// observes.
    fn can_cache_lists(&self) -> bool {
        !self.is_stateless()
    }

    /// Returns true if the server declares that it offers resources.
    pub(super) fn has_resources(&self) -> bool {
        self.peer.peer_info().is_some_and(|info| info.capabilities.resources.is_some())
    }

    /// Returns true if the server declares that it offers resources or prompts, and no tools.
    pub(super) fn has_no_tools(&self) -> bool {
        self.peer.peer_info().is_some_and(|info| {
            let offered = &info.capabilities;
            offered.tools.is_none() && (offered.resources.is_some() || offered.prompts.is_some())
        })
    }

    /// Returns the calls that report progress.
    pub(super) fn progress(&self) -> &ProgressReports {
        &self.state.progress
    }

    /// Returns true for revision 2026-07-28, in which a server does not call its client.
    pub(super) fn is_stateless(&self) -> bool {
        self.peer.peer_info().is_some_and(|info| info.protocol_version == ProtocolVersion::V_2026_07_28)
    }

    /// Waits until the server may ask for the input of this call. `None` if it need not wait, or must not ask.
    pub(super) async fn admit_requests(&self, input: &Arc<CallInput>) -> Option<CurrentCallGuard> {
        if self.is_stateless() || !(self.state.can_elicit || self.state.can_sample) {
            return None;
        }
        Some(self.state.current_call.begin(input.clone()).await)
    }

    /// Returns the names of the tools that were listed last, for reports.
    pub(super) fn known_tools(&self) -> Vec<String> {
        self.state.tools.latest().iter().flat_map(|tools| tools.names()).map(Into::into).collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.close.is_cancelled() || self.peer.is_transport_closed()
    }

    /// Returns the reason why the connection has ended.
    pub(super) fn failure(&self) -> McpError {
        self.state.failure()
    }

    /// Closes the connection if the server refuses the host's token, so that the next one gets another. Returns the
    /// server's challenge.
    pub(super) fn refusal(&self, error: &ServiceError) -> Option<String> {
        let ServiceError::TransportSend(error) = error else { return None };
        let challenge = challenge(error.error.as_ref())?;
        self.state.fail(McpError::LoginRequired(challenge.clone()));
        Some(challenge)
    }
}

/// Returns the challenge (`WWW-Authenticate`) in the error of a request that lacked rights.
fn challenge(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(required) = error.downcast_ref::<AuthRequiredError>() {
            return Some(required.www_authenticate_header.clone());
        }
        if let Some(scope) = error.downcast_ref::<InsufficientScopeError>() {
            return Some(scope.www_authenticate_header.clone());
        }
        next = error.source();
    }
    None
}

/// The library's end of a connection.
type ClientService = RunningService<RoleClient, GuardedHandler>;

/// The owner of a connection.
pub(super) struct OpenConnection {
    pub(super) connection: Arc<Connection>,
    service: ClientService,
    process: Option<Process>,
}

impl OpenConnection {
    /// Connects to a server.
    ///
    /// # Errors
    /// If it cannot be started or reached, or the handshake fails or takes too long.
    pub(super) async fn open(server: &Arc<str>, config: &ServerConfig) -> Result<Self, McpError> {
        let limits = &config.limits;
        let state = ConnectionState::new(config);
        let connect = async {
            match &config.transport {
                Transport::Stdio(stdio) => {
                    let opened = open_stdio(server, config, stdio, &state).await;
                    opened.map(|(service, process)| (service, Some(process)))
                }
                Transport::Http(http) => open_http(server, config, http, &state).await.map(|service| (service, None)),
                Transport::Sse(http) => open_sse(server, limits, http, &state).await.map(|service| (service, None)),
            }
        };
        let connect = log_slow(server, limits.connect_timeout, connect);
        let connected = tokio::time::timeout(limits.connect_timeout, connect).await;
        let (service, process) = connected.unwrap_or(Err(McpError::ConnectTimeout(limits.connect_timeout)))?;
        let connection = Arc::new(Connection {
            server: server.clone(),
            limits: limits.clone(),
            peer: service.peer().clone(),
            state,
        });
        Ok(Self { connection, service, process })
    }

    /// Waits until the connection has ended or `stop` is cancelled, and ends its process. Returns true if it was used,
    /// and the reason of its end.
    pub(super) async fn run(self, stop: &CancellationToken) -> (bool, McpError) {
        let Self { connection, service, process } = self;
        let state = &connection.state;
        let end = service.cancellation_token();
        {
            let mut ended = std::pin::pin!(service.waiting());
            tokio::select! {
                _ = &mut ended => {}
                () = state.close.cancelled() => {
                    end.cancel();
                    let _ = ended.await;
                }
                () = stop.cancelled() => {
                    state.fail(McpError::Stopped);
                    end.cancel();
                    let _ = ended.await;
                }
            }
        }
        if let Some(mut process) = process {
            state.fail(McpError::Closed(process.last_output().await));
            process.stop().await;
        }
        state.fail(McpError::Closed(String::new()));
        (state.is_used.load(Ordering::Acquire), state.failure())
    }
}

/// Waits for a connection. Logs once that it takes long, as with a command that first downloads its program.
async fn log_slow<T>(server: &str, timeout: Duration, connect: impl Future<Output = T>) -> T {
    let mut connect = std::pin::pin!(connect);
    let delay = timeout / SLOW_PART;
    if let Ok(connected) = tokio::time::timeout(delay, connect.as_mut()).await {
        return connected;
    }
    tracing::warn!(
        server,
        "an MCP server has not answered for {delay:?}; waiting up to {timeout:?}, its `connect_timeout`"
    );
    connect.await
}

/// Starts the process of a server, and does the handshake.
async fn open_stdio(
    server: &Arc<str>,
    config: &ServerConfig,
    stdio: &StdioServer,
    state: &Arc<ConnectionState>,
) -> Result<(ClientService, Process), McpError> {
    let mut started = stdio::start(server, stdio, config.limits.max_message, state)?;
    let transport = AsyncRwTransport::new_client(started.stdout, started.stdin).with_max_line_length(usize::MAX);
    match handler(server, state).serve_with_lifecycle(transport, lifecycle(config)).await {
        Ok(service) => Ok((service, started.process)),
        Err(error) => Err(explain(state, &mut started.process, &error).await),
    }
}

/// Connects to a server by streamable HTTP, and does the handshake.
async fn open_http(
    server: &Arc<str>,
    config: &ServerConfig,
    http: &HttpServer,
    state: &Arc<ConnectionState>,
) -> Result<ClientService, McpError> {
    let limits = &config.limits;
    let (client, settings) = http_transport(http, limits)?;
    let handler = handler(server, state);
    let served = match &config.oauth {
        None => {
            let transport = StreamableHttpClientTransport::with_client(client, settings);
            handler.serve_with_lifecycle(transport, lifecycle(config)).await
        }
        Some(oauth) => {
            let endpoint = settings.uri.clone();
            let authorization = Authorization { config: oauth, endpoint: &endpoint, limits };
            let client = authorization.client(client).await?;
            let transport = StreamableHttpClientTransport::with_client(client, settings);
            handler.serve_with_lifecycle(transport, lifecycle(config)).await
        }
    };
    served.map_err(|error| match error.auth_challenge() {
        Some(challenge) => McpError::LoginRequired(challenge.to_owned()),
        None => McpError::Handshake(describe_handshake(&error)),
    })
}

/// Connects to a server by HTTP+SSE, and does the handshake.
async fn open_sse(
    server: &Arc<str>,
    limits: &Limits,
    http: &HttpServer,
    state: &Arc<ConnectionState>,
) -> Result<ClientService, McpError> {
    let (client, headers) = http_client(http, limits)?;
    let transport = SseTransport::open(client, headers, &http.url, limits.max_message, state).await?;
    let served = handler(server, state).serve_with_lifecycle(transport, ClientLifecycleMode::Initialize).await;
    served.map_err(|error| McpError::Handshake(describe_handshake(&error)))
}

fn handler(server: &Arc<str>, state: &Arc<ConnectionState>) -> GuardedHandler {
    GuardedHandler(Handler { server: server.clone(), state: state.clone() })
}

fn lifecycle(config: &ServerConfig) -> ClientLifecycleMode {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let legacy_version = Some(ProtocolVersion::LATEST_WITH_INITIALIZE);
    match config.handshake {
        Handshake::Initialize => ClientLifecycleMode::Initialize,
        Handshake::Discover => ClientLifecycleMode::Discover { preferred_versions },
        Handshake::Auto => ClientLifecycleMode::Auto { preferred_versions, legacy_version },
    }
}

/// Returns the error of a failed handshake with a process, with the last output of the process.
async fn explain(state: &ConnectionState, process: &mut Process, error: &ClientInitializeError) -> McpError {
    let printed = process.last_output().await;
    let failure = state.failure.lock_unpoisoned().clone();
    failure.unwrap_or_else(|| McpError::Handshake(format!("{}{printed}", describe_handshake(error))))
}

/// Describes an error of the handshake without the names of Rust types.
fn describe_handshake(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => {
            let cause: &(dyn Error + 'static) = error.error.as_ref();
            let is_unreachable = http_error(cause).is_some_and(reqwest::Error::is_connect);
            let remedy = if is_unreachable { "; check that the server runs, and its `url`" } else { "" };
            describe_causes(cause) + remedy
        }
        error => error.to_string(),
    }
}

/// Describes an error of a transport with its causes, without the URL, which may hold a key.
pub(super) fn describe_causes(error: &(dyn Error + 'static)) -> String {
    let http_error = http_error(error);
    let (mut text, mut cause) = (error.to_string(), error.source());
    if cause.is_none() {
        cause = http_error.and_then(|error| error.source());
    }
    while let Some(error) = cause {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text.push_str(&format!(": {reason}"));
        }
        cause = error.source();
    }
    match http_error.and_then(reqwest::Error::url) {
        Some(url) => text.replace(&format!(" for url ({url})"), ""),
        None => text,
    }
}

/// Returns the error of the HTTP client that has caused an error of a transport.
pub(super) fn http_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a reqwest::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        // The library does not report it as a source.
        if let Some(StreamableHttpError::Client(error)) = error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            return Some(error);
        }
        if let Some(error) = error.downcast_ref::<reqwest::Error>() {
            return Some(error);
        }
        next = error.source();
    }
    None
}

fn http_transport(
    server: &HttpServer,
    limits: &Limits,
) -> Result<(reqwest::Client, StreamableHttpClientTransportConfig), McpError> {
    let (client, headers) = http_client(server, limits)?;
    let headers = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let config = StreamableHttpClientTransportConfig::with_uri(endpoint(&server.url))
        .custom_headers(headers)
        .max_sse_event_size(limits.max_message)
        .max_json_response_size(limits.max_message);
    Ok((client, config))
}

/// Returns an HTTP client for a server, and the headers of every request to it.
fn http_client(server: &HttpServer, limits: &Limits) -> Result<(reqwest::Client, HeaderMap), McpError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &server.headers {
        let invalid = || McpError::Header(name.clone());
        let value = value.read().map_err(|missing| McpError::variable(name, missing))?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| invalid())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?, value);
    }
    // A redirect could carry the headers to another host.
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(limits.connect_timeout)
        .build()
        .map_err(|error| McpError::HttpClient(error.to_string()))?;
    Ok((client, headers))
}

/// Returns the URL, with the path `/mcp` if it has none.
pub(super) fn endpoint(url: &str) -> String {
    match reqwest::Url::parse(url) {
        Ok(mut parsed) if parsed.path() == "/" => {
            parsed.set_path("/mcp");
            parsed.into()
        }
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_path_means_the_usual_endpoint() {
        assert_eq!(endpoint("http://localhost:3000"), "http://localhost:3000/mcp");
        assert_eq!(endpoint("http://localhost:3000/"), "http://localhost:3000/mcp");
        assert_eq!(endpoint("http://localhost:3000/tools?key=1"), "http://localhost:3000/tools?key=1");
    }
}
