//! Remote agents whose streams and answers get lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use hatchery_a2a::{Aggregation, CardSource, ClientLimits, RemoteAgent, RemoteAgentConfig};
use hatchery_core::{Event, PartData, RunError};
use hatchery_test_support::Harness;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::Anywhere;

/// An agent that answers with one prepared response after the other.
struct Peer {
    url: String,
    /// The methods that were called.
    called: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    async fn start(responses: impl IntoIterator<Item = Response>) -> Self {
        // Another test may have installed it.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let interface = json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
        let card = json!({"name": "far", "supportedInterfaces": [interface], "capabilities": {"streaming": true}});
        let called: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, responses) = (called.clone(), responses.into_iter().collect::<Vec<_>>());
        let responses = Arc::new(Mutex::new(responses.into_iter()));
        let answer = move |method: Method, body: String| {
            let (card, log, responses) = (card.clone(), log.clone(), responses.clone());
            async move {
                if method == Method::GET {
                    return Json(card).into_response();
                }
                let call: Value = serde_json::from_str(&body).unwrap();
                log.lock().unwrap().push(call["method"].as_str().unwrap().to_owned());
                let next = responses.lock().unwrap().next();
                next.unwrap_or_else(|| StatusCode::SERVICE_UNAVAILABLE.into_response())
            }
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        Self { url, called }
    }

    fn called(&self) -> Vec<String> {
        self.called.lock().unwrap().clone()
    }

    async fn harness(&self, limits: ClientLimits) -> Harness {
        Harness::new(remote(CardSource::Url(format!("{}/card", self.url)), limits).agent("far", "Is far.")).await
    }
}

fn remote(card: CardSource, limits: ClientLimits) -> RemoteAgent {
    let (headers, egress, aggregation) = (BTreeMap::new(), Arc::new(Anywhere), Aggregation::default());
    RemoteAgent::new(RemoteAgentConfig { card, headers, egress, aggregation, limits })
}

fn result(result: Value) -> Response {
    Json(json!({"jsonrpc": "2.0", "id": 1, "result": result})).into_response()
}

fn refusal(code: i64) -> Response {
    Json(json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "not now"}})).into_response()
}

/// Returns a stream of these results, which ends without the end of the task.
fn lost_stream(results: &[Value]) -> Response {
    let events =
        results.iter().map(|result| format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": 1, "result": result})));
    ([("content-type", "text/event-stream")], Body::from(events.collect::<String>())).into_response()
}

fn task(state: &str, remark: Option<&str>, text: &str) -> Value {
    let mut status = json!({"state": format!("TASK_STATE_{state}")});
    if let Some(remark) = remark {
        status["message"] = json!({"messageId": "r", "role": "ROLE_AGENT", "parts": [{ "text": remark }]});
    }
    let artifacts = json!([{"artifactId": "a", "parts": [{ "text": text }]}]);
    json!({"id": "t", "contextId": "c", "status": status, "artifacts": artifacts})
}

fn chunk(text: &str, append: bool) -> Value {
    let artifact = json!({"artifactId": "a", "parts": [{ "text": text }]});
    json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "append": append, "lastChunk": false}})
}

fn end() -> Value {
    json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}})
}

/// Returns the texts of the agent, in parentheses if they are remarks.
fn texts(events: &[Arc<Event>]) -> Vec<String> {
    let parts = events.iter().filter(|event| event.author == "far").filter_map(|event| event.content.as_ref());
    let parts = parts.flat_map(|content| content.parts.iter());
    parts
        .filter_map(|part| match &part.data {
            PartData::Text(text) if part.thought => Some(format!("({text})")),
            PartData::Text(text) => Some(text.to_string()),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn what_was_published_while_the_stream_was_lost_is_not_missing() {
    let peer = Peer::start([
        lost_stream(&[json!({"task": task("WORKING", None, "")}), chunk("One, ", false)]),
        result(task("WORKING", None, "One, two, ")),
        lost_stream(&[chunk("three.", true), end()]),
    ])
    .await;
    let events = peer.harness(ClientLimits::default()).await.run("Count!").await;
    assert_eq!(texts(&events), ["One, two, three."]);
    assert_eq!(peer.called(), ["SendStreamingMessage", "GetTask", "SubscribeToTask"]);
}

#[tokio::test]
async fn a_task_is_asked_for_until_it_can_be_read() {
    let peer = Peer::start([
        lost_stream(&[json!({"task": task("WORKING", None, "")})]),
        StatusCode::BAD_GATEWAY.into_response(),
        result(task("WORKING", Some("Still counting."), "One")),
        refusal(-32603),
        result(task("WORKING", Some("Still counting."), "One")),
        result(task("COMPLETED", None, "One, two.")),
    ])
    .await;
    let events = peer.harness(ClientLimits::default()).await.run("Count!").await;
    assert_eq!(texts(&events), ["(Still counting.)", "One, two."]);
    let expected = ["SendStreamingMessage", "GetTask", "GetTask", "SubscribeToTask", "GetTask", "GetTask"];
    assert_eq!(peer.called(), expected);
}

#[tokio::test]
async fn a_task_that_cannot_be_read_for_too_long_is_given_up() {
    let peer = Peer::start([lost_stream(&[json!({"task": task("WORKING", None, "")})])]).await;
    let limits = ClientLimits { read_timeout: Duration::from_millis(600), ..ClientLimits::default() };
    let error = peer.harness(limits).await.expect_error("Count!").await.1;
    let RunError::Agent { code, message, .. } = &error else { panic!("{error:?}") };
    assert_eq!(code, "A2A_UNREACHABLE");
    assert!(message.ends_with("the answer has the status 503 Service Unavailable"), "{message}");
    assert!(peer.called().iter().filter(|method| *method == "GetTask").count() > 1, "{:?}", peer.called());
}

#[tokio::test]
async fn a_card_in_a_file_has_the_limit_of_one_at_a_url() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("card.json");
    std::fs::write(&file, format!("{{\"name\": \"{}\"}}", "x".repeat(2_000))).unwrap();
    let limits = ClientLimits { max_card: 1_024, ..ClientLimits::default() };
    let agent = remote(CardSource::File(file), limits).agent("far", "Is far.");
    let RunError::Agent { code, message, .. } = Harness::new(agent).await.expect_error("Hi").await.1 else { panic!() };
    assert_eq!(code, "A2A_TOO_LARGE");
    assert_eq!(message, "the remote agent: it sent more than 1024 bytes in one card");
}

#[tokio::test]
async fn the_path_of_a_card_is_only_in_the_log() {
    let agent = remote(CardSource::File("/srv/secret/card.json".into()), ClientLimits::default());
    let error = Harness::new(agent.agent("far", "Is far.")).await.expect_error("Hi").await.1;
    let RunError::Agent { code, message, .. } = &error else { panic!("{error:?}") };
    assert_eq!(code, "A2A_CARD");
    assert_eq!(message, "the remote agent: its card cannot be read; the server's log holds the cause");
}
