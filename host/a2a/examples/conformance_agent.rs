//! The agent under test of the A2A conformance suite, for the version that the first argument names. What it does
//! depends on how the id of the message begins.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;
use axum::{Router, http};
use bytes::Bytes;
use hatchery_a2a::{A2aEndpoint, A2aService, Egress, ServerSettings, Url, Version};
use hatchery_core::{
    Agent, AgentContext, AgentKind, Blob, Content, CustomAgent, CustomAgentSpec, EventData, FileData, FunctionCall,
    JsonMap, Part, PartData, RunError, new_event_id, new_function_call_id,
};
use hatchery_engine::{App, AppDirectory, Runner};
use hatchery_test_support::services;

/// How long a task stays in progress that the suite follows.
const LONG: Duration = Duration::from_secs(5);

const NAME: &str = "tck";

struct ConformanceAgent;

#[async_trait]
impl CustomAgent for ConformanceAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let id = cx.call.state("temp:a2a_message_id").and_then(|id| id.as_str().map(str::to_owned)).unwrap_or_default();
        let begins = |prefix: &str| id.starts_with(prefix);
        if begins("tck-reject-task") {
            let message = "rejected".into();
            return Err(RunError::Agent { agent: NAME.into(), code: "REJECTED".into(), message });
        }
        if begins("test-resubscribe-message-id") {
            emit(&cx, "", vec![thought("working")], false).await?;
            tokio::time::sleep(LONG).await;
            return emit(&cx, "", vec![Part::text("done")], false).await;
        }
        if begins("tck-stream-artifact-chunked") {
            let event = new_event_id();
            emit(&cx, &event, vec![Part::text("chunk-1 ")], true).await?;
            emit(&cx, &event, vec![Part::text("chunk-2")], true).await?;
            return emit(&cx, &event, vec![Part::text("chunk-1 chunk-2")], false).await;
        }
        let is_answer = cx.call.invocation.user_content().function_responses().next().is_some();
        let is_known = ["tck-complete", "tck-artifact", "tck-stream", "tck-message"].iter().any(|it| begins(it));
        let is_long_talk = begins("test-history");
        if begins("tck-input-required") || is_long_talk || (!is_known && !is_answer) {
            return ask(&cx).await;
        }
        if begins("tck-message") {
            let content = Some(Arc::new(Content::new("model", vec![result(&id)])));
            let custom_metadata = Some(Box::new(serde_json::json!({"a2a:message": true})));
            return cx.emit(EventData { content, custom_metadata, ..EventData::default() }).await.map(drop);
        }
        emit(&cx, "", vec![result(&id)], false).await
    }
}

/// Returns the result that the suite expects.
fn result(id: &str) -> Part {
    let texts = [
        ("tck-artifact-text", "Generated text content"),
        (
            "tck-artifact-data",
            "<a2a_datapart_json>{\"data\":{\"key\":\"value\",\"count\":42},\"kind\":\"data\"}</a2a_datapart_json>",
        ),
        ("tck-message-response", "Direct message response"),
        ("tck-stream-001", "Stream hello from TCK"),
        ("tck-stream-003", "Stream task lifecycle"),
        ("tck-stream-ordering-001", "Ordered output"),
        ("tck-stream-artifact-text", "Streamed text content"),
    ];
    let (mime_type, display_name) = ("text/plain".to_owned(), Some("output.txt".to_owned()));
    if id.starts_with("tck-artifact-file-url") {
        let file_uri = "https://example.com/output.txt".into();
        return PartData::FileData(FileData { file_uri, mime_type: Some(mime_type), display_name }).into();
    }
    if id.starts_with("tck-artifact-file") || id.starts_with("tck-stream-artifact-file") {
        let data = Bytes::from_static(b"file content");
        return PartData::InlineData(Blob { mime_type, data, display_name }).into();
    }
    let text = texts.into_iter().find(|(prefix, _)| id.starts_with(prefix)).map(|(_, text)| text);
    Part::text(text.unwrap_or("Hello from TCK"))
}

fn thought(text: &str) -> Part {
    Part { thought: true, ..Part::text(text) }
}

/// Waits for the client.
async fn ask(cx: &AgentContext) -> Result<(), RunError> {
    let id = new_function_call_id();
    let call =
        FunctionCall { id: Some(id.clone()), name: "ask".into(), args: JsonMap::new(), ..FunctionCall::default() };
    let content = Some(Arc::new(Content::new("model", vec![PartData::FunctionCall(call).into()])));
    cx.emit(EventData { content, long_running_tool_ids: vec![id], ..EventData::default() }).await.map(drop)
}

async fn emit(cx: &AgentContext, id: &str, parts: Vec<Part>, partial: bool) -> Result<(), RunError> {
    let content = Some(Arc::new(Content::new("model", parts)));
    cx.emit(EventData { id: id.into(), content, partial, ..EventData::default() }).await.map(drop)
}

struct Apps(Arc<App>);

impl AppDirectory for Apps {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        (name == NAME).then(|| self.0.clone())
    }

    fn app_names(&self) -> Vec<String> {
        vec![NAME.into()]
    }
}

/// Allows everything: the suite's webhook is on this machine.
struct Anywhere;

impl Egress for Anywhere {
    fn check_url(&self, _: &Url) -> Result<(), String> {
        Ok(())
    }

    fn check_address(&self, _: &Url, _: IpAddr) -> Result<(), String> {
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Push notifications need a provider of TLS, also to URLs without it.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let spec = CustomAgentSpec { code: Arc::new(ConformanceAgent), model: None, tools: Vec::new() };
    let app = App::new(NAME, Agent::new(NAME, "Is tested.", AgentKind::Custom(spec)))?;
    let version = match std::env::args().nth(1).as_deref() {
        Some("0.3") => Version::V0_3,
        Some("1.0") => Version::V1_0,
        _ => return Err("name the version: 0.3 or 1.0".into()),
    };
    let settings = ServerSettings {
        versions: vec![version],
        // The suite sends a file of an unknown type, and expects an answer.
        input_modes: vec!["*/*".into()],
        push: Some(Arc::new(Anywhere)),
        ..ServerSettings::default()
    };
    let service = A2aService::new(Runner::new(services()), Arc::new(Apps(Arc::new(app))), settings);
    let endpoint = A2aEndpoint::new(service);
    let answer = move |request: Request| {
        let endpoint = endpoint.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 4 << 20).await.unwrap_or_default();
            let path = parts.uri.path().trim_start_matches('/');
            let path = path.strip_prefix("a2a/tck").unwrap_or(path).trim_start_matches('/').to_owned();
            let answer = endpoint.handle(NAME, &path, Request::from_parts(parts, body)).await;
            answer.map_or_else(|| http::Response::new(Body::empty()), |answer| answer.map(Body::new))
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, Router::new().fallback(any(answer))).await?)
}
