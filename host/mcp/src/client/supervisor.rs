//! Keeps one connection to a server: opens it at the first use, and again when it has ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hatchery_core::sync::MutexExt;
use hatchery_core::{ItemKind, MCP_UNAVAILABLE, RunError};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, OpenConnection, endpoint};
use super::oauth::Authorization;
use super::session_servers::SessionServers;
use super::{Browser, McpError};
use crate::config::{ServerConfig, Transport};

/// Delays between attempts to connect, which double from the first to the last.
const FIRST_DELAY: Duration = Duration::from_millis(250);
const LAST_DELAY: Duration = Duration::from_secs(30);

/// Time after a failed attempt in which requests fail immediately instead of trying again.
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// The state of the connection to a server.
#[derive(Clone)]
pub(super) enum ConnectionStatus {
    /// Not connected: no call has needed it yet.
    Idle,
    Connecting,
    Ready(Arc<Connection>),
    Down {
        error: McpError,
        since: Instant,
    },
    Stopped,
}

/// A configured server, with its connection.
pub(super) struct Server {
    pub(super) name: Arc<str>,
    pub(super) config: ServerConfig,
    status: watch::Sender<ConnectionStatus>,
    is_started: AtomicBool,
    /// The challenge (`WWW-Authenticate`) of the server to a call that lacked rights.
    challenge: Mutex<Option<String>>,
    /// Notified to connect now.
    wake: Notify,
    stop: CancellationToken,
    /// The connections with headers of sessions.
    pub(super) sessions: SessionServers,
}

impl Server {
    pub(super) fn new(name: impl Into<Arc<str>>, config: ServerConfig) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            config,
            status: watch::Sender::new(ConnectionStatus::Idle),
            is_started: AtomicBool::new(false),
            challenge: Mutex::default(),
            wake: Notify::new(),
            stop: CancellationToken::new(),
            sessions: SessionServers::default(),
        })
    }

    pub(super) fn status(&self) -> ConnectionStatus {
        self.sessions.status().unwrap_or_else(|| self.status.borrow().clone())
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Starts to connect, unless it has begun.
    pub(super) fn start(self: &Arc<Self>) {
        if !self.stop.is_cancelled() && !self.is_started.swap(true, Ordering::AcqRel) {
            tokio::spawn(supervise(self.clone()));
        }
    }

    /// Returns the connection. Waits while it is being opened, and tries to open it if it is down.
    ///
    /// # Errors
    /// The reason why the server is down.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, McpError> {
        self.start();
        let mut status = self.status.subscribe();
        let mut is_retried = false;
        loop {
            match status.borrow_and_update().clone() {
                ConnectionStatus::Ready(connection) if !connection.is_closed() => return Ok(connection),
                ConnectionStatus::Stopped => return Err(McpError::Stopped),
                ConnectionStatus::Down { error, since } if is_retried || since.elapsed() < FAILURE_TTL => {
                    return Err(error);
                }
                ConnectionStatus::Down { .. } => {
                    is_retried = true;
                    self.wake.notify_one();
                }
                ConnectionStatus::Idle | ConnectionStatus::Connecting | ConnectionStatus::Ready(_) => {}
            }
            if status.changed().await.is_err() {
                return Err(McpError::Stopped);
            }
        }
    }

    /// Returns the error of a run that needs the server.
    pub(super) fn unavailable(&self, error: &McpError) -> RunError {
        RunError::Extension {
            kind: ItemKind::Toolset,
            name: format!("mcp:{}", self.name),
            code: MCP_UNAVAILABLE.into(),
            message: format!("the MCP server `{}` is not available: {error}", self.name),
        }
    }

    /// Keeps the challenge of the server to a call that lacked rights, for the next login.
    pub(super) fn set_challenge(&self, challenge: String) {
        *self.challenge.lock_unpoisoned() = Some(challenge);
    }

    /// Lets a person grant access to the server, if it demands that.
    ///
    /// # Errors
    /// If the server is down for another reason, has no settings for it, or access is not granted.
    pub(super) async fn login(self: &Arc<Self>, browser: &dyn Browser) -> Result<(), McpError> {
        // The challenge to a refused call names more scopes than the one to the handshake.
        let known = self.challenge.lock_unpoisoned().take();
        let challenge = match known {
            Some(challenge) => challenge,
            None => match self.probe().await {
                Ok(()) => return Ok(()),
                Err(McpError::LoginRequired(challenge)) => challenge,
                Err(error) => return Err(error),
            },
        };
        let (Transport::Http(http), Some(oauth)) = (&self.config.transport, &self.config.oauth) else {
            return Err(McpError::LoginRequired(challenge));
        };
        let endpoint = endpoint(&http.url);
        let authorization = Authorization { config: oauth, endpoint: &endpoint, limits: &self.config.limits };
        authorization.login(&challenge, browser).await?;
        self.wake.notify_one();
        Ok(())
    }

    /// Connects and lists the tools, for which some servers demand access that the handshake does not need.
    async fn probe(&self) -> Result<(), McpError> {
        let open = OpenConnection::open(&self.name, &self.config).await?;
        let listed = open.connection.tools().await;
        let stop = CancellationToken::new();
        stop.cancel();
        open.run(&stop).await;
        listed.map(drop)
    }

    /// Closes the connection and waits until the process has ended.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.sessions.close().await;
        if self.is_started.load(Ordering::Acquire) {
            let mut status = self.status.subscribe();
            let _ = status.wait_for(|status| matches!(status, ConnectionStatus::Stopped)).await;
        }
    }
}

/// Connects, waits for the end of the connection, and begins again.
async fn supervise(server: Arc<Server>) {
    let mut delay = FIRST_DELAY;
    let mut reported = None;
    while !server.stop.is_cancelled() {
        server.status.send_replace(ConnectionStatus::Connecting);
        let opened = server.stop.run_until_cancelled(OpenConnection::open(&server.name, &server.config)).await;
        let (was_used, error) = match opened {
            None => break,
            Some(Ok(open)) => {
                tracing::info!(server = &*server.name, "connected to an MCP server");
                server.status.send_replace(ConnectionStatus::Ready(open.connection.clone()));
                reported = None;
                open.run(&server.stop).await
            }
            Some(Err(error)) => (false, error),
        };
        if server.stop.is_cancelled() {
            break;
        }
        if reported.as_ref() != Some(&error) {
            tracing::warn!(server = &*server.name, "no connection to an MCP server: {error}");
            reported = Some(error.clone());
        }
        if was_used {
            // It worked, so it is reopened immediately: a tool call may have ended it.
            delay = FIRST_DELAY;
            continue;
        }
        server.status.send_replace(ConnectionStatus::Down { error, since: Instant::now() });
        tokio::select! {
            () = tokio::time::sleep(delay) => delay = (delay * 2).min(LAST_DELAY),
            () = server.wake.notified() => {}
            () = server.stop.cancelled() => {}
        }
    }
    server.status.send_replace(ConnectionStatus::Stopped);
}
