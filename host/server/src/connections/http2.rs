//! HTTP/2: many requests on one connection, with the timeouts that clients over HTTP/1.1 have.
//!
//! A response to which its client grants no window for the write timeout is reset; others on the connection go on. A
//! connection without requests is closed after the timeout for request heads. An open WebSocket counts as a request.

mod websocket;

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, Response, header};
use hatchery::ServerConfig;
use hatchery_core::sync::MutexExt;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::stream_limit::StreamPermit;
pub(crate) use websocket::StreamWindow;

/// Maximum number of requests of a connection at a time.
const MAX_STREAMS: u32 = 100;

/// Maximum number of bytes of a response that wait for a window, in addition to the connection's buffer.
const MAX_CHUNK: usize = 16 << 10;

/// Timeouts of a connection.
#[derive(Clone, Copy)]
pub(super) struct Timeouts {
    idle: Duration,
    write: Duration,
    keep_alive: Duration,
}

impl Timeouts {
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self { idle: config.head_timeout, write: config.write_timeout, keep_alive: config.keep_alive }
    }
}

/// Serves a connection until it ends. `admit` returns a permit or the response that refuses the request. A request
/// holds its permit until its response is sent or its WebSocket is closed. Accepts no more requests when `closing` is
/// cancelled.
pub(super) async fn serve<S, R, F>(
    stream: S,
    respond: R,
    admit: impl Fn() -> Result<StreamPermit, Box<Response<Body>>>,
    timeouts: Timeouts,
    closing: &CancellationToken,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    R: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let open = Arc::new(OpenStreams::default());
    let mut http = http2::Builder::new(Streams { open: open.clone(), write_timeout: timeouts.write });
    http.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS).enable_connect_protocol();
    http.keep_alive_interval(timeouts.keep_alive).keep_alive_timeout(timeouts.write);
    let respond = Arc::new(respond);
    let service = service_fn(|mut request: Request<Incoming>| {
        name_host(&mut request);
        let (admitted, respond) = (admit(), respond.clone());
        async move {
            let permit = match admitted {
                Ok(permit) => Arc::new(permit),
                Err(refusal) => return Ok::<_, Infallible>(refusal.map(|body| WindowedBody::new(body, None))),
            };
            let is_websocket = websocket::translate_request(&mut request, &current_window(), &permit);
            let mut response = respond(request).await.map(|body| WindowedBody::new(body, Some(permit)));
            if is_websocket {
                websocket::translate_response(&mut response, &current_window());
            }
            Ok(response)
        }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = closing.cancelled() => {}
        () = open.idle_for(timeouts.idle) => {}
    }
    connection.as_mut().graceful_shutdown();
    // The client has time to close the connection itself, and may have sent a request before it got the notice.
    let abandoned = async {
        tokio::time::sleep(timeouts.write).await;
        open.idle_for(timeouts.idle).await;
    };
    tokio::select! {
        ended = connection => ended,
        () = abandoned => Ok(()),
    }
}

/// Sets the `Host` header, which clients over HTTP/2 send as a part of the URI.
fn name_host(request: &mut Request<Incoming>) {
    let host = request.uri().authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    if let Some(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
}

/// Waits until a condition has lasted for a time. `since` returns the time at which it began, or `None` while it does
/// not hold.
async fn wait_until_lasting(time: Duration, since: impl Fn() -> Option<Instant>) {
    loop {
        let now = Instant::now();
        let end = since().unwrap_or(now) + time;
        if end <= now {
            return;
        }
        tokio::time::sleep_until(end).await;
    }
}

/// The requests of a connection that have not ended.
struct OpenStreams(Mutex<StreamCount>);

struct StreamCount {
    open: usize,
    /// Since when there are none.
    idle_since: Option<Instant>,
}

impl Default for OpenStreams {
    fn default() -> Self {
        Self(Mutex::new(StreamCount { open: 0, idle_since: Some(Instant::now()) }))
    }
}

impl OpenStreams {
    async fn idle_for(&self, time: Duration) {
        wait_until_lasting(time, || self.0.lock_unpoisoned().idle_since).await;
    }

    fn begin(self: Arc<Self>) -> OpenStream {
        {
            let mut count = self.0.lock_unpoisoned();
            count.open += 1;
            count.idle_since = None;
        }
        OpenStream(self)
    }
}

/// A request that has not ended.
struct OpenStream(Arc<OpenStreams>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut count = self.0.0.lock_unpoisoned();
        count.open = count.open.saturating_sub(1);
        if count.open == 0 {
            count.idle_since = Some(Instant::now());
        }
    }
}

/// Spawns the requests of a connection. A request is dropped if its client reads nothing of the response for
/// `write_timeout`.
#[derive(Clone)]
struct Streams {
    open: Arc<OpenStreams>,
    write_timeout: Duration,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    /// Spawns a request, or the task that sends the messages of its WebSocket, which shares the request's window.
    fn execute(&self, stream: F) {
        let (open, window, write_timeout) = (self.open.clone().begin(), current_window(), self.write_timeout);
        tokio::spawn(async move {
            tokio::select! {
                () = WINDOW.scope(window.clone(), stream) => {}
                () = window.closed_for(write_timeout) => tracing::debug!("a client does not read a response"),
            }
            drop(open);
        });
    }
}

tokio::task_local! {
    /// The window of the request that a task runs.
    static WINDOW: Arc<Window>;
}

/// Returns the window of the request of this task; a new one outside of requests.
fn current_window() -> Arc<Window> {
    WINDOW.try_with(Arc::clone).unwrap_or_default()
}

/// Since when a response has waited for its client to grant a window.
#[derive(Default)]
struct Window(Mutex<Option<Instant>>);

impl Window {
    fn close(&self) {
        *self.0.lock_unpoisoned() = Some(Instant::now());
    }

    fn open(&self) {
        *self.0.lock_unpoisoned() = None;
    }

    async fn closed_for(&self, time: Duration) {
        wait_until_lasting(time, || *self.0.lock_unpoisoned()).await;
    }
}

/// A body in small chunks. The next chunk is polled when the client has granted a window.
struct WindowedBody {
    body: Body,
    /// The rest of the last chunk.
    rest: Bytes,
    window: Arc<Window>,
    /// Held until the response is sent.
    _permit: Option<Arc<StreamPermit>>,
}

impl WindowedBody {
    /// Returns the body of the response of this task.
    fn new(body: Body, permit: Option<Arc<StreamPermit>>) -> Self {
        let window = current_window();
        window.close();
        Self { body, rest: Bytes::new(), window, _permit: permit }
    }
}

impl hyper::body::Body for WindowedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        this.window.open();
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let chunk = this.rest.split_to(this.rest.len().min(MAX_CHUNK));
        this.window.close();
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use hyper::body::Body as _;

    use super::*;

    #[tokio::test]
    async fn a_large_chunk_is_sent_in_parts_of_the_same_length_together() {
        let mut body = WindowedBody::new(Body::from(vec![7; MAX_CHUNK * 2 + 1]), None);
        let mut parts = Vec::new();
        assert_eq!(body.size_hint().exact(), Some(MAX_CHUNK as u64 * 2 + 1));
        while let Some(frame) = body.frame().await {
            parts.push(frame.unwrap().into_data().unwrap().len());
            assert_eq!(body.size_hint().exact(), Some((MAX_CHUNK * 2 + 1 - parts.iter().sum::<usize>()) as u64));
        }
        assert_eq!(parts, [MAX_CHUNK, MAX_CHUNK, 1]);
        assert!(body.is_end_stream());
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_counts_from_the_last_chunk() {
        let window = Arc::new(Window::default());
        let body = WINDOW.scope(window.clone(), async { WindowedBody::new(Body::from("ab"), None) });
        let mut body = body.await;
        let time = Duration::from_secs(30);
        tokio::time::advance(Duration::from_secs(20)).await;
        body.frame().await.unwrap().unwrap();
        let start = Instant::now();
        window.closed_for(time).await;
        assert_eq!(start.elapsed().as_secs(), 30);
        assert!(body.frame().await.is_none());
        // The end is nothing that a client would have to read.
        assert!(tokio::time::timeout(time * 4, window.closed_for(time)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_the_last_request_has_ended() {
        let (open, time) = (Arc::new(OpenStreams::default()), Duration::from_secs(30));
        let (first, second) = (open.clone().begin(), open.clone().begin());
        drop(first);
        assert!(tokio::time::timeout(time * 4, open.idle_for(time)).await.is_err());
        drop(second);
        let start = Instant::now();
        open.idle_for(time).await;
        assert_eq!(start.elapsed().as_secs(), 30);
    }
}
