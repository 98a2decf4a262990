//! The listening server: binding, layers, and an end that lets runs finish.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::serve::ListenerExt;
use axum::{Router, middleware};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::state::AppState;
use crate::{guard, observe, routes};

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
    /// returns.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let stop = CancellationToken::new();
        let listener = self.listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY cannot be set");
            }
        });
        let router = router(self.state.clone(), self.address.ip().is_loopback());
        let serve = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        let mut serve = pin!(serve.into_future());
        tokio::select! {
            result = &mut serve => return result,
            () = shutdown => stop.cancel(),
        }
        let runner = self.state.runner();
        tracing::info!(active_runs = runner.active_runs(), "stopping: no new requests, active runs may end");
        let mut end = pin!(async {
            let result = serve.await;
            runner.drain().await;
            result
        });
        if let Ok(result) = tokio::time::timeout(self.state.config().drain_timeout, &mut end).await {
            return result;
        }
        tracing::warn!(active_runs = runner.active_runs(), "runs or connections are still open: they are cancelled");
        self.state.stop_runs().cancel();
        tokio::time::timeout(LAST_WORDS, end).await.unwrap_or(Ok(()))
    }
}

/// All routes with their layers. `loopback` says that the server is for this machine only.
fn router(state: AppState, loopback: bool) -> Router {
    let mut router = routes::all();
    if loopback {
        router = router.layer(middleware::from_fn(guard::local_only));
    }
    router
        .layer(CatchPanicLayer::custom(observe::panicked))
        .layer(middleware::from_fn(observe::observe))
        .with_state(state)
}
