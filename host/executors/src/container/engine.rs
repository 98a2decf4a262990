//! The API of Docker, which Podman has too, over a Unix socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use hatchery_core::excerpt;
use hatchery_egress::{describe, read_body};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

/// The version of the API, which Docker has since 20.10 and Podman since 3.0.
const BASE: &str = "http://localhost/v1.41";

/// Timeout of a request that does not run code.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of an answer that is not the output of code.
const MAX_ANSWER: usize = 1 << 20;

/// Maximum size in bytes of an answer in an error.
const MAX_EXCERPT: usize = 300;

/// Length in bytes of the header of each frame of output.
const FRAME_HEADER: usize = 8;

/// Reasons why an engine is not usable.
#[derive(Debug, Error)]
pub(super) enum EngineError {
    /// Nothing answers at the socket.
    #[error(
        "nothing answers at {}: {reason}; start the engine (such as `systemctl start docker`, or `podman system service`), \
         or set `socket` to its socket, which the host must be allowed to use", socket.display()
    )]
    Unreachable { socket: PathBuf, reason: String },
    /// The engine refuses a request.
    #[error("the engine answered with the status {status}: {message}{}", hint(*status, message))]
    Refused { status: StatusCode, message: String },
    /// An answer is not one of the API.
    #[error("the engine does not speak the API of Docker: {0}")]
    Unexpected(String),
}

impl EngineError {
    /// Returns true if the container does not exist or does not run.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { status: StatusCode::NOT_FOUND | StatusCode::CONFLICT, .. })
    }
}

/// Returns a remedy for a refusal, for the operator; empty if none is known.
fn hint(status: StatusCode, message: &str) -> &'static str {
    match status {
        StatusCode::NOT_FOUND if message.to_ascii_lowercase().contains("image") => {
            "; pull or build the image first, such as by `docker pull`"
        }
        StatusCode::FORBIDDEN => "; allow the user of the host to use the socket",
        _ => "",
    }
}

/// A container engine behind its socket.
#[derive(Clone)]
pub(super) struct Engine {
    client: Client,
    socket: PathBuf,
}

/// The output of a command.
#[derive(Debug, Default)]
pub(super) struct CommandOutput {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// True if there was more.
    pub(super) is_cut: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreatedObject {
    id: String,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    message: String,
}

impl Engine {
    pub(super) fn new(socket: &Path) -> Result<Self, String> {
        let client = Client::builder().unix_socket(socket).no_proxy().build();
        let client = client.map_err(|error| format!("cannot create a client for {}: {error}", socket.display()))?;
        Ok(Self { client, socket: socket.to_owned() })
    }

    /// Creates a container. Returns its id.
    pub(super) async fn create(&self, name: &str, container: &Value) -> Result<String, EngineError> {
        let request = self.request(Method::POST, &format!("/containers/create?name={name}"));
        let CreatedObject { id } = self.json(request.json(container)).await?;
        Ok(id)
    }

    pub(super) async fn start(&self, id: &str) -> Result<(), EngineError> {
        self.send(self.request(Method::POST, &format!("/containers/{id}/start")).timeout(TIMEOUT)).await.map(drop)
    }

    /// Unpacks an archive into a folder of a container.
    pub(super) async fn put_archive(&self, id: &str, folder: &str, archive: Vec<u8>) -> Result<(), EngineError> {
        let request = self.request(Method::PUT, &format!("/containers/{id}/archive?path={folder}"));
        let request = request.header(CONTENT_TYPE, "application/x-tar").body(archive);
        self.send(request.timeout(TIMEOUT)).await.map(drop)
    }

    /// Runs a command in a container, and returns at most `limit` bytes of its output.
    pub(super) async fn exec(&self, id: &str, command: &[&str], limit: usize) -> Result<CommandOutput, EngineError> {
        let request = self.request(Method::POST, &format!("/containers/{id}/exec"));
        let exec = json!({"AttachStdout": true, "AttachStderr": true, "Cmd": command, "WorkingDir": super::FOLDER});
        let CreatedObject { id } = self.json(request.json(&exec)).await?;
        let start = self.request(Method::POST, &format!("/exec/{id}/start"));
        let response = self.send(start.json(&json!({"Detach": false, "Tty": false}))).await?;
        let mut frames = Frames { limit, ..Frames::default() };
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            frames.add(&chunk.map_err(|error| EngineError::Unexpected(describe(error)))?);
            if frames.printed.is_cut {
                break;
            }
        }
        Ok(frames.printed)
    }

    /// Ends and removes a container with its files. Failures are logged.
    pub(super) async fn remove(&self, id: &str) {
        let request = self.request(Method::DELETE, &format!("/containers/{id}?force=true&v=true"));
        match self.send(request.timeout(TIMEOUT)).await {
            Ok(_) => {}
            // The engine removes it itself when its process ends.
            Err(error) if error.is_gone() => {}
            Err(error) => tracing::warn!(container = id, "a container is not removed: {error}"),
        }
    }

    /// Removes a container without waiting for it.
    pub(super) fn remove_in_background(&self, id: String) {
        let engine = self.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { engine.remove(&id).await });
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{BASE}{path}"))
    }

    async fn json<T: serde::de::DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, EngineError> {
        let response = self.send(request.timeout(TIMEOUT)).await?;
        let body = read_body(response, MAX_ANSWER).await.map_err(|error| EngineError::Unexpected(error.to_string()))?;
        serde_json::from_slice(&body).map_err(|error| EngineError::Unexpected(error.to_string()))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, EngineError> {
        let response = request
            .send()
            .await
            .map_err(|error| EngineError::Unreachable { socket: self.socket.clone(), reason: describe(error) })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = read_body(response, MAX_ANSWER).await.unwrap_or_default();
        let message = match serde_json::from_slice(&body) {
            Ok(ErrorAnswer { message }) => message,
            Err(_) => String::from_utf8_lossy(&body).into_owned(),
        };
        Err(EngineError::Refused { status, message: excerpt(message.trim(), MAX_EXCERPT) })
    }
}

/// Takes the output of a command apart: each piece has a header with its stream and its length.
#[derive(Default)]
struct Frames {
    limit: usize,
    header: Vec<u8>,
    /// Bytes of the current piece that are to come, and whether it is of the standard error.
    open: (usize, bool),
    printed: CommandOutput,
}

impl Frames {
    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (length, is_stderr) = self.open;
            if length > 0 {
                let (piece, rest) = bytes.split_at(length.min(bytes.len()));
                self.open.0 -= piece.len();
                bytes = rest;
                let room = self.limit.saturating_sub(self.printed.stdout.len() + self.printed.stderr.len());
                self.printed.is_cut |= piece.len() > room;
                let target = if is_stderr { &mut self.printed.stderr } else { &mut self.printed.stdout };
                target.extend(piece.iter().take(room));
                continue;
            }
            let (start, rest) = bytes.split_at((FRAME_HEADER - self.header.len()).min(bytes.len()));
            self.header.extend_from_slice(start);
            bytes = rest;
            if let [stream, _, _, _, a, b, c, d] = *self.header {
                let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
                self.open = (length, stream == 2);
                self.header.clear();
            }
        }
    }
}
