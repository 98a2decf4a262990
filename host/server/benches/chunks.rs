//! The cost of a streamed answer of 10,000 chunks on its way through provider, engine and SSE, beside reading the bytes
//! of the provider with bare hyper.
//!
//! `cargo bench --workspace --bench chunks`. After the criterion report it prints both with their chunks per second and
//! allocations, and their ratio. Provider, host and client are in one process, so that the costs include all
//! three.
#![allow(clippy::expect_used, missing_docs)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::serve::ListenerExt;
use criterion::{Criterion, criterion_group};
use futures::stream;
use hatchery::{Host, ServerConfig};
use hatchery_core::ModelResolver;
use hatchery_engine::build::llm;
use hatchery_models::{ModelProviders, Service, Settings};
use hatchery_server::{AppState, Server};
use hatchery_test_support::CountingAllocator;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const CHUNKS: usize = 10_000;

const BARE: &str = "bare hyper";
const HOST: &str = "provider, engine and SSE";

/// Returns the events of a stream with a text in `CHUNKS` chunks.
fn events() -> Vec<Bytes> {
    let event = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = json!({"id": "c-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]});
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    let texts = (0..CHUNKS).map(|number| event(json!({"content": format!("word{number} ")}), Value::Null));
    texts.chain([event(json!({}), json!("stop")), Bytes::from_static(b"data: [DONE]\n\n")]).collect()
}

/// Starts a provider that answers every request with the same stream.
async fn start_provider() -> SocketAddr {
    let events = Arc::new(events());
    let respond = move || {
        let events = events.clone();
        async move {
            let chunks = (0..events.len()).filter_map(move |index| events.get(index).cloned());
            let body = Body::from_stream(stream::iter(chunks.map(Ok::<_, std::io::Error>)));
            Response::builder().header("content-type", "text/event-stream").body(body).expect("a valid response")
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let listener = listener.tap_io(|connection| connection.set_nodelay(true).expect("a TCP connection"));
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(respond)).await });
    address
}

/// Starts a host with an agent whose model is at the provider.
async fn start_host(provider: SocketAddr) -> SocketAddr {
    let settings = Settings::default().with_base_url(Service::OpenAi, format!("http://{provider}/v1"));
    let model = ModelProviders::with_defaults(settings).model("openai/m").expect("a model");
    let agent = llm("root").model_instance("openai/m", model).build().expect("a valid agent");
    let host = Host::builder().agent(agent).open().await.expect("a host");
    let state = AppState::new(host.runner().clone(), host.apps().clone(), ServerConfig::default());
    let server = Server::bind("127.0.0.1:0".parse().expect("an address"), state).await.expect("a free port");
    let address = server.local_addr().expect("an address");
    tokio::spawn(async move {
        server.serve(std::future::pending()).await;
        host.close().await;
    });
    address
}

/// A connection of a client.
struct Client(SendRequest<Full<Bytes>>);

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a server");
        stream.set_nodelay(true).expect("a TCP connection");
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection);
        Self(sender)
    }

    /// Sends a request, and reads the response to the end. Returns the number of lines in it.
    async fn post(&mut self, path: &str, body: &Value) -> usize {
        let request = Request::post(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::from(body.to_string()));
        self.0.ready().await.expect("an open connection");
        let response = self.0.send_request(request.expect("a valid request")).await.expect("a response");
        assert!(response.status().is_success(), "{path}: {}", response.status());
        let mut body = response.into_body();
        let mut lines = 0;
        while let Some(frame) = body.frame().await {
            let data = frame.expect("a whole body").into_data().unwrap_or_default();
            lines += data.iter().filter(|byte| **byte == b'\n').count();
        }
        lines
    }
}

/// The cost of answers.
#[derive(Clone, Copy, Default)]
struct Cost {
    time: Duration,
    allocations: usize,
    answers: u32,
}

impl Cost {
    async fn measure(&mut self, answer: impl Future<Output = usize>) -> Duration {
        let (begin, allocations) = (Instant::now(), CountingAllocator::allocations());
        let lines = answer.await;
        let time = begin.elapsed();
        assert!(lines >= 2 * CHUNKS, "{lines} lines, two for each event");
        self.time += time;
        self.allocations += CountingAllocator::allocations() - allocations;
        self.answers += 1;
        time
    }

    /// Returns the seconds of an answer.
    fn mean(&self) -> f64 {
        self.time.as_secs_f64() / f64::from(self.answers.max(1))
    }

    fn print(&self, name: &str) {
        let allocations = self.allocations as f64 / f64::from(self.answers.max(1)) / CHUNKS as f64;
        let (seconds, rate) = (self.mean(), CHUNKS as f64 / self.mean());
        println!("{name:<26}{:>9.1} ms{rate:>12.0} chunks/s{allocations:>8.1} allocations per chunk", seconds * 1e3);
    }
}

/// Servers, clients and their measurements.
struct Stage {
    runtime: Runtime,
    provider: Client,
    host: Client,
    sessions: usize,
    bare_cost: Cost,
    host_cost: Cost,
}

impl Stage {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let (provider, host) = runtime.block_on(async {
            let provider = start_provider().await;
            let host = start_host(provider).await;
            (Client::connect(provider).await, Client::connect(host).await)
        });
        let (bare_cost, host_cost) = (Cost::default(), Cost::default());
        Self { runtime, provider, host, sessions: 0, bare_cost, host_cost }
    }

    fn read_bare(&mut self) -> Duration {
        let Self { runtime, provider, bare_cost, .. } = self;
        runtime.block_on(bare_cost.measure(provider.post("/v1/chat/completions", &json!({}))))
    }

    fn run(&mut self) -> Duration {
        let Self { runtime, host, sessions, host_cost, .. } = self;
        *sessions += 1;
        let session = format!("s{sessions}");
        let message = json!({"role": "user", "parts": [{"text": "Tell me a long story."}]});
        let body = json!({
            "appName": "root", "userId": "ada", "sessionId": session, "newMessage": message, "streaming": true,
        });
        runtime.block_on(async {
            host.post(&format!("/apps/root/users/ada/sessions/{session}"), &json!({})).await;
            host_cost.measure(host.post("/run_sse", &body)).await
        })
    }
}

fn answers(c: &mut Criterion) {
    let mut stage = Stage::new();
    // The first answers open connections and fill caches.
    stage.read_bare();
    stage.run();
    (stage.bare_cost, stage.host_cost) = (Cost::default(), Cost::default());
    c.bench_function(BARE, |bencher| bencher.iter_custom(|count| (0..count).map(|_| stage.read_bare()).sum()));
    c.bench_function(HOST, |bencher| bencher.iter_custom(|count| (0..count).map(|_| stage.run()).sum()));
    println!();
    stage.bare_cost.print(BARE);
    stage.host_cost.print(HOST);
    println!("ratio {:.2}", stage.host_cost.mean() / stage.bare_cost.mean());
}

criterion_group!(benches, answers);

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
}
