//! Code in containers of Docker or Podman, whose API is reached by a Unix socket.
//!
//! A container has no network, a read-only root and no capabilities; its code can write to `/work` and `/tmp` only,
//! which are in its memory. Code without state gets its own container. With state there is one container per
//! session, where a process keeps the variables of earlier code. The first process of a container never runs the code:
//! it ends, and the engine removes the container, if the code runs or the container is idle for too long, also if the
//! host has died. A host that is closed removes its containers.

mod engine;
mod guard;
mod input;
mod output;
mod sessions;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{CallContext, CodeExecutor, CodeInput, CodeOutput, ToolError};
use serde_json::{Map, Value, json};
use tokio::sync::{OnceCell, Semaphore};

use engine::{Engine, EngineError};
use guard::Container;
use input::InvalidFileName;
use sessions::{Session, SessionKey, Sessions};

/// Keeps the variables of earlier code, and runs code when it is asked.
const KERNEL: &str = include_str!("container/kernel.py");

/// Python program that writes input files, lets the kernel run code, and prints its output and files as JSON.
const CLIENT: &str = include_str!("container/client.py");

/// The folder of the code.
const FOLDER: &str = "/work";

/// Folders that engines make writable in spite of the read-only root.
const READ_ONLY: [&str; 2] = ["/run", "/var/tmp"];

/// The label of containers.
const LABEL: (&str, &str) = ("hatchery", "code");

/// Delay after the host's timeout at which a container ends on its own, and timeout of removals when the host is
/// closed.
const GRACE: Duration = Duration::from_secs(10);

/// Minimum age of an unstarted container that counts as abandoned by a host that has died.
const ABANDONED: Duration = Duration::from_secs(120);

/// Settings of a [`ContainerExecutor`].
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerConfig {
    /// The socket of the engine.
    pub socket: PathBuf,
    /// The image, which has `python3`. The engine must have it already.
    pub image: String,
    /// Maximum memory of a container in bytes.
    pub memory: u64,
    /// Maximum size of the files in the folder of the code in bytes. They are a part of the memory.
    pub disk: u64,
    /// Processors of a container.
    pub cpus: f64,
    /// Maximum number of processes of a container.
    pub pids: u32,
    /// Timeout of code.
    pub timeout: Duration,
    /// Maximum size in bytes of the printed output, and of all files.
    pub max_output: usize,
    /// Maximum number of containers. Further code waits for one.
    pub max_containers: usize,
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
            disk: 256 << 20,
            cpus: 1.0,
            pids: 128,
            timeout: Duration::from_secs(60),
            max_output: 8 << 20,
            max_containers: 16,
            max_sessions: 16,
            idle_timeout: Duration::from_secs(15 * 60),
        }
    }

    /// Returns the body of the request that creates a container. `volumes` are those of the image, where code could
    /// write to the disk.
    fn container(&self, volumes: &[String]) -> Value {
        // The engine takes billionths of a processor. The cast saturates.
        let nano_cpus = (self.cpus * 1e9) as u64;
        let seconds = |time: Duration| time.saturating_add(GRACE).as_secs().to_string();
        let (idle, run) = (seconds(self.idle_timeout), seconds(self.timeout));
        let masked = READ_ONLY.into_iter().chain(volumes.iter().map(String::as_str));
        let mut folders: Map<_, _> = masked.map(|folder| (folder.into(), "ro,noexec,nosuid,size=4k".into())).collect();
        folders.insert("/tmp".into(), "rw,noexec,nosuid,size=64m".into());
        folders.insert(FOLDER.into(), format!("rw,exec,nosuid,size={}", self.disk).into());
        json!({
            "Image": self.image,
            // Replaces the entry point of the image, which would get the command as arguments.
            "Entrypoint": ["python3", "-c", KERNEL, idle, run, self.max_output.to_string()],
            "Cmd": [],
            "Healthcheck": {"Test": ["NONE"]},
            "WorkingDir": FOLDER,
            // The folder belongs to root, which has no capabilities here.
            "User": "0:0",
            "NetworkDisabled": true,
            "Env": ["HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"],
            "Labels": {LABEL.0: LABEL.1},
            "HostConfig": {
                "NetworkMode": "none",
                "AutoRemove": true,
                // The first process reaps others itself.
                "Init": false,
                "Memory": self.memory,
                "MemorySwap": self.memory,
                "NanoCpus": nano_cpus,
                "PidsLimit": self.pids,
                "ReadonlyRootfs": true,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "Tmpfs": folders,
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
    sessions: Arc<Sessions>,
    /// A permit for each container that there may be.
    free: Arc<Semaphore>,
    max_containers: u32,
    /// Number of pieces of code that wait for a container.
    waiting: AtomicUsize,
    /// Set once containers of earlier hosts were removed.
    swept: OnceCell<()>,
    is_closed: AtomicBool,
}

impl ContainerExecutor {
    /// Creates an executor. The engine is not asked for anything before code runs.
    ///
    /// # Errors
    /// If there can be no connection to a socket.
    pub fn new(name: impl Into<String>, config: ContainerConfig) -> Result<Self, String> {
        let engine = Engine::new(&config.socket)?;
        let sessions = Arc::new(Sessions::new(config.max_sessions, config.idle_timeout));
        let max_containers = u32::try_from(config.max_containers).unwrap_or(u32::MAX).max(1);
        let free = Arc::new(Semaphore::new(max_containers as usize));
        let (waiting, swept, is_closed) = (AtomicUsize::new(0), OnceCell::new(), AtomicBool::new(false));
        Ok(Self { name: name.into(), config, engine, sessions, free, max_containers, waiting, swept, is_closed })
    }

    /// Starts a container once there may be another one. The one that was idle for the longest time ends for it.
    async fn start(&self) -> Result<Container, EngineError> {
        if let Err(error) = self.swept.get_or_try_init(|| self.sweep()).await {
            tracing::debug!("abandoned containers are not removed: {error}");
        }
        let permit = match self.free.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = WaitingGuard::new(&self.waiting);
                self.sessions.end_oldest();
                self.free.clone().acquire_owned().await.map_err(|_| EngineError::Closed)?
            }
        };
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(EngineError::Closed);
        }
        let volumes = self.engine.volumes(&self.config.image).await?;
        Container::start(&self.engine, self.config.container(&volumes), permit).await
    }

    /// Removes containers that hosts have created and not started. Others end on their own.
    async fn sweep(&self) -> Result<(), EngineError> {
        let (key, value) = LABEL;
        for id in self.engine.list_unstarted(&format!("{key}={value}"), ABANDONED).await? {
            self.engine.remove(&id).await;
        }
        Ok(())
    }

    /// Runs code in a container that has started.
    async fn run(&self, container: &Container, input: &CodeInput) -> Result<CodeOutput, Failure> {
        let line = input::encode_line(input)?;
        let command = ["python3", "-c", CLIENT];
        // Files are encoded, in addition to two texts.
        let limit = self.config.max_output.saturating_mul(4).saturating_add(1 << 20);
        let exec = self.engine.exec(container.name(), &command, &line, limit);
        let Ok(printed) = tokio::time::timeout(self.config.timeout, exec).await else {
            return Err(Failure::Timeout);
        };
        match output::parse(&printed?) {
            Ok(output) => Ok(output),
            Err(reason) => {
                // The output also ends with the engine.
                self.engine.ping().await?;
                Err(Failure::Crashed(reason))
            }
        }
    }

    async fn run_once(&self, input: &CodeInput) -> Result<CodeOutput, ToolError> {
        let container = self.start().await.map_err(|error| self.unusable(&error))?;
        let result = self.run(&container, input).await;
        container.remove().await;
        self.finish(result)
    }

    async fn run_in_session(&self, key: SessionKey, input: &CodeInput) -> Result<CodeOutput, ToolError> {
        let session = self.sessions.get(key.clone());
        let mut locked = session.lock().await;
        let result = self.run_in(&mut locked, input).await;
        drop(locked);
        drop(session);
        if self.is_closed.load(Ordering::SeqCst) {
            // Closing has left this one out, because code ran in it.
            self.sessions.end_all();
            return result;
        }
        // It is idle from now on.
        drop(self.sessions.get(key));
        self.sessions.watch();
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.sessions.end_oldest();
        }
        result
    }

    async fn run_in(&self, session: &mut Session, input: &CodeInput) -> Result<CodeOutput, ToolError> {
        if std::mem::take(&mut session.has_ended) {
            return Err(session_lost());
        }
        // Taken out, so that it is removed if the run is cancelled: its code may still be running then.
        let container = session.container.take();
        session.has_ended = container.is_some();
        let container = match container {
            Some(container) => container,
            None => self.start().await.map_err(|error| self.unusable(&error))?,
        };
        let result = self.run(&container, input).await;
        match &result {
            Ok(_) | Err(Failure::InvalidFileName(_)) => session.container = Some(container),
            Err(Failure::Timeout | Failure::Crashed(_) | Failure::Engine(_)) => container.remove().await,
        }
        match result {
            Err(Failure::Engine(error)) if error.is_gone() => {
                session.has_ended = false;
                Err(session_lost())
            }
            result => {
                session.has_ended = matches!(result, Err(Failure::Engine(_)));
                self.finish(result)
            }
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
            Err(Failure::InvalidFileName(error)) => failed(error.to_string()),
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

    async fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.sessions.end_all();
        // A container has its permit until it is removed.
        if tokio::time::timeout(GRACE, self.free.acquire_many(self.max_containers)).await.is_err() {
            let executor = &self.name;
            tracing::warn!(executor, "containers were not removed yet; they stop at their timeouts");
        }
        self.free.close();
    }
}

/// Reasons why code has no output.
enum Failure {
    Engine(EngineError),
    InvalidFileName(InvalidFileName),
    Timeout,
    /// Its process has ended without a result.
    Crashed(String),
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<InvalidFileName> for Failure {
    fn from(error: InvalidFileName) -> Self {
        Self::InvalidFileName(error)
    }
}

/// Returns the error for a lost session: the model must define its variables again.
fn session_lost() -> ToolError {
    ToolError::Recoverable(
        "the container of this session has ended, and the variables and files of earlier code with it; the next code runs in \
         a new one, so run what you need again"
            .into(),
    )
}

/// Counts a waiting execution, until it is dropped.
struct WaitingGuard<'a>(&'a AtomicUsize);

impl<'a> WaitingGuard<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
