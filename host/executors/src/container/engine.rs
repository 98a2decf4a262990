//! A client of the Docker Engine API, which Podman implements as well, over a Unix socket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hatchery_core::excerpt;
use hatchery_egress::{describe, read_body};
use reqwest::header::{CONNECTION, UPGRADE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The version of the API: Docker has it since 20.10, Podman since 3.0.
const BASE: &str = "http://localhost/v1.41";

/// Timeout of a request that does not run code.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of an answer that is not the output of code.
const MAX_ANSWER: usize = 1 << 20;

/// Maximum size in bytes of an answer in an error.
const MAX_EXCERPT: usize = 300;

/// Podman's error message for a container that does not run.
const PODMAN_IS_GONE: &str = "container state improper";

/// Maximum number of bytes of output that are read at a time.
const MAX_CHUNK: usize = 64 << 10;

/// Length in bytes of the header of each frame of output.
const FRAME_HEADER: usize = 8;

/// Reasons why an engine is not usable.
#[derive(Debug, Error)]
pub(super) enum EngineError {
    /// No engine answers at the socket.
    #[error(
        "cannot reach the container engine at {}: {reason}; start the engine (such as `systemctl start docker`, or \
         `podman system service`), or set `socket` to its socket, which the host must be allowed to use", socket.display()
    )]
    Unreachable { socket: PathBuf, reason: String },
    /// The engine refuses a request.
    #[error("the engine answered with the status {status}: {message}{}", hint(*status, message))]
    Refused { status: StatusCode, message: String },
    /// The host stops.
    #[error("the host stops, so no more containers are started")]
    Closed,
    /// An answer does not conform to the API.
    #[error("the engine does not speak the API of Docker: {0}")]
    Unexpected(String),
}

impl EngineError {
    /// Returns true if the container does not exist or does not run.
    pub(super) fn is_gone(&self) -> bool {
        let Self::Refused { status, message } = self else { return false };
        // Podman 4 has no specific status for it.
        matches!(*status, StatusCode::NOT_FOUND | StatusCode::CONFLICT) || message.contains(PODMAN_IS_GONE)
    }
}

/// Returns a remedy for a refusal, for the operator; empty if none is known.
fn hint(status: StatusCode, message: &str) -> &'static str {
    match status {
        _ if message.contains("executable file not found") => "; the image must have `python3` on its `PATH`",
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
    pub(super) is_truncated: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreatedObject {
    id: String,
}

/// A container of a list.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerSummary {
    id: String,
    /// In seconds since 1970.
    created: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Image {
    config: Option<ImageConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ImageConfig {
    volumes: Option<BTreeMap<String, IgnoredAny>>,
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

    /// Checks that the engine answers.
    pub(super) async fn ping(&self) -> Result<(), EngineError> {
        self.send(self.request(Method::GET, "/_ping").timeout(TIMEOUT)).await.map(drop)
    }

    /// Returns the folders that an image declares as volumes.
    pub(super) async fn volumes(&self, image: &str) -> Result<Vec<String>, EngineError> {
        let image: Image = self.json(self.request(Method::GET, &format!("/images/{image}/json"))).await?;
        let volumes = image.config.and_then(|config| config.volumes);
        Ok(volumes.into_iter().flat_map(BTreeMap::into_keys).collect())
    }

    pub(super) async fn create(&self, name: &str, container: &Value) -> Result<(), EngineError> {
        let request = self.request(Method::POST, &format!("/containers/create?name={name}"));
        self.send(request.json(container).timeout(TIMEOUT)).await.map(drop)
    }

    pub(super) async fn start(&self, name: &str) -> Result<(), EngineError> {
        self.send(self.request(Method::POST, &format!("/containers/{name}/start")).timeout(TIMEOUT)).await.map(drop)
    }

    /// Runs a command in a container with this standard input, which stays open. Returns at most `limit` bytes of its
    /// output.
    pub(super) async fn exec(
        &self,
        name: &str,
        command: &[&str],
        input: &[u8],
        limit: usize,
    ) -> Result<CommandOutput, EngineError> {
        let request = self.request(Method::POST, &format!("/containers/{name}/exec"));
        let exec = json!({"AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Cmd": command,
            "WorkingDir": super::FOLDER});
        let CreatedObject { id } = self.json(request.json(&exec)).await?;
        let start = self.request(Method::POST, &format!("/exec/{id}/start"));
        let start = start.header(CONNECTION, "Upgrade").header(UPGRADE, "tcp");
        let response = self.send(start.json(&json!({"Detach": false, "Tty": false}))).await?;
        let mut stream = response.upgrade().await.map_err(|error| EngineError::Unexpected(error.to_string()))?;
        // A command that has ended does not read its input; its output has the reason.
        if stream.write_all(input).await.is_ok() {
            let _ = stream.flush().await;
        }
        let mut decoder = FrameDecoder { limit, ..FrameDecoder::default() };
        let mut chunk = Vec::with_capacity(MAX_CHUNK);
        // An engine that ends may reset the connection. The output is incomplete then.
        while !decoder.output.is_truncated && stream.read_buf(&mut chunk).await.unwrap_or_default() > 0 {
            decoder.decode(&chunk);
            chunk.clear();
        }
        Ok(decoder.output)
    }

    /// Returns the ids of the containers with this label that were created more than `age` ago and never started.
    pub(super) async fn list_unstarted(&self, label: &str, age: Duration) -> Result<Vec<String>, EngineError> {
        let filters = json!({"label": [label], "status": ["created"]}).to_string();
        let url = Url::parse_with_params(&format!("{BASE}/containers/json"), [("all", "true"), ("filters", &filters)]);
        let url = url.map_err(|error| EngineError::Unexpected(error.to_string()))?;
        let containers: Vec<ContainerSummary> = self.json(self.client.get(url)).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_old = |container: &ContainerSummary| Duration::from_secs(container.created).saturating_add(age) < now;
        Ok(containers.into_iter().filter(is_old).map(|container| container.id).collect())
    }

    /// Ends and removes a container with its files. Failures are logged.
    pub(super) async fn remove(&self, name: &str) {
        let request = self.request(Method::DELETE, &format!("/containers/{name}?force=true&v=true"));
        match self.send(request.timeout(TIMEOUT)).await {
            Ok(_) => {}
            // The engine removes it itself when its process ends.
            Err(error) if error.is_gone() => {}
            Err(error) => tracing::warn!(container = name, "could not remove a container: {error}"),
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
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
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

/// A parser of multiplexed output: each frame has a header with its stream and its length.
#[derive(Default)]
struct FrameDecoder {
    limit: usize,
    header: Vec<u8>,
    /// The remaining bytes of the current frame.
    remaining: usize,
    /// True if the current frame belongs to stderr.
    is_stderr: bool,
    output: CommandOutput,
}

impl FrameDecoder {
    fn decode(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.remaining > 0 {
                let (piece, rest) = bytes.split_at(self.remaining.min(bytes.len()));
                self.remaining -= piece.len();
                bytes = rest;
                let room = self.limit.saturating_sub(self.output.stdout.len() + self.output.stderr.len());
                self.output.is_truncated |= piece.len() > room;
                let target = if self.is_stderr { &mut self.output.stderr } else { &mut self.output.stdout };
                target.extend(piece.iter().take(room));
                continue;
            }
            let (start, rest) = bytes.split_at((FRAME_HEADER - self.header.len()).min(bytes.len()));
            self.header.extend_from_slice(start);
            bytes = rest;
            if let [stream, _, _, _, a, b, c, d] = *self.header {
                self.remaining = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
                self.is_stderr = stream == 2;
                self.header.clear();
            }
        }
    }
}
