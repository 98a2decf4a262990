//! The host as a server, with a real client of `rmcp`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;
use bytes::Bytes;
use hatchery_core::{Agent, Blob, CallerOrigin, ClientScope, PartData, Tool, ToolError, ToolProgress};
use hatchery_engine::build::custom;
use hatchery_engine::{App, AppDirectory, Runner};
use hatchery_mcp::{Exposure, McpCatalog, McpEndpoint, McpService};
use hatchery_test_services::serve_http;
use hatchery_test_support::{services, tool, tool_with_confirmation};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, NotificationContext, PeerRequestOptions, RunningService, ServiceError,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransport;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

/// Apps and tools that a test can change.
struct Catalog {
    apps: BTreeMap<String, Arc<App>>,
    tools: Mutex<BTreeMap<String, Arc<dyn Tool>>>,
    generation: watch::Sender<u64>,
}

impl AppDirectory for Catalog {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        self.apps.get(name).cloned()
    }

    fn app_names(&self) -> Vec<String> {
        self.apps.keys().cloned().collect()
    }
}

impl McpCatalog for Catalog {
    fn tool_names(&self) -> Vec<String> {
        self.tools.lock().unwrap().keys().cloned().collect()
    }

    fn tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.lock().unwrap().get(name).cloned()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }
}

/// Answers with the number of messages in the session.
fn counter() -> Agent {
    let agent = custom("counter", |cx| async move {
        let events = cx.call.invocation.events().len();
        cx.say(format!("{events}: {}", cx.call.invocation.user_content().text())).await?;
        Ok(())
    });
    agent.description("Counts messages.").build().unwrap()
}

pub struct Host {
    pub runner: Runner,
    catalog: Arc<Catalog>,
    /// Prompts and resources.
    pub exposure: Exposure,
}

impl Host {
    pub fn new(agents: Vec<Agent>) -> Self {
        let apps = agents
            .into_iter()
            .map(|agent| (agent.name.clone(), Arc::new(App::new(agent.name.clone(), agent).unwrap())));
        let picture = tool("draw", |_, _| Ok(json!("drawn")));
        let tools: [(&str, Arc<dyn Tool>); 5] = [
            ("dice/count", Arc::new(CountingTool(tool("count", |_, _| Ok(Value::Null))))),
            ("dice/roll", tool("roll", |args, _| Ok(json!({"rolled": args["sides"]})))),
            ("dice/draw", Arc::new(DrawingTool(picture))),
            ("dice/fail", tool("fail", |_, _| Err(ToolError::Recoverable("the die is lost".into())))),
            ("bank/pay", tool_with_confirmation("pay", |_, _| Ok(json!("paid")))),
        ];
        let tools = tools.into_iter().map(|(name, tool)| (name.to_owned(), tool)).collect();
        let catalog = Catalog { apps: apps.collect(), tools: Mutex::new(tools), generation: watch::Sender::new(1) };
        Self { runner: Runner::new(services()), catalog: Arc::new(catalog), exposure: Exposure::default() }
    }

    pub fn service(&self, apps: &[&str], tools: &[&str]) -> McpService {
        let patterns = |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let exposure = Exposure { apps: patterns(apps), tools: patterns(tools), ..self.exposure.clone() };
        McpService::new(self.runner.clone(), self.catalog.clone(), exposure, CallerOrigin::InProcess)
    }

    pub fn add_tool(&self, name: &str, tool: Arc<dyn Tool>) {
        self.catalog.tools.lock().unwrap().insert(name.into(), tool);
    }

    pub async fn client(&self) -> Client {
        connect(self.service(&["*"], &["*"])).await
    }
}

/// Reports progress.
struct CountingTool(Arc<dyn Tool>);

#[async_trait::async_trait]
impl Tool for CountingTool {
    fn declaration(&self) -> &Arc<hatchery_core::FunctionDeclaration> {
        self.0.declaration()
    }

    async fn call(&self, _: hatchery_core::JsonMap, cx: &hatchery_core::CallContext) -> Result<Value, ToolError> {
        for step in [10.0, 20.0] {
            let progress = ToolProgress { progress: step, total: Some(20.0), message: Some("counting".into()) };
            cx.report_progress("count", &progress).await.unwrap();
        }
        Ok(json!("counted"))
    }
}

/// Stores an image.
struct DrawingTool(Arc<dyn Tool>);

#[async_trait::async_trait]
impl Tool for DrawingTool {
    fn declaration(&self) -> &Arc<hatchery_core::FunctionDeclaration> {
        self.0.declaration()
    }

    async fn call(&self, _: hatchery_core::JsonMap, cx: &hatchery_core::CallContext) -> Result<Value, ToolError> {
        let blob = Blob { mime_type: "image/png".into(), data: "hello".into(), display_name: None };
        cx.save_artifact("die.png", &PartData::InlineData(blob).into()).await?;
        Ok(json!("drawn"))
    }
}

/// Records notifications.
#[derive(Clone, Default)]
pub struct Recorder {
    progress: Arc<Mutex<Vec<String>>>,
    changed: Arc<Notify>,
    pub resources_changed: Arc<Notify>,
    pub updated: Arc<Notify>,
    /// The URIs of changed resources.
    pub updates: Arc<Mutex<Vec<String>>>,
    logs: Arc<Mutex<Vec<Value>>>,
}

impl ClientHandler for Recorder {
    fn get_info(&self) -> rmcp::model::ClientConfig {
        rmcp::model::ClientConfig::default().with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().unwrap().push(format!("{} {}", params.progress, params.message.unwrap()));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    #[expect(deprecated, reason = "revision 2026-07-28 deprecates log messages")]
    async fn on_logging_message(
        &self,
        params: rmcp::model::LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.logs.lock().unwrap().push(json!({"level": params.level, "logger": params.logger, "data": params.data}));
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.resources_changed.notify_one();
    }

    async fn on_resource_updated(
        &self,
        params: rmcp::model::ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.updates.lock().unwrap().push(params.uri);
        self.updated.notify_one();
    }
}

pub type Client = RunningService<RoleClient, Recorder>;

pub async fn connect(service: McpService) -> Client {
    let (client, server) = tokio::io::duplex(64 << 10);
    let (read, write) = tokio::io::split(server);
    tokio::spawn(async move { service.serve(read, write, std::future::pending()).await });
    Recorder::default().serve(client).await.unwrap()
}

pub async fn call(client: &Client, name: &str, args: Value) -> Result<CallToolResult, ServiceError> {
    let params = CallToolRequestParams::new(name.to_owned()).with_arguments(args.as_object().unwrap().clone());
    client.call_tool(params).await
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

async fn names(client: &Client) -> Vec<String> {
    client.list_all_tools().await.unwrap().iter().map(|tool| tool.name.to_string()).collect()
}

#[tokio::test]
async fn clients_see_what_is_exposed() {
    let host = Host::new(vec![counter()]);
    let client = host.client().await;
    assert_eq!(names(&client).await, ["bank_pay", "dice_count", "dice_draw", "dice_fail", "dice_roll", "run_counter"]);
    let tools = client.list_all_tools().await.unwrap();
    assert_eq!(tools[5].description.as_deref(), Some("Counts messages."));
    assert_eq!(tools[5].input_schema["required"], json!(["message"]));
    assert_eq!(tools[4].input_schema["type"], "object");
    assert_eq!(names(&connect(host.service(&["*"], &[])).await).await, ["run_counter"]);
    assert_eq!(names(&connect(host.service(&[], &["dice/r*"])).await).await, ["dice_roll"]);
    let hidden = call(&connect(host.service(&[], &["dice/r*"])).await, "bank_pay", json!({})).await.unwrap_err();
    assert!(matches!(&hidden, ServiceError::McpError(error) if error.code.0 == -32602), "{hidden}");
    assert!(hidden.to_string().contains("Unknown tool: bank_pay"), "{hidden}");
}

#[tokio::test]
async fn an_app_answers_and_its_session_continues() {
    let client = Host::new(vec![counter()]).client().await;
    let first = call(&client, "run_counter", json!({"message": "hello"})).await.unwrap();
    assert_eq!(text(&first), "1: hello");
    let session = first.structured_content.as_ref().unwrap()["session"].clone();
    let second = call(&client, "run_counter", json!({"message": "again", "session": session})).await.unwrap();
    assert_eq!(text(&second), "3: again");
    assert_eq!(second.structured_content.unwrap(), json!({"session": session, "response": "3: again"}));
    let missing = call(&client, "run_counter", json!({"session": 3})).await.unwrap();
    assert_eq!((missing.is_error, text(&missing)), (Some(true), "`message` is missing; it must be a string"));
    let odd = call(&client, "run_counter", json!({"message": "x", "session": 3})).await.unwrap();
    assert_eq!((odd.is_error, text(&odd)), (Some(true), "`session` must be a string"));
}

#[tokio::test]
async fn a_tool_is_called_in_a_session_that_does_not_stay() {
    let host = Host::new(vec![]);
    let client = host.client().await;
    let rolled = call(&client, "dice_roll", json!({"sides": 6})).await.unwrap();
    assert_eq!((rolled.is_error, rolled.structured_content), (Some(false), Some(json!({"rolled": 6}))));
    assert!(host.runner.services().sessions.list("mcp-tools", "mcp").await.unwrap().is_empty());
}

#[tokio::test]
async fn files_of_a_call_are_part_of_its_result() {
    let client = Host::new(vec![]).client().await;
    let drawn = call(&client, "dice_draw", json!({})).await.unwrap();
    assert_eq!(text(&drawn), "drawn");
    let image = drawn.content[1].as_image().unwrap();
    assert_eq!((image.mime_type.as_str(), image.data.as_str()), ("image/png", "aGVsbG8="));
}

#[tokio::test]
async fn failures_are_results_that_a_model_can_read() {
    let client = Host::new(vec![]).client().await;
    let failed = call(&client, "dice_fail", json!({})).await.unwrap();
    assert_eq!((failed.is_error, text(&failed)), (Some(true), "the die is lost"));
}

#[tokio::test]
async fn events_are_reported_as_progress() {
    let twice = custom("twice", |cx| async move {
        cx.say("one").await?;
        cx.say("two").await?;
        Ok(())
    });
    let client = Host::new(vec![twice.build().unwrap()]).client().await;
    let result = call(&client, "run_twice", json!({"message": "go"})).await.unwrap();
    assert_eq!(text(&result), "one\n\ntwo");
    while client.service().progress.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*client.service().progress.lock().unwrap(), ["1 twice", "2 twice"]);
}

#[tokio::test]
async fn the_progress_of_a_tool_is_forwarded() {
    let client = Host::new(vec![]).client().await;
    assert_eq!(text(&call(&client, "dice_count", json!({})).await.unwrap()), "counted");
    while client.service().progress.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*client.service().progress.lock().unwrap(), ["10 counting", "20 counting"]);
}

#[tokio::test]
#[expect(deprecated, reason = "revision 2026-07-28 deprecates log messages")]
async fn events_are_log_messages_for_clients_that_ask_for_them() {
    use rmcp::model::{LoggingLevel, SetLevelRequestParams};
    let failing = custom("failing", |cx| async move {
        cx.say("one").await?;
        let failure = hatchery_core::EventData {
            error_code: Some("BROKEN".into()),
            error_message: Some("it is broken".into()),
            ..hatchery_core::EventData::default()
        };
        cx.emit(failure).await?;
        Ok(())
    });
    let client = Host::new(vec![failing.build().unwrap()]).client().await;
    let logs = || client.service().logs.lock().unwrap().clone();
    let go = || call(&client, "run_failing", json!({"message": "go"}));
    go().await.unwrap();
    client.set_level(SetLevelRequestParams::new(LoggingLevel::Warning)).await.unwrap();
    go().await.unwrap();
    client.set_level(SetLevelRequestParams::new(LoggingLevel::Debug)).await.unwrap();
    go().await.unwrap();
    while logs().len() < 3 {
        tokio::task::yield_now().await;
    }
    let info = json!({"author": "failing", "calls": [], "error": null});
    let error = json!({"author": "failing", "calls": [], "error": "it is broken"});
    let expected = [("error", &error), ("info", &info), ("error", &error)]
        .map(|(level, data)| json!({"level": level, "logger": "hatchery", "data": data}));
    assert_eq!(logs(), expected);
}

/// Notifies when it is dropped.
struct DropSignal(Arc<Notify>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn a_cancelled_call_cancels_its_run() {
    let (started, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let waiting = custom("waiting", {
        let (started, ended) = (started.clone(), ended.clone());
        move |cx| {
            let (started, signal) = (started.clone(), DropSignal(ended.clone()));
            async move {
                started.notify_one();
                cx.call.invocation.cancel.cancelled().await;
                drop(signal);
                Ok(())
            }
        }
    });
    let host = Host::new(vec![waiting.build().unwrap()]);
    let client = host.client().await;
    let args = json!({"message": "go"}).as_object().unwrap().clone();
    let request = CallToolRequest::new(CallToolRequestParams::new("run_waiting").with_arguments(args));
    let options = PeerRequestOptions::no_options();
    let handle = client.send_cancellable_request(ClientRequest::CallToolRequest(request), options).await.unwrap();
    started.notified().await;
    handle.cancel(None).await.unwrap();
    ended.notified().await;
    host.runner.drain().await;
}

#[tokio::test]
async fn clients_are_notified_of_changed_tools() {
    let host = Host::new(vec![]);
    let client = host.client().await;
    assert!(!names(&client).await.contains(&"dice_throw".to_owned()));
    let throw = tool("throw", |_, _| Ok(Value::Null));
    host.catalog.tools.lock().unwrap().insert("dice/throw".into(), throw);
    // The handshake ends at the server when it has read the client's last notification.
    while host.catalog.generation.receiver_count() == 0 {
        tokio::task::yield_now().await;
    }
    host.catalog.generation.send_modify(|generation| *generation += 1);
    client.service().changed.notified().await;
    assert!(names(&client).await.contains(&"dice_throw".to_owned()));
}

#[tokio::test]
async fn a_client_that_repeats_the_end_of_its_handshake_is_notified_once() {
    let host = Host::new(vec![]);
    let client = host.client().await;
    for _ in 0..5 {
        client.notify_initialized().await.unwrap();
    }
    // The answer comes after the notifications were handled.
    names(&client).await;
    assert_eq!(host.catalog.generation.receiver_count(), 1);
}

#[tokio::test]
async fn calls_beyond_the_maximum_of_runs_are_refused() {
    let host = Host::new(vec![counter()]);
    let client = connect(host.service(&["*"], &[]).with_max_runs(0)).await;
    let refused = call(&client, "run_counter", json!({"message": "hello"})).await.unwrap();
    assert_eq!((refused.is_error, text(&refused)), (Some(true), "the maximum of 0 runs is active; try again later"));
}

pub async fn serve(service: McpService) -> (String, McpEndpoint) {
    let endpoint = McpEndpoint::new(service);
    let answer = {
        let endpoint = endpoint.clone();
        move |request: Request| {
            let endpoint = endpoint.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body: Bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                endpoint.handle(http::Request::from_parts(parts, body)).await.map(Body::new)
            }
        }
    };
    let url = serve_http(Router::new().route("/mcp", any(answer))).await;
    (format!("{url}/mcp"), endpoint)
}

pub fn http_client() -> reqwest::Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    reqwest::Client::new()
}

#[tokio::test]
async fn both_eras_are_served_over_http() {
    let host = Host::new(vec![counter()]);
    let (url, _endpoint) = serve(host.service(&["*"], &["*"])).await;
    let transport = || {
        let config =
            rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig::with_uri(url.clone());
        StreamableHttpClientTransport::with_client(http_client(), config)
    };
    let earlier = Recorder::default().serve(transport()).await.unwrap();
    assert_eq!(earlier.peer_info().unwrap().protocol_version, ProtocolVersion::V_2025_11_25);
    assert_eq!(text(&call(&earlier, "run_counter", json!({"message": "hello"})).await.unwrap()), "1: hello");
    let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let modern = Recorder::default().serve_with_lifecycle(transport(), modern).await.unwrap();
    assert_eq!(modern.peer_info().unwrap().protocol_version, ProtocolVersion::V_2026_07_28);
    assert_eq!(text(&call(&modern, "run_counter", json!({"message": "hello"})).await.unwrap()), "1: hello");
}

fn initialize() -> Value {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

#[tokio::test]
async fn the_number_of_sessions_is_limited() {
    let (url, endpoint) = serve(Host::new(vec![]).service(&[], &[])).await;
    let client = http_client();
    let open = || async {
        let request = client.post(&url).header("accept", "application/json, text/event-stream").json(&initialize());
        request.send().await.unwrap()
    };
    for _ in 0..256 {
        assert_eq!(open().await.status(), 200);
    }
    let refused = open().await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(refused.text().await.unwrap(), "the maximum of 256 MCP sessions is open; try again later");
    endpoint.close();
}

#[tokio::test]
async fn one_client_cannot_open_all_sessions() {
    let endpoint = McpEndpoint::new(Host::new(vec![]).service(&[], &[]));
    let open = async |user: &str| {
        let scope = ClientScope { user: Some(user.into()), apps: ["*".to_owned()].into() };
        let request = http::Request::post("http://localhost/mcp").extension(scope);
        let request = request.header("accept", "application/json, text/event-stream");
        let request = request.header("content-type", "application/json");
        let response = endpoint.handle(request.body(Bytes::from(initialize().to_string())).unwrap()).await;
        response.status().as_u16()
    };
    for _ in 0..64 {
        assert_eq!(open("ann").await, 200);
    }
    assert_eq!(open("ann").await, 503);
    assert_eq!(open("bob").await, 200);
    endpoint.close();
}
