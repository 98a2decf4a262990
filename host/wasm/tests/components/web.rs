//! A local web server with test endpoints, which records the requests that it receives.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::serve::Listener;
use axum::{Json, Router};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Semaphore};

pub struct Web {
    address: SocketAddr,
    seen: Arc<Seen>,
}

struct Seen {
    connections: AtomicUsize,
    requests: Mutex<Vec<BTreeMap<String, String>>>,
    /// Number of requests that stay open.
    arrived: Semaphore,
    /// Number of those that have ended.
    gone: Semaphore,
    meeting: Barrier,
}

impl Web {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen {
            connections: AtomicUsize::new(0),
            requests: Mutex::default(),
            arrived: Semaphore::new(0),
            gone: Semaphore::new(0),
            meeting: Barrier::new(3),
        });
        let router = Router::new()
            .route("/echo", any(echo))
            .route("/quiet", any(async |_: Bytes| StatusCode::NO_CONTENT))
            .route("/redirect", get(redirect))
            .route("/bytes", get(bytes))
            .route("/endless", get(endless))
            .route("/never", get(never))
            .route("/stall", get(stall))
            .route("/meet", get(meet))
            .layer(from_fn_with_state(seen.clone(), note))
            .with_state(seen.clone());
        let listener = Counting { listener, seen: seen.clone() };
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, seen }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the address, for example `127.0.0.1:1234`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.seen.requests.lock().unwrap().len()
    }

    /// Returns the values of a header in all requests that had it.
    pub fn seen(&self, header: &str) -> Vec<String> {
        self.seen.requests.lock().unwrap().iter().filter_map(|headers| headers.get(header).cloned()).collect()
    }

    /// Waits until a request that stays open has arrived.
    pub async fn arrived(&self) {
        self.seen.arrived.acquire().await.unwrap().forget();
    }

    /// Waits until such a request has ended.
    pub async fn gone(&self) {
        self.seen.gone.acquire().await.unwrap().forget();
    }
}

/// Counts connections.
struct Counting {
    listener: TcpListener,
    seen: Arc<Seen>,
}

impl Listener for Counting {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        let accepted = Listener::accept(&mut self.listener).await;
        self.seen.connections.fetch_add(1, Ordering::SeqCst);
        accepted
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Records the end of a request when dropped.
struct Stay(Arc<Seen>);

impl Stay {
    fn new(seen: Arc<Seen>) -> Self {
        seen.arrived.add_permits(1);
        Self(seen)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.0.gone.add_permits(1);
    }
}

async fn note(State(seen): State<Arc<Seen>>, request: Request, next: Next) -> Response {
    let mut headers = BTreeMap::<String, String>::new();
    for (name, value) in request.headers() {
        let all = headers.entry(name.to_string()).or_default();
        if !all.is_empty() {
            all.push_str(", ");
        }
        all.push_str(value.to_str().unwrap());
    }
    seen.requests.lock().unwrap().push(headers);
    next.run(request).await
}

async fn echo(request: Request) -> Json<Value> {
    let (parts, body) = request.into_parts();
    let headers: BTreeMap<_, _> =
        parts.headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap().len();
    Json(json!({ "method": parts.method.as_str(), "query": parts.uri.query(), "headers": headers, "bytes": bytes }))
}

async fn redirect(Query(query): Query<BTreeMap<String, String>>) -> Response {
    let to = query.get("to").cloned().unwrap_or_else(|| "/redirect".into());
    (StatusCode::FOUND, [(header::LOCATION, to)]).into_response()
}

async fn bytes(Query(query): Query<BTreeMap<String, usize>>) -> String {
    "x".repeat(query["count"])
}

async fn endless(State(seen): State<Arc<Seen>>) -> Body {
    let chunk = Bytes::from(vec![b'x'; 10_000]);
    Body::from_stream(stream::repeat_with({
        let stay = Stay::new(seen);
        move || {
            let _stays = &stay;
            Ok::<_, std::io::Error>(chunk.clone())
        }
    }))
}

async fn never(State(seen): State<Arc<Seen>>) {
    let _stay = Stay::new(seen);
    std::future::pending::<()>().await;
}

async fn stall(State(seen): State<Arc<Seen>>) -> Body {
    let stay = Stay::new(seen);
    let begin = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"begin"))]);
    Body::from_stream(begin.chain(stream::poll_fn(move |_| {
        let _stays = &stay;
        Poll::Pending
    })))
}

async fn meet(State(seen): State<Arc<Seen>>) {
    seen.meeting.wait().await;
}
