//! Why a component is not loaded ([`LoadError`]) and why a call of one fails (`CallError`).

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hatchery_core::{ItemKind, ModelError, ModelErrorKind, RunError, ToolError};
use thiserror::Error;

use crate::runtime::limits::{Limit, LimitHit};
use crate::runtime::store::memory::MemoryError;

/// Why a component, or the engine, cannot be used. Each message names the component or the file, and the next step.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The engine cannot be made.
    #[error("the WebAssembly engine cannot start: {0}")]
    Engine(String),
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is larger than any component.
    #[error("{}: has {size} bytes, and a component may have {most}; build it with `hatchery build`, which strips it, or raise `engine.compile.max_file_size` in hatchery.yaml", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        size: u64,
        /// How many there may be.
        most: u64,
    },
    /// Its loading ended in the middle, which is a defect of this host.
    #[error("{}: loading it broke off: {reason}; change the file to try again", path.display())]
    BrokeOff {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file name cannot name a component.
    #[error("{}: {reason}; rename the file", path.display())]
    BadFileName {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
    /// Whoever runs the host does not let it in; the reason names the file.
    #[error("{0}")]
    NotAdmitted(String),
    /// Not WebAssembly at all.
    #[error("component `{component}` is not a WebAssembly file; it must be a component made by `hatchery build`")]
    NotWasm {
        /// The component.
        component: String,
    },
    /// A core module.
    #[error(
        "component `{component}` is a core module, not a component; build it with `hatchery build` (target wasm32-wasip2)"
    )]
    CoreModule {
        /// The component.
        component: String,
    },
    /// The file ends too early.
    #[error("component `{component}` ends in the middle: the file is truncated or still being written; copy it again")]
    Truncated {
        /// The component.
        component: String,
    },
    /// The bytes are not a valid component.
    #[error("component `{component}` is not valid WebAssembly: {reason}; rebuild it with `hatchery build`")]
    Invalid {
        /// The component.
        component: String,
        /// What is wrong.
        reason: String,
    },
    /// Built for another version of the contract.
    #[error(
        "component `{component}` wants `hatchery:agent@{wanted}`, this host offers {offered}; rebuild it with `hatchery build`"
    )]
    Version {
        /// The component.
        component: String,
        /// What it was built for.
        wanted: String,
        /// What this host has.
        offered: String,
    },
    /// It wants something that no component gets.
    #[error(
        "component `{component}` imports `{import}`, which this host does not offer; components can use WASI 0.2 and `hatchery:agent`"
    )]
    ForeignImport {
        /// The component.
        component: String,
        /// The import.
        import: String,
    },
    /// It offers one kind of thing by two interfaces.
    #[error(
        "component `{component}` exports both `{interface}` and `sync-{interface}`; keep one of them, and put what the other offers into a component of its own"
    )]
    TwiceExported {
        /// The component.
        component: String,
        /// The one with asynchronous functions.
        interface: String,
    },
    /// It offers nothing.
    #[error(
        "component `{component}` exports nothing that this host knows, such as agents or tools; export them with `hatchery_guest::export!` and rebuild it"
    )]
    NothingExported {
        /// The component.
        component: String,
    },
    /// What its grants need is not there.
    #[error("component `{component}` cannot have its grants: {reason}")]
    Grants {
        /// The component.
        component: String,
        /// What is missing.
        reason: String,
    },
    /// A folder that it is granted cannot be opened.
    #[error(
        "component `{component}` cannot be given the folder `{}` as {guest}: {reason}; make the folder, or take it out of \
         `components.{component}.grants.files` in hatchery.yaml", folder.display()
    )]
    Folder {
        /// The component.
        component: String,
        /// The folder.
        folder: PathBuf,
        /// Where the component is to find it.
        guest: String,
        /// Why.
        reason: String,
    },
    /// A variable of the host that it is granted is not there.
    #[error(
        "component `{component}` cannot be given the environment variable `{variable}` from the host's `{from}`: {source}; set \
         `{from}`, or take `{variable}` out of `components.{component}.grants.environment` in hatchery.yaml"
    )]
    Variable {
        /// The component.
        component: String,
        /// The component's variable.
        variable: String,
        /// The host's variable.
        from: String,
        /// Why.
        source: std::env::VarError,
    },
    /// What it says that it needs cannot be understood.
    #[error(
        "component `{component}` requests what this host does not understand: {reason}; rebuild it with `hatchery build`"
    )]
    Requests {
        /// The component.
        component: String,
        /// What is wrong.
        reason: String,
    },
    /// It cannot be compiled or linked.
    #[error("component `{component}` cannot be loaded: {reason}")]
    Compile {
        /// The component.
        component: String,
        /// Why.
        reason: String,
    },
    /// It is compiled, and the code is lost.
    #[error("component `{component}` is compiled, but its code is not kept: {reason}")]
    NotKept {
        /// The component.
        component: String,
        /// Why.
        reason: String,
    },
    /// Its `describe` fails or says something impossible.
    #[error("component `{component}` cannot describe itself: {reason}")]
    Describe {
        /// The component.
        component: String,
        /// Why.
        reason: String,
    },
}

/// Why a call into a component fails.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// No instance became free in time.
    #[error("no free instance{reason}: all {instances} are in use; try again later")]
    Busy {
        /// How many there are.
        instances: u32,
        /// Why the call does not wait any longer.
        reason: Busy,
    },
    /// A limit was exceeded.
    #[error(transparent)]
    Limit(#[from] LimitHit),
    /// Memory that is shared with other calls is used up.
    #[error(transparent)]
    Memory(MemoryError),
    /// The guest's code trapped.
    #[error("it crashed: {reason}{}", said(output))]
    Trapped {
        /// Why, as the engine says it.
        reason: String,
        /// What the guest wrote to stderr last, such as a panic's message.
        output: String,
    },
    /// It broke the contract, as with a result that is not JSON.
    #[error("it broke the contract: {0}")]
    Contract(String),
    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
    /// The revision that the call is of was replaced so long ago that it is not run any more.
    #[error(
        "its file was replaced while the run went on, and the run has not ended in time; start it again to use what serves now, or \
         raise `hot_reload.drain_timeout` in hatchery.yaml"
    )]
    Replaced,
}

/// Why a call does not wait any longer for an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Busy {
    /// It has waited for so long.
    Waited(Duration),
    /// So many wait already.
    Queue(u32),
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waited(time) => write!(f, " after {time:?}"),
            Self::Queue(calls) => write!(f, ", and {calls} calls wait for one already"),
        }
    }
}

fn said(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!("; it said: {output}") }
}

impl From<MemoryError> for CallError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Instance(hit) => Self::Limit(hit),
            MemoryError::Run(_) | MemoryError::Engine(_) => Self::Memory(error),
        }
    }
}

impl CallError {
    /// The key of the limit that was exceeded, if one was, or the name of one without a key.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        match self {
            Self::Limit(hit) => Some(hit.limit.key().unwrap_or("fixed")),
            Self::Memory(error) => Some(error.key()),
            Self::Busy { .. } => Some("engine.instances"),
            Self::Trapped { .. } | Self::Contract(_) | Self::Cancelled | Self::Replaced => None,
        }
    }

    /// The stable code that clients see.
    fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "COMPONENT_BUSY",
            Self::Limit(hit) => match hit.limit {
                Limit::Memory => "COMPONENT_MEMORY",
                Limit::Cpu => "COMPONENT_CPU",
                Limit::Wall | Limit::AgentWall | Limit::Describe => "COMPONENT_TIMEOUT",
                Limit::Tables
                | Limit::Instances
                | Limit::Handles
                | Limit::Headers
                | Limit::Result
                | Limit::Log
                | Limit::ModelCalls
                | Limit::Tokens
                | Limit::ToolCalls
                | Limit::Depth
                | Limit::OutboundCalls
                | Limit::OutboundBytes
                | Limit::ResponseBody
                | Limit::OpenStreams
                | Limit::ConnectTimeout
                | Limit::FirstByteTimeout
                | Limit::BetweenBytesTimeout => "COMPONENT_LIMIT",
            },
            Self::Memory(MemoryError::Engine(_)) => "COMPONENT_BUSY",
            Self::Memory(MemoryError::Run(_) | MemoryError::Instance(_)) => "COMPONENT_MEMORY",
            Self::Trapped { .. } => "COMPONENT_TRAPPED",
            Self::Contract(_) => "COMPONENT_FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Replaced => "COMPONENT_REPLACED",
        }
    }

    /// The error of an instruction or an agent: it ends the run.
    pub(crate) fn into_run_error(self, component: &str) -> RunError {
        self.into_error(component, |error| error.to_string())
    }

    /// The same for an item that a user of the component knows by name.
    pub(crate) fn into_item_error(self, component: &str, kind: ItemKind, item: &str) -> RunError {
        self.into_error(component, |error| format!("{} `{item}` failed: {error}", kind.label()))
    }

    fn into_error(self, component: &str, message: impl FnOnce(&Self) -> String) -> RunError {
        match self {
            Self::Cancelled => RunError::Cancelled,
            error => RunError::Component { component: component.into(), code: error.code(), message: message(&error) },
        }
    }

    /// The error of a tool or of a code executor: the model is told, and the run goes on.
    pub(crate) fn into_tool_error(self, component: &str, kind: ItemKind, item: &str) -> ToolError {
        match self {
            // Nothing that a model could do makes these go away.
            error @ (Self::Cancelled | Self::Replaced) => {
                ToolError::Fatal { tool: item.into(), code: error.code().into(), message: error.to_string() }
            }
            error => {
                ToolError::Recoverable(format!("{} `{item}` of component `{component}` failed: {error}", kind.label()))
            }
        }
    }

    /// The error of a model, whose name in the registry names the component too.
    pub(crate) fn into_model_error(self, model: &str) -> ModelError {
        let kind = match &self {
            Self::Busy { .. } | Self::Memory(MemoryError::Engine(_)) => ModelErrorKind::RateLimited,
            Self::Limit(LimitHit { limit: Limit::Wall | Limit::AgentWall | Limit::Describe, .. }) => {
                ModelErrorKind::Timeout
            }
            Self::Limit(_) | Self::Memory(_) | Self::Trapped { .. } | Self::Replaced => ModelErrorKind::Server,
            Self::Contract(_) => ModelErrorKind::BadResponse,
            Self::Cancelled => ModelErrorKind::Cancelled,
        };
        ModelError::new(kind, model, self.to_string())
    }
}
