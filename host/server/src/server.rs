//! The listening server: binding, layers, and an end that lets runs finish.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::{Router, middleware};
use thiserror::Error;
use tokio::net::TcpListener;
use tower_http::catch_panic::CatchPanicLayer;

use crate::connections::Connections;
use crate::guard::Guard;
use crate::state::AppState;
use crate::{body, descriptors, guard, headers, observe, routes};

/// How long cancelled runs get to say so to their clients.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A server that has its address and does not serve yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    state: AppState,
}

/// Why a server cannot have its address.
#[derive(Debug, Error)]
#[error("cannot listen on {address}: {source}{hint}")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
    hint: &'static str,
}

impl Server {
    /// Listens on an address; port 0 is any free one.
    ///
    /// # Errors
    /// When the address is taken or is not this machine's.
    pub async fn bind(address: SocketAddr, state: AppState) -> Result<Self, BindError> {
        let bound = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        match bound.await {
            Ok((listener, address)) => Ok(Self { listener, address, state }),
            Err(source) => {
                let hint = match io::Error::kind(&source) {
                    io::ErrorKind::AddrInUse => "; another program uses this port: choose another one, 0 for any",
                    io::ErrorKind::PermissionDenied => "; ports below 1024 may need more rights: choose a higher one",
                    _ => "",
                };
                Err(BindError { address, source, hint })
            }
        }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` ends. Then it takes no more requests, gives active runs `drain_timeout` to end, cancels those that have not, and
    /// returns. Raises the process's limit of open files as far as it may.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let config = self.state.config();
        let router = router(self.state.clone(), self.address.ip().is_loopback());
        let most = descriptors::clamp_connections(config.max_connections, descriptors::raise_limit());
        let connections = Connections::new(router, most, config);
        tokio::select! {
            never = connections.accept(self.listener) => match never {},
            () = shutdown => {}
        }
        let runner = self.state.runner();
        tracing::info!(active_runs = runner.active_runs(), "stopping: no new requests, active runs may end");
        let mut end = pin!(async {
            connections.end().await;
            runner.drain().await;
        });
        if tokio::time::timeout(config.drain_timeout, &mut end).await.is_ok() {
            return;
        }
        tracing::warn!(active_runs = runner.active_runs(), "runs or connections are still open: they are cancelled");
        self.state.stop_runs().cancel();
        if tokio::time::timeout(LAST_WORDS, end).await.is_err() {
            tracing::warn!(active_runs = runner.active_runs(), "runs or connections did not end: they are dropped");
        }
    }
}

/// All routes with their layers. `loopback` says that the server is for this machine only.
fn router(state: AppState, loopback: bool) -> Router {
    let guard = Arc::new(Guard::new(loopback, &state.config().allowed_hosts));
    routes::all()
        .layer(middleware::from_fn_with_state(state.body_budget().clone(), body::hold))
        .layer(middleware::from_fn_with_state(guard, guard::check))
        .layer(CatchPanicLayer::custom(observe::panicked))
        .layer(middleware::from_fn(observe::observe))
        .layer(middleware::from_fn(headers::add))
        .with_state(state)
}
