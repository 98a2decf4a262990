//! Servers over streamable HTTP: a real peer of `rmcp`, and one that sends too much.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Once;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use futures::{StreamExt, stream};
use hatchery_core::{ConfigValue, Toolset};
use hatchery_mcp::{HttpServer, ServerConfig, StateHeaders, Transport};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_test_support::{Harness, llm_on};
use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig as PeerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, broadcast};
use tokio::task::JoinHandle;

use crate::support::*;

/// Answers with the value of a header, or never.
struct Peer;

impl ServerHandler for Peer {
    fn get_info(&self) -> PeerConfig {
        PeerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = Arc::new(json!({"type": "object"}).as_object().unwrap().clone());
        Ok(ListToolsResult::with_all_items(vec![Tool::new("token", "Returns the token.", schema)]))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let parts = context.extensions.get::<http::request::Parts>().unwrap();
        let token = parts.headers["x-token"].to_str().unwrap();
        Ok(CallToolResult::success(vec![ContentBlock::text(token)]).into())
    }
}

/// Answers as [`Peer`], but each call waits for a permit to leave.
#[derive(Clone)]
struct HeldPeer {
    entered: Arc<Semaphore>,
    leave: Arc<Semaphore>,
}

impl ServerHandler for HeldPeer {
    fn get_info(&self) -> PeerConfig {
        Peer.get_info()
    }

    async fn list_tools(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Peer.list_tools(params, context).await
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.entered.add_permits(1);
        self.leave.acquire().await.unwrap().forget();
        Peer.call_tool(params, context).await
    }
}

pub async fn serve(address: &str, router: Router) -> (SocketAddr, JoinHandle<()>) {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| rustls::crypto::aws_lc_rs::default_provider().install_default().unwrap());
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }))
}

fn peer() -> Router {
    let service = StreamableHttpService::new(
        || Ok(Peer),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    Router::new().nest_service("/mcp", service)
}

fn config(address: SocketAddr) -> ServerConfig {
    let headers = [("x-token".to_owned(), ConfigValue::Text("secret".into()))].into();
    ServerConfig::new(Transport::Http(HttpServer { url: format!("http://{address}"), headers }))
}

#[tokio::test]
async fn an_agent_calls_a_tool_over_http_with_headers() {
    let (address, _server) = serve("127.0.0.1:0", peer()).await;
    let toolset = toolset(config(address));
    let response = call(toolset.clone(), "token", json!({})).await;
    assert_eq!(response, json!({"text_output": [{"text": "secret"}]}));
    toolset.close().await;
}

#[tokio::test]
async fn a_server_gets_the_headers_of_each_session() {
    let (address, _server) = serve("127.0.0.1:0", peer()).await;
    let mut config = config(address);
    config.header_provider = Some(Arc::new(StateHeaders([("x-token".to_owned(), "user_token".to_owned())].into())));
    let toolset = toolset(config);
    for token in ["ada", "bob", "ada"] {
        let model = Arc::new(Scripted::sequence([Reply::call("token", json!({})), Reply::from("done")]));
        let agent = llm_on("caller", &model, |llm| llm.toolsets.push(toolset.clone()));
        let harness = Harness::with_state(agent, json!({"user_token": token})).await;
        assert_eq!(response(&harness.run("go").await)["text_output"][0]["text"], token);
    }
    let missing = CallingApp::error(toolset.clone()).await.to_string();
    assert!(missing.ends_with("the state of the session has no `user_token` for the header `x-token`"), "{missing}");
    let model = Arc::new(Scripted::sequence([Reply::from("done")]));
    let agent = llm_on("caller", &model, |llm| llm.toolsets.push(toolset.clone()));
    let number = Harness::with_state(agent, json!({"user_token": 5})).await.expect_error("go").await.1.to_string();
    let expected = "`user_token` in the state of the session must be a string for the header `x-token`";
    assert!(number.ends_with(expected), "{number}");
    toolset.close().await;
}

#[tokio::test]
async fn a_call_of_one_session_is_not_ended_by_the_connections_of_others() {
    let peer = HeldPeer { entered: Arc::new(Semaphore::new(0)), leave: Arc::new(Semaphore::new(0)) };
    let (entered, leave) = (peer.entered.clone(), peer.leave.clone());
    let service = StreamableHttpService::new(
        move || Ok(peer.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let (address, _server) = serve("127.0.0.1:0", Router::new().nest_service("/mcp", service)).await;
    let mut config = config(address);
    config.header_provider = Some(Arc::new(StateHeaders([("x-token".to_owned(), "user_token".to_owned())].into())));
    let toolset = toolset(config);
    let run = async |token: &str, replies: Vec<Reply>| {
        let model = Arc::new(Scripted::sequence(replies));
        let agent = llm_on("caller", &model, |llm| llm.toolsets.push(toolset.clone()));
        Harness::with_state(agent, json!({"user_token": token})).await.run("go").await
    };
    let others = async {
        entered.acquire().await.unwrap().forget();
        // One more than a server has connections.
        for user in 0..65 {
            run(&user.to_string(), vec![Reply::from("done")]).await;
        }
        leave.add_permits(1);
    };
    let (events, ()) = tokio::join!(run("slow", vec![Reply::call("token", json!({})), Reply::from("done")]), others);
    assert_eq!(response(&events), json!({"text_output": [{"text": "slow"}]}));
    toolset.close().await;
}

#[tokio::test]
async fn a_session_that_the_server_has_forgotten_is_opened_again() {
    let (address, server) = serve("127.0.0.1:0", peer()).await;
    let toolset = toolset(config(address));
    let app = CallingApp::new(toolset, &[("token", json!({})), ("token", json!({}))]).await;
    assert_eq!(app.response().await["text_output"][0]["text"], "secret");
    server.abort();
    let _ = server.await;
    let (_, _server) = serve(&address.to_string(), peer()).await;
    assert_eq!(app.response().await["text_output"][0]["text"], "secret");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_reported() {
    let (address, server) = serve("127.0.0.1:0", Router::new()).await;
    server.abort();
    let _ = server.await;
    let error = CallingApp::error(toolset(config_with_key(address))).await.to_string();
    assert!(
        error.starts_with("toolset `mcp:erratic`: the MCP server `erratic` is not available: the handshake failed: ")
    );
    assert!(error.ends_with("; check that the server runs, and its `url`"), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
}

/// Returns the settings of a server whose URL holds a key.
fn config_with_key(address: SocketAddr) -> ServerConfig {
    let url = format!("http://{address}/mcp?key=s3cret");
    ServerConfig::new(Transport::Http(HttpServer { url, ..HttpServer::default() }))
}

/// A server that closes each connection after one answer, and breaks off its answer to a call with the argument
/// `breaks`.
fn closing_peer() -> Router {
    let answer = |Json(message): Json<Value>| async move {
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "closing", "version": "1"},
            }),
            Some("tools/list") => json!({"tools": [{"name": "token", "inputSchema": {"type": "object"}}]}),
            Some("tools/call") if message["params"]["arguments"]["breaks"] == true => {
                let broken = stream::iter([Err::<String, _>(std::io::Error::other("broken on purpose"))]);
                return ([("content-type", "application/json")], Body::from_stream(broken)).into_response();
            }
            Some("tools/call") => json!({"content": [{"type": "text", "text": "done"}]}),
            _ => return StatusCode::ACCEPTED.into_response(),
        };
        Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
    };
    let close = |mut response: Response| async move {
        response.headers_mut().insert("connection", HeaderValue::from_static("close"));
        response
    };
    Router::new().route("/mcp", axum::routing::post(answer)).layer(map_response(close))
}

#[tokio::test]
async fn an_error_of_a_call_tells_whether_it_was_sent_and_does_not_show_the_url() {
    let (address, server) = serve("127.0.0.1:0", closing_peer()).await;
    let calls = [("token", json!({})), ("token", json!({"breaks": true})), ("token", json!({}))];
    let app = CallingApp::new(toolset(config_with_key(address)), &calls).await;
    assert_eq!(app.response().await["text_output"][0]["text"], "done");
    let broken = app.response().await;
    let expected = "the call of `token` of the MCP server `erratic` failed, and may have had an effect: ";
    assert!(error(&broken).starts_with(expected), "{broken}");
    server.abort();
    let _ = server.await;
    // Keeps other tests from listening on the port.
    let reserved = tokio::net::TcpSocket::new_v4().unwrap();
    reserved.set_reuseaddr(true).unwrap();
    reserved.bind(address).unwrap();
    let unsent = app.response().await;
    assert!(error(&unsent).starts_with("the call of `token` did not reach the MCP server `erratic`: "), "{unsent}");
    assert!([&broken, &unsent].iter().all(|response| !error(response).contains("s3cret")), "{broken} {unsent}");
}

#[tokio::test]
async fn a_missing_variable_and_an_invalid_header_are_named() {
    let server =
        |value| HttpServer { url: "http://127.0.0.1:1".into(), headers: [("Authorization".to_owned(), value)].into() };
    let variable = ConfigValue::Variable { name: "NO_SUCH_TOKEN".into(), prefix: "Bearer ".into() };
    let missing = toolset(ServerConfig::new(Transport::Http(server(variable))));
    let error = CallingApp::error(missing).await.to_string();
    let expected = "`Authorization` needs the environment variable NO_SUCH_TOKEN of the host, which is not set";
    assert!(error.ends_with(expected), "{error}");
    let invalid = toolset(ServerConfig::new(Transport::Http(server(ConfigValue::Text("a\nb".into())))));
    let error = CallingApp::error(invalid).await.to_string();
    assert!(error.contains("the header `Authorization` is invalid"), "{error}");
}

#[tokio::test]
async fn an_answer_of_50_megabytes_is_refused() {
    let large = || async {
        let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{{\"x\":\"{}\"}}}}", "x".repeat(50 << 20));
        ([("content-type", "application/json")], body).into_response()
    };
    let (address, _server) = serve("127.0.0.1:0", Router::new().route("/mcp", any(large))).await;
    let mut low = config(address);
    low.limits.max_message = 1 << 20;
    for (config, limit) in [(config(address), "8388608"), (low, "1048576")] {
        let error = CallingApp::error(toolset(config)).await.to_string();
        assert!(error.contains("the handshake failed: "), "{error}");
        assert!(error.contains(limit), "{error}");
    }
}

/// A server of the transport HTTP+SSE, which sends its answers over the event stream.
#[derive(Clone)]
struct SseServer {
    events: broadcast::Sender<String>,
    /// The data of the event `endpoint`.
    endpoint: String,
}

impl SseServer {
    fn new(endpoint: &str) -> Self {
        Self { events: broadcast::Sender::new(16), endpoint: endpoint.into() }
    }

    fn router(self) -> Router {
        let open = |State(server): State<Self>| async move {
            let first = format!("event: endpoint\ndata: {}\n\n", server.endpoint);
            let messages = stream::unfold(server.events.subscribe(), |mut events| async move {
                let message = events.recv().await.ok()?;
                Some((format!("event: message\ndata: {message}\n\n"), events))
            });
            // They are no messages, however many come.
            let keep_alives = std::iter::repeat_n(format!(": {}\n\n", "x".repeat(512 << 10)), 4);
            let frames = stream::iter(std::iter::once(first).chain(keep_alives)).chain(messages);
            let body = Body::from_stream(frames.map(Ok::<_, std::convert::Infallible>));
            ([("content-type", "text/event-stream")], body)
        };
        let post = |State(server): State<Self>, Json(message): Json<Value>| async move {
            let result = match message["method"].as_str() {
                Some("initialize") => json!({
                    "protocolVersion": "2024-11-05", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "old", "version": "1"},
                }),
                Some("tools/list") => json!({"tools": [{"name": "old", "inputSchema": {"type": "object"}}]}),
                Some("tools/call") => {
                    let bytes = message["params"]["arguments"]["bytes"].as_u64().unwrap_or(3) as usize;
                    json!({"content": [{"type": "text", "text": "x".repeat(bytes)}]})
                }
                _ => return 202.to_string(),
            };
            server.events.send(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string()).unwrap();
            202.to_string()
        };
        Router::new().route("/sse", get(open)).route("/messages", axum::routing::post(post)).with_state(self)
    }
}

fn sse_config(address: SocketAddr) -> ServerConfig {
    ServerConfig::new(Transport::Sse(HttpServer { url: format!("http://{address}/sse"), ..HttpServer::default() }))
}

#[tokio::test]
async fn a_server_of_the_transport_of_2024_is_used_and_its_messages_are_limited() {
    let (address, _server) = serve("127.0.0.1:0", SseServer::new("/messages?session=1").router()).await;
    let mut config = sse_config(address);
    config.limits.max_message = 1 << 20;
    let calls = [("old", json!({})), ("old", json!({"bytes": 2 << 20})), ("old", json!({}))];
    let app = CallingApp::new(toolset(config), &calls).await;
    assert_eq!(app.response().await, json!({"text_output": [{"text": "xxx"}]}));
    let large = app.response().await;
    assert!(error(&large).contains("it sent a message of more than 1048576 bytes"), "{large}");
    assert_eq!(app.response().await["text_output"][0]["text"], "xxx");
}

#[tokio::test]
async fn messages_are_not_posted_to_another_host() {
    let (address, _server) = serve("127.0.0.1:0", SseServer::new("http://evil.example/messages").router()).await;
    let error = CallingApp::error(toolset(sse_config(address))).await.to_string();
    assert!(error.ends_with("the endpoint for messages is on another host than the event stream"), "{error}");
}
