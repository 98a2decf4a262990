//! The floor of a load test: a bare axum server that answers the same two requests with bodies of the same size. Runs of the app
//! [`PRIMES`](super::scenario::PRIMES) call its tool with bare Wasmtime first.
//!
//! The program that measures starts itself with [`FLAG`].

use std::sync::Arc;

use anyhow::Context;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Program;
use super::bare_tool::BareTool;
use super::scenario::PRIMES;

/// The argument with which a program should call [`serve`].
pub const FLAG: &str = "--serve-floor";

/// Returns the current program as a bare server.
pub(super) fn program() -> anyhow::Result<Program> {
    Ok(Program { name: "bare axum".into(), path: std::env::current_exe()?, args: vec![FLAG.into()] })
}

/// Serves until the process is killed. Prints its URL.
///
/// # Errors
/// If it cannot listen, or the component of the app `primes` does not load.
pub async fn serve() -> anyhow::Result<()> {
    let routes = Router::new()
        .route("/apps/{app}/users/{user}/sessions/{session}", post(create_session))
        .route("/run", post(run))
        .with_state(Arc::new(BareTool::load("dice")?));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, routes).await.context("serve")
}

async fn create_session(Path((app, user, session)): Path<(String, String, String)>, _: Json<Value>) -> Json<Value> {
    Json(json!({
        "id": session, "appName": app, "userId": user, "state": {}, "events": [], "lastUpdateTime": 1.5e9,
    }))
}

async fn run(State(tool): State<Arc<BareTool>>, Json(request): Json<Value>) -> Result<Json<Value>, StatusCode> {
    let text = request.pointer("/newMessage/parts/0/text").and_then(Value::as_str).unwrap_or_default();
    let answer = if request.get("appName").and_then(Value::as_str) == Some(PRIMES.app) {
        let result = tool.call("check_prime", r#"{"numbers":[2,4,7,9,13]}"#).await;
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
