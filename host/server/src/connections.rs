//! Connections: as many as may be, each with a time in which a request's head must come.
//!
//! Past the limit connections wait in the kernel's queue until another one ends. One that is idle between two requests counts, and is
//! closed after the same time as one whose head does not come. HTTP/1.1 only.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The open connections of a server.
pub(crate) struct Connections {
    router: Router,
    http: http1::Builder,
    open: GracefulShutdown,
    free: Arc<Semaphore>,
}

impl Connections {
    /// Serves `router` on at most `most` connections, at least one; a request's head must come within `head_timeout`.
    pub(crate) fn new(router: Router, most: usize, head_timeout: Duration) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(head_timeout);
        let free = Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        Self { router, http, open: GracefulShutdown::new(), free }
    }

    /// Takes connections for ever; the listener closes with this future.
    pub(crate) async fn accept(&self, mut listener: TcpListener) -> Infallible {
        loop {
            if self.free.available_permits() == 0 {
                tracing::warn!(
                    "as many connections are open as may be: new ones wait; server.max_connections raises the limit"
                );
            }
            // Nobody closes the semaphore, so there is a permit, sooner or later.
            let permit = self.free.clone().acquire_owned().await.ok();
            let (stream, _) = Listener::accept(&mut listener).await;
            self.serve(stream, permit);
        }
    }

    fn serve(&self, stream: TcpStream, permit: Option<OwnedSemaphorePermit>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set");
        }
        let service = TowerToHyperService::new(self.router.clone());
        let connection = self.open.watch(self.http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke or was too slow");
            }
            drop(permit);
        });
    }

    /// Lets every connection end after the request that it is in.
    pub(crate) async fn end(self) {
        self.open.shutdown().await;
    }
}
