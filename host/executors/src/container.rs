//! Code in containers of Docker or Podman, whose API is reached by a Unix socket.
//!
//! A container has no network, a read-only root and no capabilities; its code can write to `/work` and `/tmp` only.
//! Code without state gets a container of its own. With state there is one container per session, where a process keeps
//! the variables of earlier code. It ends after it was idle for a while, also if the host has died, and the engine
//! removes it then.

mod archive;
mod engine;
mod output;
mod sessions;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{CallContext, CodeExecutor, CodeInput, CodeOutput, ToolError, new_event_id};
use serde_json::{Value, json};

use archive::{Archive, BadName};
use engine::{Engine, EngineError};
use sessions::{SessionKey, Sessions};

/// Keeps the variables of earlier code, and runs code when it is asked.
const KERNEL: &str = include_str!("container/kernel.py");

/// Python program that lets the kernel run code, and prints its output and files as JSON.
const CLIENT: &str = include_str!("container/client.py");

/// The folder of the code.
const FOLDER: &str = "/work";

/// The name of the request in [`FOLDER`].
const REQUEST_FILE: &str = ".hatchery-request.json";

/// Settings of a [`ContainerExecutor`].
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerConfig {
    /// The socket of the engine.
    pub socket: PathBuf,
    /// The image, which has `python3`. The engine must have it already.
    pub image: String,
    /// Maximum memory of a container in bytes.
    pub memory: u64,
    /// Processors of a container.
    pub cpus: f64,
    /// Maximum number of processes of a container.
    pub pids: u32,
    /// Timeout of code.
    pub timeout: Duration,
    /// Maximum size in bytes of the printed output, and of all files.
    pub max_output: usize,
    /// Maximum number of containers that keep state. The one that was idle for the longest time ends for a new one.
    pub max_sessions: usize,
    /// Idle time after which a container and its state are removed.
    pub idle_timeout: Duration,
}

impl ContainerConfig {
    /// Creates settings with default limits.
    pub fn new(socket: impl Into<PathBuf>, image: impl Into<String>) -> Self {
        Self {
            socket: socket.into(),
            image: image.into(),
            memory: 512 << 20,
            cpus: 1.0,
            pids: 128,
            timeout: Duration::from_secs(60),
            max_output: 8 << 20,
            max_sessions: 16,
            idle_timeout: Duration::from_secs(15 * 60),
        }
    }

    /// Returns the body of the request that creates a container.
    fn container(&self) -> Value {
        // The engine takes billionths of a processor. The cast saturates.
        let nano_cpus = (self.cpus * 1e9) as u64;
        json!({
            "Image": self.image,
            "Cmd": ["python3", "-c", KERNEL, self.idle_timeout.as_secs().to_string(), self.max_output.to_string()],
            "WorkingDir": FOLDER,
            // The folder belongs to root, which has no capabilities here.
            "User": "0:0",
            "NetworkDisabled": true,
            "Env": ["HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"],
            "Labels": {"hatchery": "code"},
            "HostConfig": {
                "NetworkMode": "none",
                "AutoRemove": true,
                "Init": true,
                "Memory": self.memory,
                "MemorySwap": self.memory,
                "NanoCpus": nano_cpus,
                "PidsLimit": self.pids,
                "ReadonlyRootfs": true,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "Tmpfs": {"/tmp": "rw,noexec,nosuid,size=64m"},
                "Mounts": [{"Type": "volume", "Target": FOLDER}],
                "LogConfig": {"Type": "none", "Config": {}},
            },
        })
    }
}

/// Runs Python code in containers.
pub struct ContainerExecutor {
    name: String,
    config: ContainerConfig,
    engine: Engine,
    sessions: Sessions,
}

impl ContainerExecutor {
    /// Creates an executor. The engine is not asked for anything before code runs.
    ///
    /// # Errors
    /// If there can be no connection to a socket.
    pub fn new(name: impl Into<String>, config: ContainerConfig) -> Result<Self, String> {
        let engine = Engine::new(&config.socket)?;
        let sessions = Sessions::new(config.max_sessions);
        Ok(Self { name: name.into(), config, engine, sessions })
    }

    async fn start(&self) -> Result<Container<'_>, EngineError> {
        let name = format!("hatchery-{}", new_event_id());
        let id = self.engine.create(&name, &self.config.container()).await?;
        let container = Container { engine: &self.engine, id: Some(id.clone()) };
        self.engine.start(&id).await?;
        Ok(container)
    }

    /// Runs code in a container that has started.
    async fn run(&self, container: &str, input: &CodeInput) -> Result<CodeOutput, Failure> {
        let mut archive = Archive::default();
        for file in &input.input_files {
            archive.add(&file.name, &file.content)?;
        }
        archive.add(REQUEST_FILE, json!({"code": input.code}).to_string().as_bytes())?;
        self.engine.put_archive(container, FOLDER, archive.finish()).await?;
        let command = ["python3", "-c", CLIENT, REQUEST_FILE];
        // Files are encoded, beside two texts.
        let limit = self.config.max_output.saturating_mul(4).saturating_add(1 << 20);
        let printed = tokio::time::timeout(self.config.timeout, self.engine.exec(container, &command, limit)).await;
        match printed {
            Ok(printed) => output::parse(&printed?).map_err(Failure::Crashed),
            Err(_) => Err(Failure::Timeout),
        }
    }

    async fn run_once(&self, input: &CodeInput) -> Result<CodeOutput, ToolError> {
        let container = self.start().await.map_err(|error| self.unusable(&error))?;
        let result = self.run(container.id(), input).await;
        container.remove().await;
        self.finish(result)
    }

    async fn run_in_session(&self, key: SessionKey, input: &CodeInput) -> Result<CodeOutput, ToolError> {
        let (session, evicted) = self.sessions.get(key);
        for id in evicted {
            self.engine.remove_in_background(id);
        }
        let mut session = session.lock().await;
        // Taken out, so that it is removed if the run is cancelled: its code may still be running then.
        let container = match session.container.take() {
            Some(id) => Container { engine: &self.engine, id: Some(id) },
            None => self.start().await.map_err(|error| self.unusable(&error))?,
        };
        let result = self.run(container.id(), input).await;
        match &result {
            Ok(_) | Err(Failure::BadName(_)) => session.container = Some(container.keep()),
            Err(Failure::Timeout | Failure::Crashed(_) | Failure::Engine(_)) => container.remove().await,
        }
        match result {
            Err(Failure::Engine(error)) if error.is_gone() => Err(ToolError::Recoverable(
                "the container of this session has ended, and the variables and files of earlier code with it; the next code \
                 runs in a new one, so run what you need again"
                    .into(),
            )),
            result => self.finish(result),
        }
    }

    fn finish(&self, result: Result<CodeOutput, Failure>) -> Result<CodeOutput, ToolError> {
        let failed = |stderr: String| Ok(CodeOutput { stderr, ..CodeOutput::default() });
        match result {
            Ok(output) => Ok(output),
            Err(Failure::Timeout) => {
                failed(format!("Code execution timed out after {} seconds.", self.config.timeout.as_secs_f64()))
            }
            Err(Failure::Crashed(reason)) => failed(reason),
            Err(Failure::BadName(error)) => failed(error.to_string()),
            Err(Failure::Engine(error)) => Err(self.unusable(&error)),
        }
    }

    /// Returns the error for a model. The log has the details for the operator.
    fn unusable(&self, error: &EngineError) -> ToolError {
        let (executor, socket) = (&self.name, self.config.socket.display());
        tracing::warn!(executor, %socket, "code cannot run in a container: {error}");
        let next = "the operator finds the cause in the log of the host";
        ToolError::Recoverable(format!("code cannot run now, because the container engine is not usable; {next}"))
    }
}

#[async_trait]
impl CodeExecutor for ContainerExecutor {
    fn name(&self) -> &str {
        &self.name
    }

    async fn execute(&self, input: CodeInput, cx: &CallContext) -> Result<CodeOutput, ToolError> {
        match &input.execution_id {
            // Clients can change the state that the id comes from, so it does not identify a container by itself.
            Some(id) => self.run_in_session((cx.invocation.session_key.clone(), id.clone()), &input).await,
            None => self.run_once(&input).await,
        }
    }
}

/// Reasons why code has no output.
enum Failure {
    Engine(EngineError),
    BadName(BadName),
    Timeout,
    /// Its process has ended without a result.
    Crashed(String),
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<BadName> for Failure {
    fn from(error: BadName) -> Self {
        Self::BadName(error)
    }
}

/// A container that is removed when this is dropped.
struct Container<'a> {
    engine: &'a Engine,
    /// `None` once it is removed or kept.
    id: Option<String>,
}

impl Container<'_> {
    fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    /// Returns the id of the container, which stays.
    fn keep(mut self) -> String {
        self.id.take().unwrap_or_default()
    }

    async fn remove(mut self) {
        if let Some(id) = self.id.take() {
            self.engine.remove(&id).await;
        }
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.engine.remove_in_background(id);
        }
    }
}
