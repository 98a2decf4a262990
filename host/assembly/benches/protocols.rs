//! The cost of a tool call through MCP over standard input and output and over HTTP, through A2A, OpenAPI and a
//! component, each beside its floor: the same call of the same echo server or component with a bare client of `rmcp`,
//! with `reqwest` or with Wasmtime. All of them take turns, so that a change of the machine's speed concerns all.
//!
//! `cargo xtask components`, then `cargo bench --workspace --bench protocols`. Names such as `component` after `--` choose
//! rows.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../wasm/benches/calls/bare.rs"]
mod bare;
#[path = "../../wasm/tests/components/support.rs"]
#[allow(dead_code)]
mod support;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::Query;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use hatchery_a2a::{Aggregation, CardSource, ClientLimits, RemoteAgent, RemoteAgentConfig};
use hatchery_core::{ItemResolver, JsonMap, Tool, Toolset};
use hatchery_egress::{Egress, Url};
use hatchery_engine::AgentTool;
use hatchery_mcp::{HttpServer, McpToolset, ServerConfig, StdioServer, Transport};
use hatchery_openapi::{ApiConfig, DocumentSource, OpenApiToolset};
use hatchery_wasm::Catalog;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientConfig, ContentBlock, ErrorData, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig as EchoConfig, Tool as EchoTool,
};
use rmcp::service::{RequestContext, RunningService};
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleClient, RoleServer, ServiceExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::runtime::Builder;

use bare::bindings::exports::hatchery::agent::guest_tools::GuestIndices;
use bare::{bare_pre, bare_tool};
use support::{TestCatalog, context};

/// Calls of a batch, whose mean is one time.
const CALLS: u32 = 50;
/// Batches of each subject.
const ROUNDS: usize = 60;

/// The argument with which this program is an MCP server.
const SERVER_ARGUMENT: &str = "echo-server";
/// The name of the tool of all servers.
const ECHO: &str = "echo";
/// The text that each call sends and returns.
const TEXT: &str = "How is the weather in Paris?";

/// Makes a batch of calls, and returns the mean time of one.
type Batch = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Duration>>>>;

struct Comparison {
    protocol: &'static str,
    host: Batch,
    floor: Batch,
}

/// An MCP server with one tool.
struct EchoServer;

impl ServerHandler for EchoServer {
    fn get_info(&self) -> EchoConfig {
        EchoConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = map(json!({"type": "object", "properties": {"text": {"type": "string"}}}));
        Ok(ListToolsResult::with_all_items(vec![EchoTool::new(ECHO, "Repeats a text.", Arc::new(schema))]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = request.arguments.unwrap_or_default();
        let text = args.get("text").and_then(Value::as_str).unwrap_or_default();
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// A policy that allows everything.
struct Anywhere;

impl Egress for Anywhere {
    fn check_url(&self, _: &Url) -> Result<(), String> {
        Ok(())
    }

    fn check_address(&self, _: &Url, _: IpAddr) -> Result<(), String> {
        Ok(())
    }
}

fn map(value: Value) -> JsonMap {
    value.as_object().unwrap().clone()
}

fn args() -> Value {
    json!({ "text": TEXT })
}

fn main() {
    if std::env::var_os("RUST_BACKTRACE").is_some() {
        // Wasmtime makes an error in each call of a component: its backtrace takes longer than the call.
        let error = std::process::Command::new(std::env::current_exe().unwrap())
            .args(std::env::args_os().skip(1))
            .env_remove("RUST_BACKTRACE")
            .exec();
        panic!("cannot start again without RUST_BACKTRACE: {error}");
    }
    rustls::crypto::aws_lc_rs::default_provider().install_default().unwrap();
    // One thread for the calls, so that waking up other threads is not measured.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    if std::env::args().nth(1).as_deref() == Some(SERVER_ARGUMENT) {
        runtime.block_on(async {
            EchoServer.serve(rmcp::transport::stdio()).await.unwrap().waiting().await.unwrap();
        });
        return;
    }
    runtime.block_on(compare());
}

async fn compare() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    let address = start_http_servers();
    let comparisons = [
        mcp_over_stdio(&catalog).await,
        mcp_over_http(&catalog, address).await,
        a2a(&catalog, address),
        openapi(&catalog, address, folder.path()).await,
        component(&catalog),
    ];
    let filter: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_chosen =
        |comparison: &Comparison| filter.is_empty() || filter.iter().any(|name| name == comparison.protocol);
    let comparisons: Vec<_> = comparisons.into_iter().filter(is_chosen).collect();
    let mut times = vec![(Vec::new(), Vec::new()); comparisons.len()];
    for round in 0..=ROUNDS {
        for (comparison, (host, floor)) in comparisons.iter().zip(&mut times) {
            let batch = ((comparison.host)().await, (comparison.floor)().await);
            // The first round opens connections.
            if round > 0 {
                host.push(batch.0);
                floor.push(batch.1);
            }
        }
    }
    println!("{:<12} {:>12} {:>12} {:>8}", "median in µs", "hatchery", "floor", "ratio");
    for (comparison, (host, floor)) in comparisons.iter().zip(times) {
        let (host, floor) = (median(host), median(floor));
        println!("{:<12} {host:>12.1} {floor:>12.1} {:>8.2}", comparison.protocol, host / floor);
    }
}

/// Returns the median in microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64() * 1e6
}

/// Makes a batch of calls, whose results must have the text, and returns the mean time of one.
async fn time<F: Future<Output: Debug>>(call: impl Fn() -> F) -> Duration {
    let (began, mut last) = (Instant::now(), None);
    for _ in 0..CALLS {
        last = Some(black_box(call().await));
    }
    let mean = began.elapsed() / CALLS;
    let last = format!("{last:?}");
    assert!(last.contains(TEXT), "{last}");
    mean
}

/// Returns batches of calls of a tool. The calls of a batch have one context.
fn through_host(catalog: &Arc<Catalog>, tool: Arc<dyn Tool>, args: Value) -> Batch {
    let (catalog, args) = (catalog.clone(), map(args));
    Box::new(move || {
        let (tool, args, cx) = (tool.clone(), args.clone(), context(&catalog));
        Box::pin(async move { time(|| tool.call(args.clone(), &cx)).await })
    })
}

/// Returns batches of calls without the host.
fn bare_calls<F: Future<Output: Debug> + 'static>(call: impl Fn() -> F + Clone + 'static) -> Batch {
    Box::new(move || {
        let call = call.clone();
        Box::pin(async move { time(call).await })
    })
}

async fn echo_tool(catalog: &Arc<Catalog>, toolset: impl Toolset) -> Arc<dyn Tool> {
    let tools = toolset.tools(&context(catalog)).await.unwrap();
    tools.into_iter().find(|tool| tool.declaration().name == ECHO).unwrap()
}

async fn mcp_over_stdio(catalog: &Arc<Catalog>) -> Comparison {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(&program);
    command.arg(SERVER_ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let streams = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let client = Arc::new(bare_mcp_client().serve(streams).await.unwrap());
    let server = StdioServer { command: program, args: vec![SERVER_ARGUMENT.into()], ..StdioServer::default() };
    let toolset = McpToolset::new(ECHO, ServerConfig::new(Transport::Stdio(server)), Default::default());
    // The child ends when it is dropped.
    let child = Arc::new(child);
    let floor = bare_calls(move || {
        let (client, _child) = (client.clone(), child.clone());
        async move { call_bare_mcp(&client).await }
    });
    let tool = echo_tool(catalog, toolset).await;
    Comparison { protocol: "MCP stdio", host: through_host(catalog, tool, args()), floor }
}

async fn mcp_over_http(catalog: &Arc<Catalog>, address: SocketAddr) -> Comparison {
    let url = format!("http://{address}/mcp");
    let config = StreamableHttpClientTransportConfig::with_uri(url.clone());
    let transport = StreamableHttpClientTransport::with_client(http_client(), config);
    let client = Arc::new(bare_mcp_client().serve(transport).await.unwrap());
    let server = HttpServer { url, ..HttpServer::default() };
    let toolset = McpToolset::new(ECHO, ServerConfig::new(Transport::Http(server)), Default::default());
    let floor = bare_calls(move || {
        let client = client.clone();
        async move { call_bare_mcp(&client).await }
    });
    let tool = echo_tool(catalog, toolset).await;
    Comparison { protocol: "MCP HTTP", host: through_host(catalog, tool, args()), floor }
}

fn bare_mcp_client() -> ClientConfig {
    ClientConfig::default().with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

async fn call_bare_mcp(client: &RunningService<RoleClient, ClientConfig>) -> CallToolResult {
    client.call_tool(CallToolRequestParams::new(ECHO).with_arguments(map(args()))).await.unwrap()
}

/// Calls the remote agent as the tool of another agent.
fn a2a(catalog: &Arc<Catalog>, address: SocketAddr) -> Comparison {
    let agent = RemoteAgent::new(RemoteAgentConfig {
        card: CardSource::Url(format!("http://{address}/card")),
        headers: BTreeMap::new(),
        egress: Arc::new(Anywhere),
        aggregation: Aggregation::default(),
        limits: ClientLimits::default(),
    });
    let tool = AgentTool::new(agent.agent(ECHO, "Repeats a text.")).unwrap();
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [args()]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let body = Arc::new(json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}));
    let request = http_client().post(format!("http://{address}/a2a")).header("a2a-version", "1.0");
    let request = Arc::new(request);
    let floor = bare_calls(move || {
        let request = request.try_clone().unwrap().json(&*body);
        async move { request.send().await.unwrap().json::<Value>().await.unwrap() }
    });
    Comparison { protocol: "A2A", host: through_host(catalog, Arc::new(tool), json!({ "request": TEXT })), floor }
}

async fn openapi(catalog: &Arc<Catalog>, address: SocketAddr, folder: &std::path::Path) -> Comparison {
    let parameter = json!({"name": "text", "in": "query", "required": true, "schema": {"type": "string"}});
    let operation = json!({
        "operationId": ECHO, "parameters": [parameter], "responses": {"200": {"description": "The text."}},
    });
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Echo", "version": "1"}, "paths": {"/echo": {"get": operation}},
    });
    let file = folder.join("openapi.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let mut config = ApiConfig::new(DocumentSource::File(file), Arc::new(Anywhere));
    config.base_url = Some(format!("http://{address}"));
    let toolset = OpenApiToolset::new(ECHO, config, Default::default());
    let (client, url) = (http_client(), Url::parse(&format!("http://{address}/echo")).unwrap());
    let floor = bare_calls(move || {
        let mut url = url.clone();
        url.query_pairs_mut().append_pair("text", TEXT);
        let request = client.get(url);
        async move { request.send().await.unwrap().json::<Value>().await.unwrap() }
    });
    let tool = echo_tool(catalog, toolset).await;
    Comparison { protocol: "OpenAPI", host: through_host(catalog, tool, args()), floor }
}

fn component(catalog: &Arc<Catalog>) -> Comparison {
    let pre = Arc::new(bare_pre("misbehaver"));
    let indices = Arc::new(GuestIndices::new(&pre).unwrap());
    let args = json!({ "value": args() });
    let text: Arc<str> = args.to_string().into();
    let floor = bare_calls(move || {
        let (pre, indices, text) = (pre.clone(), indices.clone(), text.clone());
        async move { bare_tool(&pre, &indices, &text).await }
    });
    let tool = catalog.tool(ECHO).unwrap();
    Comparison { protocol: "component", host: through_host(catalog, tool, args), floor }
}

fn http_client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Starts the servers of MCP over HTTP, A2A and OpenAPI on their own thread, and returns their address.
fn start_http_servers() -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            sender.send(address).unwrap();
            let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
            axum::serve(listener, router(address)).await.unwrap();
        });
    });
    receiver.recv().unwrap()
}

fn router(address: SocketAddr) -> Router {
    let interface =
        json!({"url": format!("http://{address}/a2a"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
    let card = json!({"name": ECHO, "supportedInterfaces": [interface], "capabilities": {"streaming": false}});
    let mcp = StreamableHttpService::new(
        || Ok(EchoServer),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    Router::new()
        .route("/card", get(|| async move { Json(card) }))
        .route("/a2a", post(answer_message))
        .route("/echo", get(|Query(query): Query<BTreeMap<String, String>>| async move { Json(json!(query)) }))
        .nest_service("/mcp", mcp)
}

async fn answer_message(Json(call): Json<Value>) -> Json<Value> {
    let parts = call.pointer("/params/message/parts").cloned().unwrap_or_default();
    let message = json!({"messageId": "answer", "role": "ROLE_AGENT", "parts": parts});
    Json(json!({"jsonrpc": "2.0", "id": call.get("id"), "result": {"message": message}}))
}
