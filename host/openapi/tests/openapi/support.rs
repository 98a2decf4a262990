//! An API that answers with the request, and an agent that calls one operation.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use hatchery_core::{Event, RunError, Toolset};
use hatchery_egress::{Egress, Url};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_openapi::{ApiConfig, DocumentSource, OpenApiToolset, ToolsetOptions};
use hatchery_test_services::serve_http;
use hatchery_test_support::{Harness, llm_on};
use serde_json::{Value, json};

/// A policy that allows requests to one host and port.
pub struct Only(pub String);

impl Egress for Only {
    fn check_url(&self, url: &Url) -> Result<(), String> {
        let host =
            format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
        if host == self.0 { Ok(()) } else { Err(format!("requests to `{host}` are not allowed")) }
    }

    fn check_address(&self, _: &Url, _: IpAddr) -> Result<(), String> {
        Ok(())
    }
}

/// A policy that allows no address.
pub struct NoAddress;

impl Egress for NoAddress {
    fn check_url(&self, _: &Url) -> Result<(), String> {
        Ok(())
    }

    fn check_address(&self, _: &Url, address: IpAddr) -> Result<(), String> {
        Err(format!("the address `{address}` is not allowed; add it to `private_network`"))
    }
}

/// A server that remembers its requests.
#[derive(Clone)]
pub struct Server {
    pub address: String,
    pub requests: Arc<Mutex<Vec<Value>>>,
}

impl Server {
    /// Starts a server that answers with the request as JSON.
    pub async fn echo() -> Self {
        Self::start(|request| axum::Json(request).into_response()).await
    }

    /// Starts a server that responds with the result of `answer` for the request as JSON.
    pub async fn start(answer: impl Fn(Value) -> Response + Clone + Send + Sync + 'static) -> Self {
        let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
        let log = requests.clone();
        let app = Router::new().fallback(move |request: Request| async move {
            let request = describe(request).await;
            log.lock().unwrap().push(request.clone());
            answer(request)
        });
        let address = serve_http(app).await.trim_start_matches("http://").to_owned();
        Self { address, requests }
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the settings of an API with this document, whose requests may go to this server only.
    pub fn api(&self, document: &Value) -> Api {
        self.api_from_text(&document.to_string())
    }

    /// Like [`Server::api`], with the text of a document.
    pub fn api_from_text(&self, text: &str) -> Api {
        // A provider of the process is installed by the host otherwise.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("openapi.yaml");
        std::fs::write(&file, text).unwrap();
        let mut config = ApiConfig::new(DocumentSource::File(file), Arc::new(Only(self.address.clone())));
        config.base_url = Some(self.url("/v1"));
        Api { config, _folder: folder }
    }
}

/// Returns the parts of a request as JSON.
async fn describe(request: Request<Body>) -> Value {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_else(|_| Bytes::new());
    let headers: serde_json::Map<String, Value> = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned().into()))
        .collect();
    json!({
        "method": parts.method.as_str(),
        "path": parts.uri.path(),
        "query": parts.uri.query(),
        "headers": headers,
        "body": String::from_utf8_lossy(&body),
    })
}

/// An API with its document in a file.
pub struct Api {
    pub config: ApiConfig,
    _folder: tempfile::TempDir,
}

impl Api {
    /// Returns a toolset of the API `shop` with default options.
    pub fn toolset(&self) -> Arc<dyn Toolset> {
        self.toolset_with(ToolsetOptions::default())
    }

    /// Returns a toolset of the API `shop`.
    pub fn toolset_with(&self, options: ToolsetOptions) -> Arc<dyn Toolset> {
        Arc::new(OpenApiToolset::new("shop", self.config.clone(), options))
    }

    /// Calls an operation, and returns the response that the model gets.
    pub async fn call(&self, name: &str, args: Value) -> Value {
        Calls::new(self.toolset(), &[(name, args)]).await.response().await
    }

    /// Calls an operation that fails, and returns the error that the model gets.
    pub async fn error(&self, name: &str, args: Value) -> String {
        error(&self.call(name, args).await)
    }

    /// Returns the declared schema of the arguments of an operation.
    pub async fn schema(&self, name: &str) -> Value {
        let tools = declarations(self.toolset()).await;
        let tool = tools.iter().find(|tool| tool.name == name).unwrap_or_else(|| panic!("no {name}"));
        tool.parameters.clone().unwrap()
    }

    /// Returns the reason why the API cannot be used.
    pub async fn reason(&self) -> String {
        let error = Calls::new(self.toolset(), &[("x", json!({}))]).await.harness.expect_error("go").await.1;
        let RunError::Extension { code, message, .. } = &error else { panic!("{error:?}") };
        assert_eq!(code, "OPENAPI_UNAVAILABLE");
        let shown = "toolset `openapi:shop`: its API is not available; the server's log holds the cause";
        assert_eq!(error.client_message(), shown);
        message.strip_prefix("the API `shop` is not available: ").unwrap().to_owned()
    }
}

/// An app whose agent calls operations.
pub struct Calls {
    pub harness: Harness,
}

impl Calls {
    /// Creates an app that makes these calls in sequence, each after a message.
    pub async fn new(toolset: Arc<dyn Toolset>, calls: &[(&str, Value)]) -> Self {
        let replies = calls.iter().flat_map(|(name, args)| [Reply::call(*name, args.clone()), Reply::from("done")]);
        let model = Arc::new(Scripted::sequence(replies));
        let agent = llm_on("caller", &model, |llm| llm.toolsets.push(toolset));
        Self { harness: Harness::new(agent).await }
    }

    /// Sends a message and returns the response of the tool that the agent calls.
    pub async fn response(&self) -> Value {
        response(&self.harness.run("go").await)
    }
}

/// Returns the tools of a toolset, as a model sees them.
pub async fn declarations(toolset: Arc<dyn Toolset>) -> Vec<Arc<hatchery_core::FunctionDeclaration>> {
    let model = Arc::new(Scripted::new().default_reply("hello").record_requests());
    let agent = llm_on("caller", &model, |llm| llm.toolsets.push(toolset));
    Harness::new(agent).await.run("go").await;
    model.requests()[0].tools.to_vec()
}

/// Returns the names of the tools of a toolset.
pub async fn names(toolset: Arc<dyn Toolset>) -> Vec<String> {
    declarations(toolset).await.iter().map(|tool| tool.name.clone()).collect()
}

/// Returns the first function response in these events.
pub fn response(events: &[Arc<Event>]) -> Value {
    let mut responses = events.iter().flat_map(|event| event.function_responses());
    Value::Object(responses.next().unwrap().response.clone())
}

/// Returns the error message of a response.
pub fn error(response: &Value) -> String {
    response["error"].as_str().unwrap_or_else(|| panic!("no error: {response}")).to_owned()
}

/// Returns a document with these paths.
pub fn document(paths: Value) -> Value {
    json!({"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "paths": paths})
}

/// Returns a document with one operation, `op`, a GET of `/x`.
pub fn operation(operation: Value) -> Value {
    let mut operation = operation;
    operation["operationId"] = "op".into();
    document(json!({"/x": {"get": operation}}))
}
