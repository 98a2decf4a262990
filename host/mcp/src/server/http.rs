//! The server over streamable HTTP.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::McpService;
use super::session::Session;

/// Maximum number of clients at a time.
const MAX_SESSIONS: usize = 256;

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
        let (close, sessions) = (CancellationToken::new(), Arc::new(Semaphore::new(MAX_SESSIONS)));
        let config = config.with_cancellation_token(close.clone());
        let session = move || match sessions.clone().try_acquire_owned() {
            Ok(permit) => Ok(Session::new(service.clone(), Some(permit))),
            Err(_) => {
                Err(io::Error::other(format!("the maximum of {MAX_SESSIONS} MCP sessions is open; try again later")))
            }
        };
        Self { service: StreamableHttpService::new(session, Arc::default(), config), close }
    }

    /// Answers a request whose body was received. A [`ClientScope`](hatchery_core::ClientScope) among its extensions
    /// limits the apps and tools of the client, and names the user of its sessions.
    pub async fn handle(&self, request: Request<Bytes>) -> Response<BoxBody<Bytes, Infallible>> {
        self.service.handle(request.map(Full::new)).await
    }

    /// Ends all sessions and their streams.
    pub fn close(&self) {
        self.close.cancel();
    }
}
