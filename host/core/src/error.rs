//! Errors that cross crate boundaries. Each has a stable code for clients, and a message that names the culprit and the
//! next step.

mod model;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use thiserror::Error;

pub use self::model::{ModelError, ModelErrorKind};

use crate::id::{InvalidId, SessionKey};
use crate::item::ItemKind;
use crate::text::escape_control;

/// The code of a failure of the storage itself. Its message is not sent to clients.
const STORE_FAILED: &str = "STORE_FAILED";

/// The code of a storage without free space. Its message is not sent to clients either.
const STORE_FULL: &str = "STORE_FULL";

/// The code of a toolset without a connection to its MCP server. Its message, with programs and settings, is not sent
/// to clients either.
pub const MCP_UNAVAILABLE: &str = "MCP_UNAVAILABLE";

/// The code of a toolset without the description of its API. Its message, with paths and settings, is not sent to
/// clients either.
pub const OPENAPI_UNAVAILABLE: &str = "OPENAPI_UNAVAILABLE";

/// An error of a session, artifact or memory service.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A session with this key exists already.
    #[error("Session already exists: {}", .0.id)]
    SessionExists(SessionKey),
    /// The session does not exist.
    #[error("Session not found: {0}")]
    SessionNotFound(SessionKey),
    /// Another turn of the session has begun, so the turn that this write is part of has ended.
    #[error(
        "another host has taken over this session, so this run has stopped; what it stored before is kept: read the \
             session, then resume the run with its invocation id or send the message again ({0})"
    )]
    Fenced(SessionKey),
    /// The session has another event of this id.
    #[error("the session has another event of the id `{0}`; leave the id empty to get a new one")]
    EventExists(String),
    /// The service cannot use a name.
    #[error("invalid name `{name}`: {reason}")]
    InvalidName {
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// The service does not support the request, and repeating it fails again.
    #[error("{0}")]
    InvalidRequest(String),
    /// A quota is exhausted.
    #[error("{message}; raise `{key}` in hatchery.yaml to allow more")]
    QuotaExceeded {
        /// The quota as text, and a remedy other than raising it.
        message: String,
        /// The setting that raises it.
        key: &'static str,
        /// True if the request alone exceeds the quota, false if the stored data leaves no room for it.
        is_request: bool,
    },
    /// The storage is busy with other requests; the same request may succeed later.
    #[error("{context}; try again in {} s", retry_after.as_secs().max(1))]
    Busy {
        /// The busy part, as text for clients.
        context: String,
        /// Delay before a retry.
        retry_after: Duration,
    },
    /// The disk or the file system's quota is full. Data stored before is intact.
    #[error("{context}: no space is left: {source}")]
    Full {
        /// The operation that failed, with the file or table.
        context: String,
        /// The cause of the failure.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The storage itself failed.
    #[error("{context}: {source}")]
    Backend {
        /// The operation that failed, with the file or table.
        context: String,
        /// The cause of the failure.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// Creates an error for a failed operation of the storage. `context` is a clause that begins with "cannot", such as
    /// "cannot save the session", optionally after the name of the storage and a colon.
    pub fn backend(context: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Backend { context: context.into(), source: source.into() }
    }

    /// Creates an error for a session that another run or change uses.
    pub fn session_in_use(key: &SessionKey) -> Self {
        let context = format!("session `{}` of app `{}` is in use by another run", key.id, key.app);
        Self::Busy { context, retry_after: Duration::from_secs(1) }
    }

    /// Returns the stable code that clients see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::SessionExists(_) => "SESSION_EXISTS",
            Self::SessionNotFound(_) => "SESSION_NOT_FOUND",
            Self::Fenced(_) => "TURN_TAKEN_OVER",
            Self::EventExists(_) => "EVENT_EXISTS",
            Self::InvalidName { .. } => "INVALID_NAME",
            Self::InvalidRequest(_) => "REFUSED",
            Self::QuotaExceeded { .. } => "QUOTA_EXCEEDED",
            Self::Busy { .. } => "STORE_BUSY",
            Self::Full { .. } => STORE_FULL,
            Self::Backend { .. } => STORE_FAILED,
        }
    }
}

impl From<InvalidId> for StoreError {
    fn from(InvalidId { name, reason }: InvalidId) -> Self {
        Self::InvalidName { name, reason }
    }
}

/// An error of a tool call.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ToolError {
    /// Sent to the model, which may correct its call: wrong arguments, a failed lookup, a denied capability.
    #[error("{0}")]
    Recoverable(String),
    /// Ends the run.
    #[error("tool `{tool}`: {message}")]
    Fatal {
        /// The tool's name. The run replaces an empty name by the name of the called tool.
        tool: String,
        /// A stable code, possibly the component's own.
        code: Cow<'static, str>,
        /// The error as text.
        message: String,
    },
}

impl ToolError {
    /// Sets the tool's name, unless the error has one.
    #[must_use]
    pub fn for_tool(self, name: &str) -> Self {
        match self {
            Self::Fatal { tool, code, message } if tool.is_empty() => Self::Fatal { tool: name.into(), code, message },
            error @ (Self::Recoverable(_) | Self::Fatal { .. }) => error,
        }
    }
}

/// A failure of the storage is fatal. The model may correct any other error, such as an invalid name.
impl From<StoreError> for ToolError {
    fn from(error: StoreError) -> Self {
        let message = match &error {
            StoreError::QuotaExceeded { message, .. } => message.clone(),
            error => error.to_string(),
        };
        match error {
            StoreError::Backend { .. } | StoreError::Full { .. } | StoreError::Busy { .. } | StoreError::Fenced(_) => {
                Self::Fatal { tool: String::new(), code: error.code().into(), message }
            }
            StoreError::SessionExists(_)
            | StoreError::SessionNotFound(_)
            | StoreError::EventExists(_)
            | StoreError::InvalidName { .. }
            | StoreError::QuotaExceeded { .. }
            | StoreError::InvalidRequest(_) => Self::Recoverable(message),
        }
    }
}

/// A limit of a run. Displays as words for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunLimit {
    /// Model calls in the run.
    LlmCalls,
    /// Model calls in one run of an agent.
    Steps,
    /// Tokens of all model calls.
    Tokens,
    /// Stored events.
    Events,
    /// Bytes of the JSON of all events, and of `temp:` state.
    EventBytes,
    /// Rounds of loop agents.
    Rounds,
    /// Seconds of wall time.
    RunTime,
}

impl RunLimit {
    /// Returns the setting that raises the limit, such as `max_tokens`.
    pub fn key(self) -> &'static str {
        match self {
            Self::LlmCalls => "max_llm_calls",
            Self::Steps => "max_steps",
            Self::Tokens => "max_tokens",
            Self::Events => "max_events",
            Self::EventBytes => "max_run_bytes",
            Self::Rounds => "max_rounds",
            Self::RunTime => "max_run_time",
        }
    }
}

impl fmt::Display for RunLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LlmCalls => "Max number of llm calls limit",
            Self::Steps => "the limit of model calls in one run of an agent",
            Self::Tokens => "the limit of tokens in one run",
            Self::Events => "the limit of events in one run",
            Self::EventBytes => "the limit of bytes of events in one run",
            Self::Rounds => "the limit of rounds of loops in one run",
            Self::RunTime => "the limit of seconds of one run",
        })
    }
}

/// An error that ends a run.
#[derive(Debug, Error)]
pub enum RunError {
    /// A model call failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A service failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tool ended the run.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The app, or an agent in it, does not exist.
    #[error("{kind} not found: {name}{hint}")]
    NotFound {
        /// `Agent`, `App` …
        kind: &'static str,
        name: String,
        /// The alternatives, starting with a separator; empty if there are none.
        hint: String,
    },
    /// A limit was reached.
    #[error("{limit} of {value} reached by agent `{agent}`; raise `{}` to allow more", limit.key())]
    Limit {
        limit: RunLimit,
        /// The configured value.
        value: u64,
        /// The agent that reached it.
        agent: String,
    },
    /// A callback failed.
    #[error("callback `{callback}` of agent `{agent}`: {message}")]
    Callback {
        /// The callback's name.
        callback: String,
        /// The agent's name.
        agent: String,
        /// A stable code: `CALLBACK_FAILED`, or the component's own.
        code: Cow<'static, str>,
        /// The error as text.
        message: String,
    },
    /// A component failed: it trapped, exceeded its memory or time, or violated the contract.
    #[error("component `{component}`: {message}")]
    Component {
        /// The component's name.
        component: String,
        /// A stable code: `COMPONENT_TRAPPED`, `COMPONENT_TIMEOUT`, `COMPONENT_MEMORY`, `COMPONENT_FAILED` …
        code: &'static str,
        /// The error as text.
        message: String,
    },
    /// A plugin that every run requires is not available.
    #[error("no run can begin without plugin `{plugin}`: {reason}")]
    PluginMissing {
        /// The plugin's name.
        plugin: String,
        reason: String,
    },
    /// An extension of an agent or a runner, such as a plugin or a summarizer, reported a failure.
    #[error("{} `{name}`: {message}", kind.label())]
    Extension {
        /// The kind of extension.
        kind: ItemKind,
        name: String,
        /// A stable code, possibly the component's own.
        code: Cow<'static, str>,
        /// The reported message.
        message: String,
    },
    /// The caller's input is invalid.
    #[error("{0}")]
    BadInput(String),
    /// The user's message is invalid: users may not send it, or models do not accept it.
    #[error("{0}")]
    InvalidMessage(String),
    /// An agent failed.
    #[error("agent `{agent}`: {message}")]
    Agent {
        /// The agent's name.
        agent: String,
        /// A stable code: `AGENT_FAILED`, or the component's own.
        code: Cow<'static, str>,
        /// The reported message.
        message: String,
    },
    /// A run that would wait for itself: code runs an app in a session in which its own run is in progress.
    #[error(
        "app `{app}` is not run in session `{session}`: it runs there already, and would wait for itself; use another session"
    )]
    Cycle {
        app: String,
        /// The id of the session.
        session: String,
    },
    /// A change in a context that only reads.
    #[error("an instruction only reads: make this change in a tool, a callback or an agent")]
    ReadOnly,
    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
    /// The client of a run did not read its events for too long. The run continues without it, and all events are
    /// stored.
    #[error(
        "the events were read too slowly and are not sent any more; the last that was sent is `{last_event_id}`, and the \
         session has those after it"
    )]
    ReaderTooSlow {
        /// The id of the last event that was sent.
        last_event_id: String,
    },
    /// The events of this agent are no longer needed: the run or the enclosing loop has ended, or its relay was
    /// dropped. The agent stops; this is not a failure.
    #[error("the agent was stopped by its parent agent, or its run has ended")]
    Stopped,
    /// A bug in the host or in native code within it.
    #[error("internal error: {0}; please report it")]
    Internal(String),
    /// The run ended with an event, stored already, that reports the error.
    #[error("{message}")]
    AlreadyReported {
        /// The code in the event.
        code: String,
        /// The message in the event.
        message: String,
    },
}

impl From<InvalidId> for RunError {
    fn from(error: InvalidId) -> Self {
        Self::Store(error.into())
    }
}

impl RunError {
    /// Returns the message for clients, models and guests. Settings, keys of models, details of the storage (paths,
    /// SQL) and bugs of the host are only for the operator's log, as [`Display`](fmt::Display) shows them.
    pub fn client_message(&self) -> String {
        match self {
            Self::Model(ModelError { kind: ModelErrorKind::Auth, model, .. }) => {
                format!("model `{model}`: the server has no access to it; its log holds the cause")
            }
            Self::Model(ModelError { kind: ModelErrorKind::UnknownModel, model, .. }) => {
                format!("model `{model}`: the server does not have it; its log holds the cause")
            }
            Self::Store(StoreError::QuotaExceeded { message, .. }) => message.clone(),
            Self::Limit { limit, value, agent } => format!("{limit} of {value} reached by agent `{agent}`"),
            Self::PluginMissing { plugin, .. } => {
                format!("no run can begin without plugin `{plugin}`; the server's log holds the cause")
            }
            Self::Extension { kind, name, code, .. } if code == MCP_UNAVAILABLE => {
                format!("{} `{name}`: its MCP server is not available; the server's log holds the cause", kind.label())
            }
            Self::Extension { kind, name, code, .. } if code == OPENAPI_UNAVAILABLE => {
                format!("{} `{name}`: its API is not available; the server's log holds the cause", kind.label())
            }
            Self::Store(_) | Self::Tool(ToolError::Fatal { .. }) if self.code() == STORE_FAILED => {
                "the storage failed; the server's log holds the cause".into()
            }
            Self::Store(_) | Self::Tool(ToolError::Fatal { .. }) if self.code() == STORE_FULL => {
                "the storage is full, and nothing of this was stored; the operator must free some space".into()
            }
            Self::Internal(_) => "the server failed; its log holds the cause".into(),
            error => error.to_string(),
        }
    }

    /// Returns the [message for clients](Self::client_message). If that leaves something out, the whole error is logged
    /// for the operator.
    pub fn redact(&self) -> String {
        let (message, full) = (self.client_message(), self.to_string());
        if message != full {
            tracing::warn!(code = self.code(), "{}", escape_control(&full));
        }
        message
    }

    /// Returns the stable code that clients see in `errorCode`.
    pub fn code(&self) -> &str {
        match self {
            Self::Model(error) => error.kind.code(),
            Self::Store(error) => error.code(),
            Self::Tool(ToolError::Recoverable(_)) => "TOOL_FAILED",
            Self::Component { code, .. } => code,
            Self::Tool(ToolError::Fatal { code, .. })
            | Self::Callback { code, .. }
            | Self::Extension { code, .. }
            | Self::Agent { code, .. } => code,
            Self::NotFound { .. } => "NOT_FOUND",
            Self::Limit { .. } => "LIMIT_REACHED",
            Self::PluginMissing { .. } => "PLUGIN_MISSING",
            Self::BadInput(_) => "BAD_INPUT",
            Self::InvalidMessage(_) => "INVALID_MESSAGE",
            Self::Cycle { .. } => "CYCLE",
            Self::ReadOnly => "READ_ONLY",
            Self::Cancelled => "CANCELLED",
            Self::ReaderTooSlow { .. } => "READER_TOO_SLOW",
            Self::Stopped => "STOPPED",
            Self::Internal(_) => "INTERNAL",
            Self::AlreadyReported { code, .. } => code,
        }
    }
}
