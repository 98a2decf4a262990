//! Errors of loading a component ([`LoadError`]) and of calling one (`CallError`).

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hatchery_core::{ItemKind, ModelError, ModelErrorKind, RunError, ToolError, escape_control, pluralize};
use thiserror::Error;

use crate::runtime::crash::Crash;
use crate::runtime::limits::LimitExceeded;
use crate::runtime::store::memory::MemoryError;

/// An error of the engine or of loading a component. Each message names the component or the file, and the next step.
#[derive(Debug, Error)]
pub enum LoadError {
    #[error("the WebAssembly engine cannot start: {0}")]
    Engine(String),
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: has {size} bytes, and a component may have {max}; build it with `hatchery build`, which strips it, or raise `compile.max_file_size` in hatchery.yaml", path.display())]
    TooLarge { path: PathBuf, size: u64, max: u64 },
    /// Loading panicked, which is a bug of this host.
    #[error("{}: loading was aborted: {reason}; change the file to try again", path.display())]
    Panicked { path: PathBuf, reason: String },
    #[error("{}: {reason}; rename the file", path.display())]
    BadFileName { path: PathBuf, reason: &'static str },
    /// Refused by the policy of the host; the reason names the file.
    #[error("{0}")]
    Refused(String),
    #[error("component `{component}` is not a WebAssembly file; it must be a component made by `hatchery build`")]
    NotWasm { component: String },
    #[error(
        "component `{component}` is a core module, not a component; build it with `hatchery build` (target wasm32-wasip2)"
    )]
    CoreModule { component: String },
    #[error("component `{component}` ends in the middle: the file is truncated or still being written; copy it again")]
    Truncated { component: String },
    #[error("component `{component}` is not valid WebAssembly: {reason}; rebuild it with `hatchery build`")]
    Invalid { component: String, reason: String },
    #[error(
        "component `{component}` needs `hatchery:agent@{required}`, but this host offers {offered}; rebuild it with `hatchery build`"
    )]
    Version { component: String, required: String, offered: String },
    /// It imports an interface that no component gets.
    #[error(
        "component `{component}` imports `{import}`, which this host does not offer; components can use WASI 0.2 and `hatchery:agent`"
    )]
    UnknownImport { component: String, import: String },
    /// It exports both the asynchronous and the synchronous interface for one kind of item.
    #[error(
        "component `{component}` exports both `{interface}` and `sync-{interface}`; keep one of them, and move the items of the other into a separate component"
    )]
    DuplicateExport { component: String, interface: String },
    /// It exports no known interface.
    #[error(
        "component `{component}` exports nothing that this host knows, such as agents or tools; export them with `hatchery_guest::export!` and rebuild it"
    )]
    NothingExported { component: String },
    /// A grant cannot be fulfilled.
    #[error("component `{component}` cannot be given its grants: {reason}")]
    Grants { component: String, reason: String },
    /// A granted folder cannot be opened.
    #[error(
        "component `{component}` cannot be given the folder `{}` as {guest}: {reason}; make the folder, or take it out of \
         `components.{component}.grants.files` in hatchery.yaml", folder.display()
    )]
    Folder { component: String, folder: PathBuf, guest: String, reason: String },
    /// A granted environment variable does not exist.
    #[error(
        "component `{component}` cannot be given the environment variable `{variable}` from the host's `{from}`: {source}; set \
         `{from}`, or take `{variable}` out of `components.{component}.grants.environment` in hatchery.yaml"
    )]
    Variable { component: String, variable: String, from: String, source: std::env::VarError },
    /// Its requested grants cannot be parsed.
    #[error(
        "component `{component}` has a request that this host does not understand: {reason}; rebuild it with `hatchery build`"
    )]
    Requests { component: String, reason: String },
    /// It cannot be compiled or linked.
    #[error("component `{component}` cannot be loaded: {reason}")]
    Compile { component: String, reason: String },
    /// It is compiled, but the code cannot be written to the cache.
    #[error("component `{component}` is compiled, but its code cannot be cached: {reason}")]
    NotCached { component: String, reason: String },
    /// Its `describe` fails or returns an invalid manifest.
    #[error("`describe` of component `{component}` failed: {reason}")]
    Describe { component: String, reason: String },
    /// Its functions cannot be tools.
    #[error("component `{component}` cannot be loaded: {reason}")]
    Functions { component: String, reason: String },
}

/// An error of a call of a component.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// No instance became free.
    #[error("no free instance{reason}: all {instances} are in use; try again later")]
    Busy {
        /// The limit of the engine.
        instances: u32,
        reason: BusyReason,
    },
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// Memory shared with other calls is used up.
    #[error(transparent)]
    Memory(MemoryError),
    /// The guest trapped.
    #[error("{0}")]
    Trapped(Crash),
    /// The guest broke the contract, such as with a result that is not JSON.
    #[error("it broke the contract: {0}")]
    Contract(String),
    #[error("the run was cancelled")]
    Cancelled,
    /// The revision was replaced longer than the drain timeout ago.
    #[error(
        "its file was replaced during the run, and the run has not ended in time; start it again to use the current version, or \
         raise `hot_reload.drain_timeout` in hatchery.yaml"
    )]
    Replaced,
}

/// The reason why a call stopped waiting for an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BusyReason {
    /// The call has waited for this long.
    Waited(Duration),
    /// This many calls wait already.
    Queue(u32),
}

impl fmt::Display for BusyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waited(time) => write!(f, " after {time:?}"),
            Self::Queue(calls) => {
                write!(f, ", and {} for one already", pluralize(*calls, "call waits", "calls wait"))
            }
        }
    }
}

impl From<MemoryError> for CallError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Instance(exceeded) => Self::Limit(exceeded),
            MemoryError::Run(_) | MemoryError::Engine(_) => Self::Memory(error),
        }
    }
}

impl CallError {
    /// Returns the key of the exceeded limit, `fixed` for one without a key, or `None` for other errors.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        match self {
            Self::Limit(exceeded) => Some(exceeded.limit.key().unwrap_or("fixed")),
            Self::Memory(error) => Some(error.key()),
            Self::Busy { .. } => Some("instances.max"),
            Self::Trapped(_) | Self::Contract(_) | Self::Cancelled | Self::Replaced => None,
        }
    }

    /// Returns the error for models, guests and clients. Settings and source locations are for the operator.
    pub(crate) fn for_callers(&self) -> String {
        match self {
            Self::Limit(exceeded) => exceeded.for_callers(),
            Self::Memory(error) => error.for_callers(),
            Self::Trapped(crash) => crash.reason().into(),
            Self::Replaced => "its file was replaced during the run; start the run again".into(),
            Self::Busy { .. } | Self::Contract(_) | Self::Cancelled => self.to_string(),
        }
    }

    /// Returns the [error for callers](Self::for_callers). If that leaves something out, the whole error is logged for
    /// the operator; `subject` names the failed item.
    fn redact(&self, subject: impl fmt::Display) -> String {
        let (message, full) = (self.for_callers(), self.to_string());
        if message != full {
            tracing::warn!("{subject} failed: {}", escape_control(&full));
        }
        message
    }

    /// Returns the stable code that clients see.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "COMPONENT_BUSY",
            Self::Limit(exceeded) => exceeded.limit.code(),
            Self::Memory(MemoryError::Engine(_)) => "COMPONENT_BUSY",
            Self::Memory(MemoryError::Run(_) | MemoryError::Instance(_)) => "COMPONENT_MEMORY",
            Self::Trapped(_) => "COMPONENT_TRAPPED",
            Self::Contract(_) => "COMPONENT_FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Replaced => "COMPONENT_REPLACED",
        }
    }

    /// Converts to the error of an instruction or an agent, which ends the run.
    pub(crate) fn into_run_error(self, component: &str) -> RunError {
        let message = self.redact(format_args!("component `{component}`"));
        self.into_error(component, message)
    }

    /// Converts to the error of a named item, which ends the run.
    pub(crate) fn into_item_error(self, component: &str, kind: ItemKind, item: &str) -> RunError {
        let label = kind.label();
        let message = self.redact(format_args!("{label} `{item}` of component `{component}`"));
        self.into_error(component, format!("{label} `{item}` failed: {message}"))
    }

    fn into_error(self, component: &str, message: String) -> RunError {
        match self {
            Self::Cancelled => RunError::Cancelled,
            error => RunError::Component { component: component.into(), code: error.code(), message },
        }
    }

    /// Converts to the error of a tool or a code executor. The model sees it, and the run continues.
    pub(crate) fn into_tool_error(self, component: &str, kind: ItemKind, item: &str) -> ToolError {
        let subject = format!("{} `{item}` of component `{component}`", kind.label());
        let message = self.redact(&subject);
        match self {
            // A model cannot do anything about these.
            error @ (Self::Cancelled | Self::Replaced) => {
                ToolError::Fatal { tool: item.into(), code: error.code().into(), message }
            }
            _ => ToolError::Recoverable(format!("{subject} failed: {message}")),
        }
    }

    /// Converts to the error of a model. The qualified name of the model names the component, too.
    pub(crate) fn into_model_error(self, model: &str) -> ModelError {
        let kind = match &self {
            Self::Busy { .. } | Self::Memory(MemoryError::Engine(_)) => ModelErrorKind::RateLimited,
            Self::Limit(exceeded) if exceeded.limit.is_timeout() => ModelErrorKind::Timeout,
            Self::Limit(_) | Self::Memory(_) | Self::Trapped(_) | Self::Replaced => ModelErrorKind::Server,
            Self::Contract(_) => ModelErrorKind::BadResponse,
            Self::Cancelled => ModelErrorKind::Cancelled,
        };
        ModelError::new(kind, model, self.redact(format_args!("model `{model}`")))
    }
}
