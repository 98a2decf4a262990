//! The floor of a load test: a bare axum server that answers the same requests with bodies of the same size. Runs of
//! the app [`PRIMES`](super::scenario::PRIMES) call its tool with bare Wasmtime first. Event streams have the events of
//! a file.
//!
//! The program that measures starts itself with [`FLAG`].

use std::sync::Arc;

use anyhow::Context;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Program;
use super::bare_tool::BareTool;
use super::scenario::PRIMES;

/// The argument with which a program should call [`serve`].
pub const FLAG: &str = "--serve-floor";

/// The environment variable with the file of the events that `/run_sse` sends.
const EVENTS: &str = "HATCHERY_LOAD_EVENTS";

/// Returns the current program as a bare server.
pub(super) fn program() -> anyhow::Result<Program> {
    let (path, args) = (std::env::current_exe()?, vec![FLAG.into()]);
    Ok(Program { name: "bare axum".into(), path, args, environment: Vec::new() })
}

/// Returns the same with event streams that have the events of a file.
pub(super) fn streaming_program(events: &std::path::Path) -> anyhow::Result<Program> {
    Ok(Program { environment: vec![(EVENTS.into(), events.into())], ..program()? })
}

/// The responses of the routes.
struct Answers {
    tool: BareTool,
    /// The frames of an event stream.
    events: Vec<Bytes>,
}

/// Serves until the process is killed. Prints its URL.
///
/// # Errors
/// If it cannot listen, or the component of the app `primes` does not load.
pub async fn serve() -> anyhow::Result<()> {
    let events = match std::env::var_os(EVENTS) {
        Some(file) => frames(&std::fs::read(file)?),
        None => Vec::new(),
    };
    let routes = Router::new()
        .route("/apps/{app}/users/{user}/sessions/{session}", post(create_session))
        .route("/run", post(run))
        .route("/run_sse", post(run_sse))
        .with_state(Arc::new(Answers { tool: BareTool::load("dice")?, events }));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, routes).await.context("serve")
}

async fn create_session(Path((app, user, session)): Path<(String, String, String)>, _: Json<Value>) -> Json<Value> {
    Json(json!({
        "id": session, "appName": app, "userId": user, "state": {}, "events": [], "lastUpdateTime": 1.5e9,
    }))
}

/// Splits an event stream after each event.
fn frames(stream: &[u8]) -> Vec<Bytes> {
    let mut frames = Vec::new();
    let mut rest = stream;
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") {
        let (frame, after) = rest.split_at(end + 2);
        frames.push(Bytes::copy_from_slice(frame));
        rest = after;
    }
    frames
}

async fn run_sse(State(answers): State<Arc<Answers>>, _: Json<Value>) -> Response {
    let frames = futures::stream::iter(answers.events.clone().into_iter().map(Ok::<_, std::convert::Infallible>));
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
}

async fn run(State(answers): State<Arc<Answers>>, Json(request): Json<Value>) -> Result<Json<Value>, StatusCode> {
    let text = request.pointer("/newMessage/parts/0/text").and_then(Value::as_str).unwrap_or_default();
    let answer = if request.get("appName").and_then(Value::as_str) == Some(PRIMES.app) {
        let result = answers.tool.call("check_prime", r#"{"numbers":[2,4,7,9,13]}"#).await;
        format!("Prime: {}", result.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?)
    } else {
        format!("You said {text}.")
    };
    Ok(Json(json!([{
        "id": "2f1f6b4e-6f0c-4c55-9d9a-3f6f2f3d9a10",
        "invocationId": "e-2f1f6b4e-6f0c-4c55-9d9a-3f6f2f3d9a10",
        "author": "native",
        "timestamp": 1.5e9,
        "content": {"role": "model", "parts": [{"text": answer}]},
        "actions": {"stateDelta": {}, "artifactDelta": {}},
        "finishReason": "STOP",
        "modelVersion": "scripted",
    }])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_of_a_stream_is_a_frame() {
        assert_eq!(frames(b"data: 1\n\ndata: 2\n\n"), ["data: 1\n\n", "data: 2\n\n"]);
        assert!(frames(b"data: 1\n").is_empty());
    }
}
