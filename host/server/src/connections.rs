//! Connections: limits per peer and in total, and timeouts. HTTP/1.1 and HTTP/2 on the same port.
//!
//! A connection above the limit of its peer gets a 503 response and is closed. A request over HTTP/2 above it gets the
//! response too, and its connection stays open. Above the total limit, connections wait in the accept queue of the
//! kernel. A connection that is idle between two requests counts; it is closed after the timeout for request heads.

mod http2;
mod peers;
mod protocol;
mod stream_limit;
mod unix_socket;
mod write_timeout;

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Body;
use axum::http::header::UPGRADE;
use axum::response::Response;
use futures::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use crate::limit::Limit;
use crate::log_throttle::LogThrottle;
use crate::peer::Peer;
use crate::service::HttpService;
use hatchery::ServerConfig;
pub(crate) use http2::StreamWindow;
use http2::Timeouts;
use peers::{PeerPermit, Peers};
pub(crate) use protocol::ALPN;
use protocol::{Protocol, Rewind};
use stream_limit::StreamLimit;
pub(crate) use unix_socket::UnixSocket;
use write_timeout::WriteTimeout;

/// Backoff after failed accepts, doubled for each failure.
const MIN_BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// The transport of a connection.
pub(crate) type Transport = Either<TcpStream, UnixStream>;

/// A source of connections.
pub(crate) trait Accept {
    /// Returns the next connection with the address of its peer; `None` for a Unix socket.
    fn accept(&self) -> impl Future<Output = io::Result<(Transport, Option<IpAddr>)>> + Send;
}

impl Accept for TcpListener {
    async fn accept(&self) -> io::Result<(Transport, Option<IpAddr>)> {
        let (stream, peer) = Self::accept(self).await?;
        Ok((Either::Left(stream), Some(peer.ip())))
    }
}

impl Accept for UnixSocket {
    async fn accept(&self) -> io::Result<(Transport, Option<IpAddr>)> {
        Ok((Either::Right(Self::accept(self).await?), None))
    }
}

/// The open connections of a server.
pub(crate) struct Connections {
    service: Arc<HttpService>,
    http: http1::Builder,
    /// Cancelled to close all connections.
    closing: CancellationToken,
    /// Has one receiver per connection.
    open: watch::Sender<()>,
    free: Limit,
    peers: Peers,
    streams: StreamLimit,
    config: ArcSwap<ServerConfig>,
    tls: Option<TlsAcceptor>,
    logs: Logs,
}

/// A permit for one open connection. An upgraded connection keeps it.
pub(crate) struct ConnectionPermit {
    _total: Option<OwnedSemaphorePermit>,
    /// `None` over a Unix socket.
    _peer: Option<PeerPermit>,
}

/// Rate limits for log lines about connections.
#[derive(Default)]
struct Logs {
    full: LogThrottle,
    peer_full: LogThrottle,
    accept_failed: LogThrottle,
}

impl Connections {
    /// Serves `service` on at most `max` connections, at least one, with the other limits of `config`.
    pub(crate) fn new(service: Arc<HttpService>, max: usize, config: &ServerConfig) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(config.head_timeout);
        let per_peer = max_per_peer(max, config);
        Self {
            service,
            http,
            closing: CancellationToken::new(),
            open: watch::Sender::new(()),
            free: Limit::new(max),
            peers: Peers::new(per_peer),
            streams: StreamLimit::new(max.max(per_peer), per_peer),
            config: ArcSwap::from_pointee(config.clone()),
            tls: None,
            logs: Logs::default(),
        }
    }

    /// Applies changed limits: `max` connections, and the limits of `config`. Open connections keep their timeouts.
    pub(crate) fn reconfigure(&self, max: usize, config: Arc<ServerConfig>) {
        let per_peer = max_per_peer(max, &config);
        self.free.set(max);
        self.peers.set_max(per_peer);
        self.streams.set(max.max(per_peer), per_peer);
        self.config.store(config);
    }

    /// Accepts connections with TLS only. A handshake has the time of a request head.
    pub(crate) fn with_tls(self, tls: Option<TlsAcceptor>) -> Self {
        Self { tls, ..self }
    }

    /// Accepts connections forever. The listener closes when this future is dropped.
    pub(crate) async fn accept(&self, listener: impl Accept) -> Infallible {
        let mut backoff = MIN_BACKOFF;
        loop {
            if self.free.available() == 0 {
                self.logs.full.log(|times| {
                    tracing::warn!(
                        times,
                        "the maximum number of connections is open, new ones wait; raise server.max_connections to allow more"
                    );
                });
            }
            let permit = self.free.acquire().await;
            match listener.accept().await {
                Ok((stream, peer)) => {
                    backoff = MIN_BACKOFF;
                    self.accept_from(stream, peer, permit);
                }
                Err(error) if is_connection_error(&error) => {}
                Err(error) => {
                    self.logs.accept_failed.log(|times| log_failed_accept(&error, times));
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
            }
        }
    }

    fn accept_from(&self, stream: Transport, peer: Option<IpAddr>, permit: Option<OwnedSemaphorePermit>) {
        let Some(peer) = peer else { return self.serve(stream, None, permit, None) };
        match self.peers.acquire(peer) {
            Some(peer_permit) => self.serve(stream, Some(Peer(peer.to_canonical())), permit, Some(peer_permit)),
            None => {
                self.logs.peer_full.log(|times| {
                    tracing::warn!(
                        %peer, times,
                        "a peer has the maximum number of connections, more are refused; raise \
                         server.max_connections_per_peer to allow more, for example behind a proxy"
                    );
                });
                refuse(stream);
            }
        }
    }

    fn serve(
        &self,
        stream: Transport,
        peer: Option<Peer>,
        total: Option<OwnedSemaphorePermit>,
        peer_permit: Option<PeerPermit>,
    ) {
        if let Either::Left(stream) = &stream
            && let Err(error) = stream.set_nodelay(true)
        {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let config = self.config.load();
        let stream = WriteTimeout::new(stream, config.write_timeout);
        let permit = Arc::new(ConnectionPermit { _total: total, _peer: peer_permit });
        let (service, held) = (self.service.clone(), permit.clone());
        let respond = move |mut request: hyper::Request<Incoming>| {
            if request.headers().contains_key(UPGRADE) {
                request.extensions_mut().insert(held.clone());
            }
            let service = service.clone();
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            async move { service.answer(request.map(Body::new)).await }
        };
        let (http, timeouts, streams) = (self.http.clone(), Timeouts::new(&config), self.streams.clone());
        let (tls, head_timeout) = (self.tls.clone(), config.head_timeout);
        let (closing, open) = (self.closing.clone(), self.open.subscribe());
        tokio::spawn(async move {
            let begin = tokio::time::timeout(head_timeout, begin(stream, tls));
            let (protocol, stream) = match closing.run_until_cancelled(begin).await {
                Some(Ok(Ok(begun))) => begun,
                Some(Ok(Err(error))) => return tracing::debug!(%error, "a connection failed before its first request"),
                Some(Err(_)) => return tracing::debug!("a connection timed out before its first request"),
                None => return,
            };
            let ended = match protocol {
                Protocol::Http1 => serve_http1(&http, stream, respond, &closing).await,
                Protocol::Http2 => {
                    http2::serve(stream, respond, move || streams.acquire(peer), timeouts, &closing).await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection failed or timed out");
            }
            drop((permit, open));
        });
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.receiver_count()
    }

    /// Closes every connection after its current request.
    pub(crate) async fn shutdown(self) {
        self.closing.cancel();
        self.open.closed().await;
    }
}

/// The transport of a connection, decrypted if it has TLS.
type MaybeTlsStream<S> = Either<Rewind<S>, Box<TlsStream<S>>>;

/// Completes the handshake of TLS, and finds the version of HTTP.
async fn begin<S>(stream: S, tls: Option<TlsAcceptor>) -> io::Result<(Protocol, MaybeTlsStream<S>)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(tls) = tls else {
        let (protocol, stream) = protocol::detect(stream).await?;
        return Ok((protocol, Either::Left(stream)));
    };
    let stream = tls.accept(stream).await?;
    let protocol = Protocol::from_alpn(stream.get_ref().1.alpn_protocol());
    Ok((protocol, Either::Right(Box::new(stream))))
}

/// Serves a connection over HTTP/1.1 until it ends. Accepts no more requests when `closing` is cancelled.
async fn serve_http1<S, R, F>(
    http: &http1::Builder,
    stream: S,
    respond: R,
    closing: &CancellationToken,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    R: Fn(hyper::Request<Incoming>) -> F,
    F: Future<Output = Response>,
{
    // An `async` block would hold the future twice, and be copied.
    let service = service_fn(|request| respond(request).map(Ok::<_, Infallible>));
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service).with_upgrades());
    tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

/// Returns the maximum number of connections per peer. If the limit of open files reduces the total, one peer gets at
/// most half of it.
fn max_per_peer(max: usize, config: &ServerConfig) -> usize {
    let per_peer = config.max_connections_per_peer;
    if max < config.max_connections { per_peer.min((max / 2).max(1)) } else { per_peer }
}

/// Returns true for an error of one connection, which does not affect the next accept.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn log_failed_accept(error: &io::Error, times: u64) {
    tracing::error!(
        %error, times,
        "cannot accept connections; if too many files are open, raise the limit (`ulimit -n`, LimitNOFILE of systemd) or lower \
         server.max_connections"
    );
}

/// Sends a 503 response without waiting, and closes the connection.
fn refuse(stream: Transport) {
    const BODY: &str = r#"{"title":"Service Unavailable","status":503,"code":"TOO_MANY_CONNECTIONS","detail":"this peer has the maximum number of connections; close some, or reuse them","error":"too many connections"}"#;
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         retry-after: 1\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n{BODY}",
        BODY.len()
    );
    // Best effort: the response fits into the send buffer of a new connection. Sockets without peers have no limit.
    if let Either::Left(stream) = stream
        && let Ok(mut stream) = stream.into_std()
    {
        let _ = io::Write::write(&mut stream, response.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::routing::get;
    use hatchery::ByteSize;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::body::BodyBudget;
    use crate::guard::Guard;

    /// A listener whose first accepts fail as if no descriptor were left.
    struct Exhausted {
        listener: TcpListener,
        failures: AtomicUsize,
    }

    impl Accept for Arc<Exhausted> {
        async fn accept(&self) -> io::Result<(Transport, Option<IpAddr>)> {
            const EMFILE: i32 = 24;
            let left = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            match left {
                Ok(_) => Err(io::Error::from_raw_os_error(EMFILE)),
                Err(_) => Accept::accept(&self.listener).await,
            }
        }
    }

    #[tokio::test]
    async fn a_server_without_descriptors_continues_when_some_are_free() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let exhausted = Arc::new(Exhausted { listener, failures: AtomicUsize::new(3) });
        let router = Router::new().route("/", get(|| async { "served" }));
        let service =
            HttpService::from_router(router, Guard::new(true, &["*".into()]), BodyBudget::new(ByteSize(1 << 20)));
        let connections = Connections::new(Arc::new(service), 1, &ServerConfig::default());
        let accept = connections.accept(exhausted.clone());
        let ask = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = tokio::select! { answer = ask => answer, never = accept => match never {} };
        assert!(answer.ends_with("served"), "{answer}");
        assert_eq!(exhausted.failures.load(Ordering::SeqCst), 0);
        assert_eq!(connections.logs.accept_failed.times(), 3);
    }

    #[test]
    fn one_peer_cannot_use_all_connections_of_a_host_with_few_files() {
        let config = ServerConfig::default();
        let (max, per_peer) = (config.max_connections, config.max_connections_per_peer);
        for (possible, expected) in [(max, per_peer), (1000, per_peer), (100, 50), (1, 1)] {
            assert_eq!(max_per_peer(possible, &config), expected, "{possible}");
        }
        let proxied = ServerConfig { max_connections_per_peer: max, ..config };
        assert_eq!(max_per_peer(max, &proxied), max);
    }
}
