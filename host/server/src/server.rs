//! The server: binding and graceful shutdown.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hatchery::ServerConfig;
use hatchery_core::pluralize;
use thiserror::Error;
use tokio::net::TcpListener;

use crate::connections::{Accept, Connections, Transport, UnixSocket};
use crate::service::HttpService;
use crate::state::AppState;
use crate::tls::Tls;
use crate::{background_runs, descriptors, retention};

/// Time for cancelled runs to report the cancellation to their clients.
const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// A server that is bound to an address or a socket.
pub struct Server {
    listener: Listener,
    state: AppState,
}

enum Listener {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixSocket),
}

impl Accept for Listener {
    async fn accept(&self) -> io::Result<(Transport, Option<IpAddr>)> {
        match self {
            Self::Tcp(listener, _) => Accept::accept(listener).await,
            Self::Unix(socket) => Accept::accept(socket).await,
        }
    }
}

/// Errors that prevent the server from starting.
#[derive(Debug, Error)]
pub enum BindError {
    /// It cannot listen on its address.
    #[error("cannot listen on {address}: {source}{hint}")]
    Listen { address: SocketAddr, source: io::Error, hint: &'static str },
    /// It cannot listen on its Unix socket.
    #[error("cannot listen on unix:{path}: {source}{hint}", path = path.display())]
    Socket { path: PathBuf, source: io::Error, hint: &'static str },
    /// The keys of its clients cannot be read.
    #[error("server.auth: {0}")]
    Auth(String),
    /// Its certificate cannot be read.
    #[error("server.tls: {0}")]
    Tls(String),
}

/// Binds an address. Returns the port that was chosen instead of port 0.
async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|source| {
        let hint = match io::Error::kind(&source) {
            io::ErrorKind::AddrInUse => "; another program uses this port: choose another one, or 0 for any free port",
            io::ErrorKind::PermissionDenied => "; ports below 1024 may need privileges: choose a higher one",
            _ => "",
        };
        BindError::Listen { address, source, hint }
    })
}

impl Server {
    /// Binds a server to an address, and reads its certificate and the keys of its clients. Port 0 chooses a free port.
    pub async fn bind(address: SocketAddr, state: AppState) -> Result<Self, BindError> {
        state.open_auth().map_err(BindError::Auth)?;
        state.open_tls().map_err(BindError::Tls)?;
        let (listener, address) = listen(address).await?;
        Ok(Self { listener: Listener::Tcp(listener, address), state })
    }

    /// Checks that a server can be bound to an address, without accepting connections.
    pub async fn check_address(address: SocketAddr) -> Result<(), BindError> {
        listen(address).await.map(|_| ())
    }

    /// Binds a server to a Unix socket that the user and the group of the process can connect to. Reads its certificate
    /// and the keys of its clients. A stale socket is replaced; the socket of the server is removed when it stops.
    pub async fn bind_unix(path: &Path, state: AppState) -> Result<Self, BindError> {
        state.open_auth().map_err(BindError::Auth)?;
        state.open_tls().map_err(BindError::Tls)?;
        match UnixSocket::bind(path) {
            Ok(socket) => Ok(Self { listener: Listener::Unix(socket), state }),
            Err(source) => {
                let hint = match io::Error::kind(&source) {
                    io::ErrorKind::AddrInUse => "; stop it, or choose another path",
                    io::ErrorKind::AlreadyExists => "; choose another path",
                    io::ErrorKind::NotFound => "; create the folder first",
                    io::ErrorKind::InvalidInput => "; choose a shorter path",
                    _ => "",
                };
                Err(BindError::Socket { path: path.to_owned(), source, hint })
            }
        }
    }

    /// Returns the address. `None` if the server listens on a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.listener {
            Listener::Tcp(_, address) => Some(*address),
            Listener::Unix(_) => None,
        }
    }

    /// Serves until `shutdown` completes. Then it accepts no more requests, waits for active runs until
    /// `drain_timeout`, cancels the remaining ones and returns. Raises the limit of open files of the process to its
    /// maximum.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let is_local = self.local_addr().is_none_or(|address| address.ip().is_loopback());
        let service = HttpService::new(self.state.clone(), is_local);
        let max_files = descriptors::raise_limit();
        let max_connections = |config: &ServerConfig| descriptors::clamp_connections(config.max_connections, max_files);
        let mut changes = self.state.changes();
        let (tls, config) = (self.state.tls(), self.state.config());
        let connections = Connections::new(Arc::new(service), max_connections(&config), &config);
        let connections = connections.with_tls(tls.map(Tls::acceptor));
        let follow_config = async {
            while changes.changed().await.is_ok() {
                let config = self.state.config();
                connections.reconfigure(max_connections(&config), config);
            }
        };
        let follow_certificate = async {
            match tls {
                Some(tls) => tls.follow_files().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = connections.accept(self.listener) => match never {},
            () = background_runs::continue_interrupted(&self.state) => {}
            () = follow_certificate => {}
            () = follow_config => {}
            () = retention::follow_rules(&self.state) => {}
            () = shutdown => {}
        }
        shut_down(&self.state, connections).await;
    }
}

/// Waits for active runs until `drain_timeout`, then cancels them.
async fn shut_down(state: &AppState, connections: Connections) {
    state.stop().cancel();
    let runner = state.runner();
    let drain_timeout = state.config().drain_timeout;
    tracing::info!(
        active_runs = runner.active_runs(),
        connections = connections.open(),
        "stopping: waiting for active runs and connections, at most {}",
        pluralize(drain_timeout.as_secs(), "second", "seconds")
    );
    let mut end = pin!(async {
        // Close live runs and client streams, which never end by themselves.
        let close_sessions = async {
            state.live().close().await;
            runner.drain().await;
            if let Some(mcp) = state.mcp() {
                mcp.close();
            }
            if let Some(a2a) = state.a2a() {
                a2a.close();
            }
        };
        tokio::join!(connections.shutdown(), close_sessions);
        // Requests that were in progress may have started runs after the first drain.
        runner.drain().await;
    });
    if tokio::time::timeout(drain_timeout, &mut end).await.is_ok() {
        return;
    }
    tracing::warn!(active_runs = runner.active_runs(), "the drain timeout has passed: cancelling runs and connections");
    runner.stop_runs();
    if tokio::time::timeout(SHUTDOWN_GRACE_PERIOD, end).await.is_err() {
        tracing::warn!(active_runs = runner.active_runs(), "runs or connections did not end: dropping them");
    }
}
