//! Connections: how many there may be, from one peer and in all, and how long a peer may keep one waiting.
//!
//! A connection beyond its peer's share is answered with 503 and closed; beyond the total, connections wait in the kernel's queue until
//! another one ends. One that is idle between two requests counts, and is closed after the same time as one whose head does not come.
//! HTTP/1.1 only.

mod peers;
mod throttle;
mod write_timeout;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use hatchery::config::ServerConfig;
use peers::{PeerPermit, Peers};
use throttle::Throttle;
use write_timeout::WriteTimeout;

/// Pauses after an accept that failed: doubled from the first to the last while it goes on failing.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Where connections come from.
pub(crate) trait Accept {
    /// Waits for the next connection.
    fn accept(&self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send;
}

impl Accept for TcpListener {
    fn accept(&self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send {
        Self::accept(self)
    }
}

/// The open connections of a server.
pub(crate) struct Connections {
    router: Router,
    http: http1::Builder,
    open: GracefulShutdown,
    free: Arc<Semaphore>,
    peers: Peers,
    write_timeout: Duration,
    logs: Logs,
}

/// Log lines that a flood of connections must not multiply.
#[derive(Default)]
struct Logs {
    full: Throttle,
    peer_full: Throttle,
    accept_failed: Throttle,
}

impl Connections {
    /// Serves `router` on at most `most` connections, at least one, within the other limits of `config`.
    pub(crate) fn new(router: Router, most: usize, config: &ServerConfig) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(config.head_timeout);
        Self {
            router,
            http,
            open: GracefulShutdown::new(),
            free: Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS))),
            peers: Peers::new(share_of_peer(most, config)),
            write_timeout: config.write_timeout,
            logs: Logs::default(),
        }
    }

    /// Takes connections for ever; the listener closes with this future.
    pub(crate) async fn accept(&self, listener: impl Accept) -> Infallible {
        let mut pause = FIRST_PAUSE;
        loop {
            if self.free.available_permits() == 0 {
                self.logs.full.log(|times| {
                    tracing::warn!(
                        times,
                        "as many connections are open as may be: new ones wait; server.max_connections raises the limit"
                    );
                });
            }
            // Nobody closes the semaphore, so there is a permit, sooner or later.
            let permit = self.free.clone().acquire_owned().await.ok();
            match listener.accept().await {
                Ok((stream, peer)) => {
                    pause = FIRST_PAUSE;
                    self.admit(stream, peer, permit);
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    self.logs.accept_failed.log(|times| log_failed_accept(&error, times));
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LAST_PAUSE);
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream, peer: SocketAddr, permit: Option<OwnedSemaphorePermit>) {
        match self.peers.admit(peer.ip()) {
            Some(share) => self.serve(stream, permit, share),
            None => {
                self.logs.peer_full.log(|times| {
                    tracing::warn!(
                        peer = %peer.ip(), times,
                        "a peer has as many connections as one may have: more are refused; \
                         server.max_connections_per_peer raises the limit, as it must be behind a proxy"
                    );
                });
                refuse(stream);
            }
        }
    }

    fn serve(&self, stream: TcpStream, permit: Option<OwnedSemaphorePermit>, share: PeerPermit) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set");
        }
        let stream = TokioIo::new(WriteTimeout::new(stream, self.write_timeout));
        let service = TowerToHyperService::new(self.router.clone());
        let connection = self.open.watch(self.http.serve_connection(stream, service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke or was too slow");
            }
            drop((permit, share));
        });
    }

    /// Lets every connection end after the request that it is in.
    pub(crate) async fn end(self) {
        self.open.shutdown().await;
    }
}

/// Returns how many connections one peer may have. Where files allow fewer connections than the operator wants, one peer cannot have
/// them all.
fn share_of_peer(most: usize, config: &ServerConfig) -> usize {
    let share = config.max_connections_per_peer;
    if most < config.max_connections { share.min((most / 2).max(1)) } else { share }
}

/// True for an error that says nothing about the next accept.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn log_failed_accept(error: &io::Error, times: u64) {
    tracing::error!(
        %error, times,
        "connections cannot be accepted; when too many files are open, raise the limit (`ulimit -n`, LimitNOFILE of systemd) or \
         lower server.max_connections"
    );
}

/// Answers a connection that is one too many, as far as that goes without waiting for anything.
fn refuse(stream: TcpStream) {
    const BODY: &str = r#"{"title":"Service Unavailable","status":503,"code":"TOO_MANY_CONNECTIONS","detail":"this peer has as many connections as one may have; close some, use them for more than one request, or raise server.max_connections_per_peer in hatchery.yaml","error":"too many connections"}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         retry-after: 1\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n{BODY}",
        BODY.len()
    );
    // Best effort: the answer fits into the send buffer of a new connection, and a closed one needs none.
    if let Ok(mut stream) = stream.into_std() {
        let _ = io::Write::write(&mut stream, answer.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A listener whose first accepts fail as they do when no descriptor is left.
    struct Exhausted {
        listener: TcpListener,
        failures: AtomicUsize,
    }

    impl Accept for Arc<Exhausted> {
        async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
            const EMFILE: i32 = 24;
            let left = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            match left {
                Ok(_) => Err(io::Error::from_raw_os_error(EMFILE)),
                Err(_) => self.listener.accept().await,
            }
        }
    }

    #[tokio::test]
    async fn a_server_without_descriptors_goes_on_when_there_are_some_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let exhausted = Arc::new(Exhausted { listener, failures: AtomicUsize::new(3) });
        let router = Router::new().route("/", get(|| async { "there" }));
        let connections = Connections::new(router, 1, &ServerConfig::default());
        let accept = connections.accept(exhausted.clone());
        let ask = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = tokio::select! { answer = ask => answer, never = accept => match never {} };
        assert!(answer.ends_with("there"), "{answer}");
        assert_eq!(exhausted.failures.load(Ordering::SeqCst), 0);
        assert_eq!(connections.logs.accept_failed.times(), 3);
    }

    #[test]
    fn one_peer_cannot_have_all_connections_of_a_host_with_few_files() {
        let config = ServerConfig::default();
        let (most, share) = (config.max_connections, config.max_connections_per_peer);
        for (possible, expected) in [(most, share), (1000, share), (100, 50), (1, 1)] {
            assert_eq!(share_of_peer(possible, &config), expected, "{possible}");
        }
        let proxied = ServerConfig { max_connections_per_peer: most, ..config };
        assert_eq!(share_of_peer(most, &proxied), most);
    }
}
