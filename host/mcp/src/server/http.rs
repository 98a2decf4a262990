//! The server over streamable HTTP.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hatchery_core::ClientScope;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::McpService;
use super::session::Session;
use super::session_limit::SessionLimit;

tokio::task_local! {
    /// The client whose request the task answers.
    static REQUESTER: Arc<Requester>;
}

/// A client that has sent a request.
struct Requester {
    /// The user of its credentials.
    client: Option<Arc<str>>,
    /// The reason why it has got no session.
    refusal: OnceLock<String>,
}

/// The endpoint of a host for MCP clients, in both eras of the protocol. Cheap to clone.
#[derive(Clone)]
pub struct McpEndpoint {
    service: StreamableHttpService<Session, LocalSessionManager>,
    close: CancellationToken,
}

impl McpEndpoint {
    /// Creates the endpoint of a service, for a server that checks hosts, origins and the size of bodies itself.
    pub fn new(service: McpService) -> Self {
        let config = StreamableHttpServerConfig::default();
        Self::with_config(service, config.disable_allowed_hosts().with_max_request_body_bytes(usize::MAX))
    }

    /// Creates the endpoint of a service, for a server on loopback without its own checks: requests for other hosts,
    /// and requests of web pages from elsewhere, are refused.
    pub fn on_loopback(service: McpService) -> Self {
        let origins = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
        Self::with_config(service, StreamableHttpServerConfig::default().with_allowed_origins(origins))
    }

    fn with_config(service: McpService, config: StreamableHttpServerConfig) -> Self {
        let (close, sessions) = (CancellationToken::new(), SessionLimit::default());
        let config = config.with_cancellation_token(close.clone());
        let session = move || {
            let requester = REQUESTER.try_with(Arc::clone).ok();
            let client = requester.as_ref().and_then(|requester| requester.client.clone());
            match sessions.acquire(client) {
                Ok(permit) => Ok(Session::new(service.clone(), Some(permit))),
                Err(reason) => {
                    if let Some(requester) = requester {
                        requester.refusal.get_or_init(|| reason.clone());
                    }
                    Err(io::Error::other(reason))
                }
            }
        };
        Self { service: StreamableHttpService::new(session, Arc::default(), config), close }
    }

    /// Answers a request whose body was received. A [`ClientScope`] among its extensions limits the apps and tools of
    /// the client, and names the user of its sessions. The status is 503 if there are too many sessions.
    pub async fn handle(&self, request: Request<Bytes>) -> Response<BoxBody<Bytes, Infallible>> {
        let client = request.extensions().get::<ClientScope>().and_then(|scope| scope.user.clone());
        let requester = Arc::new(Requester { client, refusal: OnceLock::new() });
        let response = REQUESTER.scope(requester.clone(), self.service.handle(request.map(Full::new))).await;
        match requester.refusal.get() {
            // A request that needs no session of its own has another status.
            Some(reason) if response.status() == StatusCode::INTERNAL_SERVER_ERROR => busy(reason),
            _ => response,
        }
    }

    /// Ends all sessions and their streams.
    pub fn close(&self) {
        self.close.cancel();
    }
}

/// Returns the response to a client that has got no session.
fn busy(reason: &str) -> Response<BoxBody<Bytes, Infallible>> {
    let mut response = Response::new(Full::new(Bytes::from(reason.to_owned())).boxed());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
