//! A container engine: it speaks the API of Docker on a Unix socket, and runs the commands of its "containers" as processes
//! of this machine, each container in a folder of its own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Json, Path as UrlPath, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, post, put};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::process::{Child, Command};

#[derive(Clone)]
pub struct Engine {
    state: Arc<Mutex<Containers>>,
    folder: Arc<TempDir>,
}

#[derive(Default)]
struct Containers {
    created: Vec<Value>,
    running: HashMap<String, Container>,
    execs: HashMap<String, (PathBuf, Vec<String>)>,
    removed: Vec<String>,
}

struct Container {
    folder: TempDir,
    command: Vec<String>,
    /// Ends with this.
    process: Option<Child>,
}

fn error(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({"message": message}))).into_response()
}

fn command(folder: &Path, words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder).kill_on_drop(true).stdin(Stdio::null());
    command
}

impl Engine {
    pub async fn start() -> Self {
        let engine = Self { state: Arc::default(), folder: Arc::new(tempfile::tempdir().unwrap()) };
        let app = Router::new()
            .route("/v1.41/containers/create", post(create))
            .route("/v1.41/containers/{id}/start", post(start))
            .route("/v1.41/containers/{id}/archive", put(archive))
            .route("/v1.41/containers/{id}/exec", post(create_exec))
            .route("/v1.41/containers/{id}", delete(remove))
            .route("/v1.41/exec/{id}/start", post(start_exec))
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

    /// Returns the ids of the removed containers, with the query of each request.
    pub fn removed(&self) -> Vec<String> {
        self.state.lock().unwrap().removed.clone()
    }

    /// Returns the number of containers that exist.
    pub fn count(&self) -> usize {
        self.state.lock().unwrap().running.len()
    }

    /// Ends all containers, as an engine does that is restarted.
    pub fn restart(&self) {
        self.state.lock().unwrap().running.clear();
    }
}

async fn create(
    State(engine): State<Engine>,
    Query(query): Query<HashMap<String, String>>,
    Json(container): Json<Value>,
) -> Response {
    if container["Image"] == "missing" {
        return error(StatusCode::NOT_FOUND, "No such image: missing:latest");
    }
    let mut state = engine.state.lock().unwrap();
    state.created.push(container.clone());
    assert!(query["name"].starts_with("hatchery-"), "{query:?}");
    let id = format!("container-{}", state.created.len());
    let words = container["Cmd"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned());
    let container = Container { folder: tempfile::tempdir().unwrap(), command: words.collect(), process: None };
    state.running.insert(id.clone(), container);
    (StatusCode::CREATED, Json(json!({"Id": id, "Warnings": []}))).into_response()
}

async fn start(State(engine): State<Engine>, UrlPath(id): UrlPath<String>) -> Response {
    let mut state = engine.state.lock().unwrap();
    let Some(container) = state.running.get_mut(&id) else { return gone() };
    let process = command(container.folder.path(), &container.command).stderr(Stdio::null()).spawn().unwrap();
    container.process = Some(process);
    StatusCode::NO_CONTENT.into_response()
}

fn gone() -> Response {
    error(StatusCode::NOT_FOUND, "No such container")
}

async fn archive(
    State(engine): State<Engine>,
    UrlPath(id): UrlPath<String>,
    Query(query): Query<HashMap<String, String>>,
    body: Bytes,
) -> Response {
    assert_eq!(query["path"], "/work");
    let folder = engine.state.lock().unwrap().running.get(&id).map(|container| container.folder.path().to_owned());
    let Some(folder) = folder else { return gone() };
    let mut tar = Command::new("tar");
    let mut tar = tar.args(["-x", "--no-same-owner"]).current_dir(folder).stdin(Stdio::piped()).spawn().unwrap();
    tar.stdin.take().unwrap().write_all(&body).await.unwrap();
    assert!(tar.wait().await.unwrap().success(), "the archive is not one of tar");
    StatusCode::OK.into_response()
}

async fn create_exec(State(engine): State<Engine>, UrlPath(id): UrlPath<String>, Json(exec): Json<Value>) -> Response {
    assert_eq!((&exec["AttachStdout"], &exec["WorkingDir"]), (&json!(true), &json!("/work")));
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

async fn start_exec(State(engine): State<Engine>, UrlPath(id): UrlPath<String>) -> Response {
    let (folder, words) = engine.state.lock().unwrap().execs[&id].clone();
    let output = command(&folder, &words).output().await.unwrap();
    let mut body = Vec::new();
    for (stream, bytes) in [(1, output.stdout), (2, output.stderr)] {
        // Pieces of a size that does not fit the chunks of the response.
        for piece in bytes.chunks(1000) {
            body.extend_from_slice(&[stream, 0, 0, 0]);
            body.extend_from_slice(&u32::try_from(piece.len()).unwrap().to_be_bytes());
            body.extend_from_slice(piece);
        }
    }
    ([("content-type", "application/vnd.docker.multiplexed-stream")], body).into_response()
}

async fn remove(
    State(engine): State<Engine>,
    UrlPath(id): UrlPath<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    assert_eq!((&*query["force"], &*query["v"]), ("true", "true"));
    let mut state = engine.state.lock().unwrap();
    state.removed.push(id.clone());
    match state.running.remove(&id) {
        Some(_) => StatusCode::NO_CONTENT.into_response(),
        None => gone(),
    }
}
