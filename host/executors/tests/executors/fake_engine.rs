//! A container engine: it speaks the API of Docker on a Unix socket, and runs the commands of its "containers" as
//! processes of this machine, each container in its own folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Json, Path as UrlPath, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

use hatchery_executors::ContainerConfig;

use crate::suite::TestEngine;

/// Permits of an open gate.
const OPEN: usize = 1000;

#[derive(Clone)]
pub struct FakeEngine {
    state: Arc<Mutex<Containers>>,
    folder: Arc<TempDir>,
    /// Requests to create containers pass it.
    gate: Arc<Semaphore>,
    /// Signalled by each request to create a container.
    asked: Arc<Semaphore>,
}

#[derive(Default)]
struct Containers {
    created: Vec<Value>,
    /// By name.
    running: HashMap<String, Container>,
    /// The highest number of containers at a time.
    most: usize,
    /// Containers that have not started, of a host that has died.
    abandoned: Vec<Value>,
    execs: HashMap<String, (PathBuf, Vec<String>)>,
    removed: Vec<String>,
}

struct Container {
    id: String,
    folder: TempDir,
    command: Vec<String>,
    /// Ends with this.
    process: Option<Child>,
}

impl Drop for Container {
    fn drop(&mut self) {
        // All of its processes end with the first one.
        if let Some(id) = self.process.as_ref().and_then(Child::id) {
            let kill =
                std::process::Command::new("kill").args(["-9", "--", &format!("-{id}")]).stderr(Stdio::null()).status();
            kill.unwrap();
        }
    }
}

fn error(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({"message": message}))).into_response()
}

fn command(folder: &Path, words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder).kill_on_drop(true).stdin(Stdio::null()).process_group(0);
    command
}

impl FakeEngine {
    pub async fn start() -> Self {
        let engine = Self {
            state: Arc::default(),
            folder: Arc::new(tempfile::tempdir().unwrap()),
            gate: Arc::new(Semaphore::new(OPEN)),
            asked: Arc::new(Semaphore::new(0)),
        };
        let app = Router::new()
            .route("/v1.41/containers/create", post(create))
            .route("/v1.41/containers/{id}/start", post(start))
            .route("/v1.41/containers/json", get(list))
            .route("/v1.41/containers/{id}/exec", post(create_exec))
            .route("/v1.41/containers/{id}", delete(remove))
            .route("/v1.41/exec/{id}/start", post(start_exec))
            .route("/v1.41/images/{name}/json", get(image))
            .route("/v1.41/_ping", get(|| async { "OK" }))
            .with_state(engine.clone());
        let listener = UnixListener::bind(engine.socket()).unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        engine
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("engine.sock")
    }

    /// Returns the bodies of the requests that created containers.
    pub fn created(&self) -> Vec<Value> {
        self.state.lock().unwrap().created.clone()
    }

    /// Returns the number of commands that were started in containers.
    pub fn executed(&self) -> usize {
        self.state.lock().unwrap().execs.len()
    }

    /// Returns the ids of the removed containers, with the query of each request.
    pub fn removed(&self) -> Vec<String> {
        self.state.lock().unwrap().removed.clone()
    }

    /// Returns the highest number of containers that have existed at a time.
    pub fn most(&self) -> usize {
        self.state.lock().unwrap().most
    }

    /// Lets requests to create containers wait.
    pub fn close_gate(&self) {
        self.gate.forget_permits(OPEN);
    }

    pub fn open_gate(&self) {
        self.gate.add_permits(OPEN);
    }

    /// Waits for a request to create a container.
    pub async fn wait_until_asked(&self) {
        self.asked.acquire().await.unwrap().forget();
    }

    /// Adds a container that has not started, created at this time in seconds since 1970.
    pub fn abandon(&self, id: &str, created: u64) {
        self.state.lock().unwrap().abandoned.push(json!({"Id": id, "Created": created}));
    }
}

async fn create(
    State(engine): State<FakeEngine>,
    Query(query): Query<HashMap<String, String>>,
    Json(container): Json<Value>,
) -> Response {
    engine.asked.add_permits(1);
    drop(engine.gate.acquire().await.unwrap());
    let mut state = engine.state.lock().unwrap();
    state.created.push(container.clone());
    assert!(query["name"].starts_with("hatchery-"), "{query:?}");
    let id = format!("container-{}", state.created.len());
    let words = container["Entrypoint"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned());
    let (folder, command) = (tempfile::tempdir().unwrap(), words.collect());
    state.running.insert(query["name"].clone(), Container { id: id.clone(), folder, command, process: None });
    state.most = state.most.max(state.running.len());
    (StatusCode::CREATED, Json(json!({"Id": id, "Warnings": []}))).into_response()
}

async fn image(UrlPath(name): UrlPath<String>) -> Response {
    if name == "missing" {
        return error(StatusCode::NOT_FOUND, "No such image: missing:latest");
    }
    Json(json!({"Config": {"Volumes": {"/data": {}, "/work": {}}}})).into_response()
}

async fn start(State(engine): State<FakeEngine>, UrlPath(id): UrlPath<String>) -> Response {
    let mut state = engine.state.lock().unwrap();
    let Some(container) = state.running.get_mut(&id) else { return gone() };
    let process = command(container.folder.path(), &container.command).stderr(Stdio::null()).spawn().unwrap();
    container.process = Some(process);
    StatusCode::NO_CONTENT.into_response()
}

fn gone() -> Response {
    error(StatusCode::NOT_FOUND, "No such container")
}

async fn list(State(engine): State<FakeEngine>, Query(query): Query<HashMap<String, String>>) -> Json<Value> {
    let filters: Value = serde_json::from_str(&query["filters"]).unwrap();
    assert_eq!((&*query["all"], filters), ("true", json!({"label": ["hatchery=code"], "status": ["created"]})));
    Json(engine.state.lock().unwrap().abandoned.clone().into())
}

async fn create_exec(
    State(engine): State<FakeEngine>,
    UrlPath(id): UrlPath<String>,
    Json(exec): Json<Value>,
) -> Response {
    assert_eq!((&exec["AttachStdin"], &exec["WorkingDir"]), (&json!(true), &json!("/work")));
    let mut state = engine.state.lock().unwrap();
    let Some(container) = state.running.get_mut(&id) else { return gone() };
    let ended = container.process.as_mut().is_none_or(|process| process.try_wait().unwrap().is_some());
    if ended {
        return error(StatusCode::CONFLICT, "container is not running");
    }
    let folder = container.folder.path().to_owned();
    let words = exec["Cmd"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect();
    let id = format!("exec-{}", state.execs.len());
    state.execs.insert(id.clone(), (folder, words));
    (StatusCode::CREATED, Json(json!({"Id": id}))).into_response()
}

async fn start_exec(State(engine): State<FakeEngine>, UrlPath(id): UrlPath<String>, mut request: Request) -> Response {
    let (folder, words) = engine.state.lock().unwrap().execs[&id].clone();
    assert_eq!(request.headers()["upgrade"], "tcp");
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(run_exec(upgrade, command(&folder, &words)));
    let upgraded = [("connection", "Upgrade"), ("upgrade", "tcp")];
    (StatusCode::SWITCHING_PROTOCOLS, upgraded, Body::empty()).into_response()
}

/// Runs a command with the connection as its standard input, and writes its output there.
async fn run_exec(upgrade: OnUpgrade, mut command: Command) {
    let (mut input, mut output) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    let copying = tokio::spawn(async move { tokio::io::copy(&mut input, &mut stdin).await });
    let printed = process.wait_with_output().await.unwrap();
    copying.abort();
    let mut body = Vec::new();
    for (stream, bytes) in [(1, printed.stdout), (2, printed.stderr)] {
        // Pieces whose size does not fit the pieces of the connection.
        for piece in bytes.chunks(1000) {
            body.extend_from_slice(&[stream, 0, 0, 0]);
            body.extend_from_slice(&u32::try_from(piece.len()).unwrap().to_be_bytes());
            body.extend_from_slice(piece);
        }
    }
    // The host may have given it up.
    let _ = output.write_all(&body).await;
    let _ = output.shutdown().await;
}

async fn remove(
    State(engine): State<FakeEngine>,
    UrlPath(id): UrlPath<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    assert_eq!((&*query["force"], &*query["v"]), ("true", "true"));
    let mut state = engine.state.lock().unwrap();
    match state.running.remove(&id) {
        Some(container) => {
            state.removed.push(container.id.clone());
            StatusCode::NO_CONTENT.into_response()
        }
        None if state.abandoned.iter().any(|container| container["Id"] == *id) => {
            state.removed.push(id);
            StatusCode::NO_CONTENT.into_response()
        }
        None => gone(),
    }
}

impl TestEngine for FakeEngine {
    fn config(&self) -> ContainerConfig {
        ContainerConfig::new(self.socket(), "python:3")
    }

    fn count(&self) -> usize {
        self.state.lock().unwrap().running.len()
    }

    fn end_containers(&self) {
        self.state.lock().unwrap().running.clear();
    }
}
