//! The floor of a load test: a bare axum server that answers the same two requests with bodies of the same size.
//!
//! It is a process of its own, so that its CPU time can be read: the program that measures starts itself with [`FLAG`].

use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::Context;
use axum::extract::Path;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// The argument with which a program should call [`serve`].
pub const FLAG: &str = "--serve-floor";

/// A running server. Dropping it kills it.
pub(super) struct Floor {
    pub(super) address: SocketAddr,
    child: Child,
}

impl Floor {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(FLAG).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let stdout = child.stdout.take().context("stdout is a pipe")?;
        let line = BufReader::new(stdout).lines().next_line().await?;
        let address = line.context("the bare server did not start")?.parse()?;
        Ok(Self { address, child })
    }

    pub(super) fn process(&self) -> anyhow::Result<u32> {
        self.child.id().context("the bare server has ended")
    }
}

/// Serves until the process is killed. Prints its address.
///
/// # Errors
/// If it cannot listen.
pub async fn serve() -> anyhow::Result<()> {
    let routes = Router::new()
        .route("/apps/{app}/users/{user}/sessions/{session}", post(create_session))
        .route("/run", post(run));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, routes).await.context("serve")
}

async fn create_session(Path((app, user, session)): Path<(String, String, String)>, _: Json<Value>) -> Json<Value> {
    Json(json!({
        "id": session, "appName": app, "userId": user, "state": {}, "events": [], "lastUpdateTime": 1.5e9,
    }))
}

async fn run(Json(request): Json<Value>) -> Json<Value> {
    let text = request.pointer("/newMessage/parts/0/text").and_then(Value::as_str).unwrap_or_default();
    Json(json!([{
        "id": "2f1f6b4e-6f0c-4c55-9d9a-3f6f2f3d9a10",
        "invocationId": "e-2f1f6b4e-6f0c-4c55-9d9a-3f6f2f3d9a10",
        "author": "native",
        "timestamp": 1.5e9,
        "content": {"role": "model", "parts": [{"text": format!("You said {text}.")}]},
        "actions": {"stateDelta": {}, "artifactDelta": {}},
        "finishReason": "STOP",
        "modelVersion": "scripted",
    }]))
}
