//! An app with one agent behind an A2A endpoint, and a client that writes version 1.0.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use hatchery_a2a::{A2aEndpoint, A2aService, Body, Egress, ServerSettings, Url};
use hatchery_core::{
    Agent, AgentContext, AgentKind, Content, CustomAgent, CustomAgentSpec, EventData, FunctionCall, Part, PartData,
    RunError, Services, SessionService,
};
use hatchery_engine::{App, AppDirectory, AppSettings, Runner};
use hatchery_test_services::serve_http;
use hatchery_test_support::services;
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot};

pub const APP: &str = "app";

/// An agent that follows the user's text: `ask a b` calls `a` and `b`, which wait for the client, `wait` stops until
/// the test releases it, `message` is answered by a message, anything else is repeated. It repeats the answers to its
/// calls.
pub struct Obedient {
    /// A permit for each run that has come to its stop.
    pub stopped: Semaphore,
    /// A permit for each run that may go on.
    pub released: Semaphore,
}

impl Default for Obedient {
    fn default() -> Self {
        Self { stopped: Semaphore::new(0), released: Semaphore::new(0) }
    }
}

#[async_trait]
impl CustomAgent for Obedient {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let message = cx.call.invocation.user_content();
        let answers: Vec<_> = message.function_responses().filter_map(|it| it.id.clone()).collect();
        if !answers.is_empty() {
            return cx.say(format!("got {}", answers.join(" "))).await.map(drop);
        }
        let text = message.text();
        match text.split_once(' ') {
            Some(("ask", names)) => ask(&cx, names).await,
            _ if text == "wait" => {
                self.stopped.add_permits(1);
                self.released.acquire().await.unwrap().forget();
                cx.say("waited").await.map(drop)
            }
            _ if text == "message" => {
                let content = Some(Arc::new(Content::new("model", vec![Part::text("Only a message.")])));
                let custom_metadata = Some(Box::new(json!({"a2a:message": true})));
                cx.emit(EventData { content, custom_metadata, ..EventData::default() }).await.map(drop)
            }
            _ => cx.say(format!("You said {text}.")).await.map(drop),
        }
    }
}

async fn ask(cx: &AgentContext, names: &str) -> Result<(), RunError> {
    let ids: Vec<String> = names.split(' ').map(str::to_owned).collect();
    let calls = ids.iter().map(|id| {
        let call = FunctionCall { id: Some(id.clone()), name: "ask".into(), ..FunctionCall::default() };
        Part::from(PartData::FunctionCall(call))
    });
    let content = Some(Arc::new(Content::new("model", calls.collect::<Vec<_>>())));
    cx.emit(EventData { content, long_running_tool_ids: ids, ..EventData::default() }).await.map(drop)
}

struct OneApp(Arc<App>);

impl AppDirectory for OneApp {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        (name == APP).then(|| self.0.clone())
    }

    fn app_names(&self) -> Vec<String> {
        vec![APP.into()]
    }
}

/// How a [`Server`] differs from the default.
#[derive(Default)]
pub struct Options {
    pub sessions: Option<Arc<dyn SessionService>>,
    pub settings: ServerSettings,
    /// Another agent, in an app that is resumable.
    pub resumable: Option<Agent>,
}

/// A server whose app is an [`Obedient`] agent.
pub struct Server {
    pub endpoint: A2aEndpoint,
    pub service: A2aService,
    pub runner: Runner,
    pub agent: Arc<Obedient>,
    sent: AtomicUsize,
}

impl Server {
    pub fn new(options: Options) -> Arc<Self> {
        // Another test may have installed it.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let services = services();
        let sessions = options.sessions.unwrap_or_else(|| services.sessions.clone());
        let runner = Runner::new(Services { sessions, ..services }).with_turn_lease(Duration::from_millis(300));
        let agent = Arc::new(Obedient::default());
        let spec = CustomAgentSpec { code: agent.clone(), model: None, tools: Vec::new() };
        let obedient = Agent::new(APP, "Obeys.", AgentKind::Custom(spec));
        let settings = AppSettings { resumable: options.resumable.is_some(), ..AppSettings::default() };
        let app = App::new(APP, options.resumable.unwrap_or(obedient)).unwrap().with_settings(settings);
        let service = A2aService::new(runner.clone(), Arc::new(OneApp(Arc::new(app))), options.settings);
        let endpoint = A2aEndpoint::new(service.clone());
        Arc::new(Self { endpoint, service, runner, agent, sent: AtomicUsize::default() })
    }

    async fn open(&self, method: &str, params: Value) -> Response<Body> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let request = Request::post("/").header("content-type", "application/json").body(Bytes::from(body)).unwrap();
        self.endpoint.handle(APP, "", request).await.unwrap()
    }

    /// Calls a method that answers with a stream.
    pub async fn stream(&self, method: &str, params: Value) -> Items {
        let response = self.open(method, params).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Items(response.into_body())
    }

    /// Posts a body, and returns the response.
    pub async fn post(&self, method: &str, params: Value) -> Response<Bytes> {
        let (parts, body) = self.open(method, params).await.into_parts();
        Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
    }

    /// Calls a method, and returns the whole answer.
    pub async fn call(&self, method: &str, params: Value) -> Value {
        let response = self.post(method, params).await;
        serde_json::from_slice(response.body()).unwrap()
    }

    /// Calls a method, and returns its result.
    pub async fn result(&self, method: &str, params: Value) -> Value {
        let mut answer = self.call(method, params).await;
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].take()
    }

    /// Calls a method, and returns the code and the message of its error.
    pub async fn error(&self, method: &str, params: Value) -> (i64, String) {
        let answer = self.call(method, params).await;
        let error = answer.get("error").unwrap_or_else(|| panic!("{answer}"));
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
    }

    /// Sends parts with these ids, and returns the task.
    pub async fn send_parts(&self, parts: Value, ids: Value) -> Value {
        self.result("SendMessage", self.params(parts, ids)).await["task"].take()
    }

    /// Sends a text, and returns the task.
    pub async fn send(&self, text: &str, ids: Value) -> Value {
        self.send_parts(json!([{ "text": text }]), ids).await
    }

    /// Sends a text, and returns the task without waiting for its end.
    pub async fn begin(&self, text: &str, ids: Value) -> Value {
        let mut params = self.params(json!([{ "text": text }]), ids);
        params["configuration"] = json!({"returnImmediately": true});
        self.result("SendMessage", params).await["task"].take()
    }

    /// Reads a task.
    pub async fn task(&self, task: &Value) -> Value {
        self.result("GetTask", json!({"id": task["id"]})).await
    }

    /// Returns the parameters for a new message.
    pub fn params(&self, parts: Value, ids: Value) -> Value {
        let count = self.sent.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({"messageId": format!("m-{count}"), "role": "ROLE_USER", "parts": parts});
        message.as_object_mut().unwrap().extend(ids.as_object().unwrap().clone());
        json!({ "message": message })
    }

    /// Waits until a run has come to its stop.
    pub async fn stopped(&self) {
        self.agent.stopped.acquire().await.unwrap().forget();
    }
}

/// The items of a stream.
pub struct Items(Body);

impl Items {
    /// Returns the next result. `None` at the end.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            let frame = self.0.frame().await?.unwrap().into_data().unwrap();
            // Anything else is a comment.
            if let Some(data) = frame.strip_prefix(b"data: ") {
                let mut answer: Value = serde_json::from_slice(data).unwrap();
                assert!(answer.get("result").is_some(), "{answer}");
                return Some(answer["result"].take());
            }
        }
    }
}

/// Returns the part that answers a call.
pub fn answer(call: &str) -> Value {
    let data = json!({"id": call, "name": "ask", "response": {"result": call}});
    json!([{"data": data, "metadata": {"adk_type": "function_response"}}])
}

/// Returns the id of the call that a task waits for.
pub fn open_call(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["data"]["id"].as_str().unwrap_or_else(|| panic!("{task}"))
}

/// Returns the state of a task, without its prefix.
pub fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap().trim_start_matches("TASK_STATE_")
}

/// Returns the texts of the artifacts of a task.
pub fn texts(task: &Value) -> Vec<&str> {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    artifacts.filter_map(|artifact| artifact["parts"][0]["text"].as_str()).collect()
}

/// Allows connections to this machine.
pub struct Anywhere;

impl Egress for Anywhere {
    fn check_url(&self, _: &Url) -> Result<(), String> {
        Ok(())
    }

    fn check_address(&self, _: &Url, _: IpAddr) -> Result<(), String> {
        Ok(())
    }
}

/// A push notification. Its sender gets an answer when this is dropped.
pub struct Notification {
    pub body: Value,
    _answer: oneshot::Sender<()>,
}

/// Starts a server that receives push notifications. Returns its URL and a receiver of the notifications.
pub async fn webhook() -> (String, mpsc::UnboundedReceiver<Notification>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let receive = move |body: String| {
        let sender = sender.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            let notification = Notification { body: serde_json::from_str(&body).unwrap(), _answer: answer };
            // The test may have ended.
            let _ = sender.send(notification);
            let _ = answered.await;
        }
    };
    let url = serve_http(Router::new().route("/hook", post(receive))).await;
    (format!("{url}/hook"), receiver)
}
