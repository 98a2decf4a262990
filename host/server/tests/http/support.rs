//! A server on a free port with native agents, an HTTP client, and a client for raw bytes.

use std::net::SocketAddr;
use std::sync::{Arc, Once};
use std::time::Duration;

use async_trait::async_trait;
use hatchery::{AppOrigin, AppSource, CatalogReport, ComponentReport, FileReport, RetentionConfig, ServerConfig};
use hatchery_core::{
    Agent, AgentContext, AgentKind, ArtifactService, Content, CustomAgent, CustomAgentSpec, EventData, RunError,
    Services, SessionService, SpanExporter, Timestamp,
};
use hatchery_engine::{App, PluginSource, Plugins, Runner};
use hatchery_models::ModelProviders;
use hatchery_server::{AppState, Server};
use hatchery_stores::{AppQuotas, KeywordMemory, MemoryArtifacts, MemoryCredentials, MemorySessions, Quotas};
use hatchery_telemetry::{Metrics, TraceStore};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

/// Timeout for anything that must happen.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Signals between a test and its agents.
pub struct Signals {
    /// Lets `waits` and `floods` continue.
    pub resume: Semaphore,
    /// Signalled by `waits` when it has started.
    pub started: Semaphore,
    /// Signalled when an agent is cancelled.
    pub cancelled: Semaphore,
}

struct EchoAgent;

#[async_trait]
impl CustomAgent for EchoAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let text = cx.call.invocation.user_content().text();
        cx.call.set_state("said", text.clone().into());
        cx.say(format!("You said: {text}")).await.map(|_| ())
    }
}

struct StreamingAgent;

#[async_trait]
impl CustomAgent for StreamingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        for text in ["Hel", "lo\n"] {
            let content = Some(Arc::new(Content::model(text)));
            cx.emit(EventData { id: "one".into(), content, partial: true, ..EventData::default() }).await?;
        }
        let content = Some(Arc::new(Content::model("Hello\n")));
        cx.emit(EventData { id: "one".into(), content, ..EventData::default() }).await.map(|_| ())
    }
}

struct FailingAgent;

#[async_trait]
impl CustomAgent for FailingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.say("So far so good.").await?;
        Err(RunError::Agent { agent: "fails".into(), code: "AGENT_FAILED".into(), message: "the oven is cold".into() })
    }
}

/// Emits more than the buffers of a connection hold.
struct FloodingAgent(Arc<Signals>);

#[async_trait]
impl CustomAgent for FloodingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let _cancelled = SignalOnDrop(self.0.clone(), cx.call.invocation.cancel.clone());
        for _ in 0..24 {
            cx.say("x".repeat(1 << 20)).await?;
        }
        self.0.resume.acquire().await.unwrap().forget();
        Ok(())
    }
}

struct WaitingAgent(Arc<Signals>);

#[async_trait]
impl CustomAgent for WaitingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let _cancelled = SignalOnDrop(self.0.clone(), cx.call.invocation.cancel.clone());
        cx.say("Waiting.").await?;
        self.0.started.add_permits(1);
        self.0.resume.acquire().await.unwrap().forget();
        cx.say("Done.").await.map(|_| ())
    }
}

/// Signals a cancelled run when it is dropped: a cancelled agent is dropped where it waits.
struct SignalOnDrop(Arc<Signals>, tokio_util::sync::CancellationToken);

impl Drop for SignalOnDrop {
    fn drop(&mut self) {
        if self.1.is_cancelled() {
            self.0.cancelled.add_permits(1);
        }
    }
}

pub struct FakeSource(pub Vec<Arc<App>>);

impl AppSource for FakeSource {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        assert_ne!(name, "panics", "an app that makes the catalog panic");
        self.0.iter().find(|app| app.name == name).cloned()
    }

    fn app_names(&self) -> Vec<String> {
        self.0.iter().map(|app| app.name.clone()).collect()
    }

    fn app_origin(&self, name: &str) -> AppOrigin {
        match name {
            "says" => AppOrigin::Component,
            "streams" => AppOrigin::Yaml,
            _ => AppOrigin::Native,
        }
    }

    fn report(&self) -> CatalogReport {
        CatalogReport {
            generation: 3,
            components: vec![ComponentReport {
                name: "kitchen".into(),
                file: "kitchen.wasm".into(),
                sha256: "c0ffee".into(),
                agents: vec!["says".into()],
                tools: vec!["boil".into()],
                callbacks: vec![],
                plugins: vec!["guard".into()],
                models: vec!["echo".into()],
                ..ComponentReport::default()
            }],
            files: vec![FileReport {
                path: "<b>broken</b>.wasm".into(),
                name: "broken".into(),
                state: "rejected".into(),
                reason: Some("not a component".into()),
                previous_serves: true,
                since: Timestamp::from_micros(1_500_000),
                ..FileReport::default()
            }],
            ..CatalogReport::default()
        }
    }
}

/// A server under test.
pub struct Host {
    pub address: SocketAddr,
    pub signals: Arc<Signals>,
    pub services: Services,
    pub state: AppState,
    client: Client,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Host {
    pub async fn start() -> Self {
        Self::with(ServerConfig::default()).await
    }

    pub async fn with(config: ServerConfig) -> Self {
        Self::bind(config, "127.0.0.1:0").await
    }

    pub async fn bind(config: ServerConfig, address: &str) -> Self {
        Self::launch(config, address, Plugins::default(), AppQuotas::default(), <_>::default(), <_>::default()).await
    }

    /// Starts a server with these plugins.
    pub async fn with_plugins(plugins: impl PluginSource + 'static) -> Self {
        let address = "127.0.0.1:0";
        let (config, quotas) = (ServerConfig::default(), AppQuotas::default());
        Self::launch(config, address, plugins, quotas, <_>::default(), <_>::default()).await
    }

    /// Starts a server with these quotas.
    pub async fn with_quotas(quotas: Quotas) -> Self {
        Self::with_artifacts(ServerConfig::default(), quotas, Stores::default().artifacts).await
    }

    /// Starts a server that keeps artifacts here.
    pub async fn with_artifacts(config: ServerConfig, quotas: Quotas, artifacts: Arc<dyn ArtifactService>) -> Self {
        let stores = Stores { artifacts, ..Stores::default() };
        Self::launch(config, "127.0.0.1:0", Plugins::default(), quotas.into(), stores, <_>::default()).await
    }

    /// Starts a server that keeps sessions here.
    pub async fn with_sessions(sessions: Arc<dyn SessionService>) -> Self {
        Self::with_sessions_and(sessions, ServerConfig::default()).await
    }

    /// Starts a server with this configuration that keeps sessions here.
    pub async fn with_sessions_and(sessions: Arc<dyn SessionService>, config: ServerConfig) -> Self {
        let stores = Stores { sessions, ..Stores::default() };
        Self::launch(config, "127.0.0.1:0", Plugins::default(), AppQuotas::default(), stores, <_>::default()).await
    }

    /// Starts a server that deletes sessions by these rules.
    pub async fn with_retention(rules: RetentionConfig) -> Self {
        Self::with_retention_of(rules, Stores::default().sessions).await
    }

    /// Starts a server that keeps sessions here, and deletes them by these rules.
    pub async fn with_retention_of(rules: RetentionConfig, sessions: Arc<dyn SessionService>) -> Self {
        let (config, address) = (ServerConfig::default(), "127.0.0.1:0");
        let stores = Stores { sessions, ..Stores::default() };
        Self::launch(config, address, Plugins::default(), AppQuotas::default(), stores, rules).await
    }

    async fn launch(
        config: ServerConfig,
        address: &str,
        plugins: impl PluginSource + 'static,
        quotas: AppQuotas,
        Stores { sessions, artifacts }: Stores,
        retention: RetentionConfig,
    ) -> Self {
        let signals =
            Arc::new(Signals { resume: Semaphore::new(0), started: Semaphore::new(0), cancelled: Semaphore::new(0) });
        let agents: [(&str, Arc<dyn CustomAgent>); 5] = [
            ("fails", Arc::new(FailingAgent)),
            ("floods", Arc::new(FloodingAgent(signals.clone()))),
            ("says", Arc::new(EchoAgent)),
            ("streams", Arc::new(StreamingAgent)),
            ("waits", Arc::new(WaitingAgent(signals.clone()))),
        ];
        let apps = agents.map(|(name, agent)| {
            let agent = Agent::new(
                name,
                format!("It {name}."),
                AgentKind::Custom(CustomAgentSpec { code: agent, model: None, tools: Vec::new() }),
            );
            Arc::new(App::new(name, agent).unwrap())
        });
        let services = quotas.enforce(Services {
            sessions,
            artifacts,
            memory: Arc::new(KeywordMemory::new()),
            credentials: Arc::new(MemoryCredentials::default()),
            models: Arc::new(ModelProviders::new()),
        });
        let (traces, metrics) = (TraceStore::default(), Metrics::default());
        let exporters: Vec<Arc<dyn SpanExporter>> = vec![Arc::new(traces.clone()), Arc::new(metrics.clone())];
        let runner = Runner::with_plugins(services.clone(), plugins).with_span_exporter(Arc::new(exporters));
        let state = AppState::builder(runner, Arc::new(FakeSource(apps.into())), config)
            .traces(traces)
            .metrics(metrics)
            .retention(retention)
            .build();
        let server = Server::bind(address.parse().unwrap(), state.clone()).await.unwrap();
        let address = server.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.serve(async {
            let _ = stopped.await;
        }));
        Self { address, signals, services, state, client: client(), stop: Some(stop), task }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    pub async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.request(Method::POST, path).json(body).send().await.unwrap()
    }

    /// Returns the JSON of a successful response.
    pub async fn get_json(&self, path: &str) -> Value {
        success(self.get(path).await).await
    }

    pub async fn post_json(&self, path: &str, body: &Value) -> Value {
        success(self.post(path, body).await).await
    }

    /// Creates session `s` of user `u`.
    pub async fn session(&self, app: &str) {
        self.post_json(&format!("/apps/{app}/users/u/sessions/s"), &json!({})).await;
    }

    /// Creates session `s` of user `u` over a connection that is closed at once.
    pub async fn session_closing(&self, app: &str) {
        let answer = self.exchange(&post_bytes(&format!("/apps/{app}/users/u/sessions/s"), &json!({}))).await;
        assert!(answer.starts_with(b"HTTP/1.1 200"));
    }

    pub fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub async fn stopped(self) {
        tokio::time::timeout(TIMEOUT, self.task).await.expect("the server does not stop").unwrap();
    }

    /// Sends bytes on a new connection and returns the whole response.
    pub async fn exchange(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect(request).await;
        let mut answer = Vec::new();
        tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        answer
    }

    /// Connects from another loopback address, such as `127.0.0.2`.
    pub async fn connect_from(&self, local: &str, request: &[u8]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(local.parse().unwrap(), 0)).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream
    }

    pub async fn connect(&self, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream
    }
}

/// Where a server keeps its data: in memory by default.
struct Stores {
    sessions: Arc<dyn SessionService>,
    artifacts: Arc<dyn ArtifactService>,
}

impl Default for Stores {
    fn default() -> Self {
        Self { sessions: Arc::new(MemorySessions::new()), artifacts: Arc::new(MemoryArtifacts::new()) }
    }
}

/// The body of a run of session `s` of user `u`.
pub fn run_body(app: &str, text: &str) -> Value {
    json!({"appName": app, "userId": "u", "sessionId": "s", "newMessage": {"role": "user", "parts": [{"text": text}]}})
}

/// Returns the bytes of a POST request with `Connection: close`.
pub fn post_bytes(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Waits for a signal.
pub async fn wait_for(signal: &Semaphore) {
    tokio::time::timeout(TIMEOUT, signal.acquire()).await.expect("no signal").unwrap().forget();
}

/// Splits a response into its head and the chunks of its body.
pub fn chunks(answer: &[u8]) -> (String, Vec<String>) {
    let text = String::from_utf8(answer.to_vec()).unwrap();
    let (head, mut rest) = text.split_once("\r\n\r\n").unwrap();
    let mut chunks = Vec::new();
    loop {
        let (length, after) = rest.split_once("\r\n").unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return (head.to_lowercase(), chunks);
        }
        chunks.push(after[..length].to_owned());
        rest = after[length..].strip_prefix("\r\n").unwrap();
    }
}

pub async fn success(response: Response) -> Value {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Returns the body of an error response, after a check of its status, code and keys.
pub async fn problem(response: Response, status: u16, code: &str) -> Value {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.status(), status);
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["status"], status, "{body}");
    assert_eq!(body["code"], code, "{body}");
    assert!(body["title"].is_string(), "{body}");
    assert!(body["detail"].is_string(), "{body}");
    assert_eq!(body["error"], body["detail"]);
    body
}

pub fn client() -> Client {
    static PROVIDER: Once = Once::new();
    // A host installs it as well.
    PROVIDER.call_once(|| drop(rustls::crypto::aws_lc_rs::default_provider().install_default()));
    Client::builder().no_proxy().timeout(TIMEOUT).build().unwrap()
}

/// A server of a folder with YAML agents. It stops with the test.
pub struct FolderServer {
    address: SocketAddr,
    client: Client,
    _host: hatchery::Host,
}

impl FolderServer {
    pub async fn start(folder: &std::path::Path, config: ServerConfig) -> Self {
        let host = hatchery::Host::builder().folder(folder).watch(true).trace(true).open().await.unwrap();
        let state = AppState::builder(host.runner().clone(), host.apps().clone(), config)
            .traces(host.traces().clone())
            .host_events(host.host_events().clone())
            .build();
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), state).await.unwrap();
        let address = server.local_addr().unwrap();
        tokio::spawn(server.serve(std::future::pending()));
        Self { address, client: client(), _host: host }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    pub async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    /// Continues a stream after an event.
    pub async fn get_after(&self, path: &str, event: &str) -> Response {
        self.request(Method::GET, path).header("Last-Event-ID", event).send().await.unwrap()
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.request(Method::POST, path).json(body).send().await.unwrap()
    }

    pub async fn post_raw(&self, path: &str, content_type: &str, body: &str) -> Response {
        self.request(Method::POST, path)
            .header("Content-Type", content_type)
            .body(body.to_owned())
            .send()
            .await
            .unwrap()
    }
}
