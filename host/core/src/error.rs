//! Errors that cross the borders of crates. Each has a stable code for clients and a message that names the culprit and the next step.

use std::borrow::Cow;
use std::time::Duration;

use thiserror::Error;

use crate::item::ItemKind;
use crate::session::SessionKey;

/// The code of a failure of the storage itself, whose words are not for clients.
const STORE_FAILED: &str = "STORE_FAILED";

/// The code of a storage without room, whose words are not for clients either.
const STORE_FULL: &str = "STORE_FULL";

/// What goes wrong in a session, artifact or memory service.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A session of this id exists.
    #[error("Session already exists: {}", .0.id)]
    SessionExists(SessionKey),
    /// There is no such session.
    #[error("Session not found: {0}")]
    SessionNotFound(SessionKey),
    /// A name that the service cannot use.
    #[error("invalid name `{name}`: {reason}")]
    InvalidName {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The caller may not do this.
    #[error("{0}")]
    InvalidRequest(String),
    /// A quota is used up.
    #[error("{message}; raise `{key}` in hatchery.yaml to allow more")]
    QuotaExceeded {
        /// What may take how much, and what to do about it without raising the quota.
        message: String,
        /// The setting that raises it.
        key: &'static str,
        /// True if the request is too large by itself, false if what is stored leaves no room for it.
        is_request: bool,
    },
    /// Other requests keep the storage busy: the same request may succeed later.
    #[error("{what}; try again in {} s", retry_after.as_secs().max(1))]
    Busy {
        /// What is busy, in words for clients.
        what: String,
        /// How long to wait before the next try.
        retry_after: Duration,
    },
    /// The disk, or the file system's quota, is used up. What was stored before is still there.
    #[error("{what}: no space is left: {source}")]
    Full {
        /// What was being done, with the file or table.
        what: String,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The storage itself failed.
    #[error("{what}: {source}")]
    Backend {
        /// What was being done, with the file or table.
        what: String,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// A failure of the storage, with what was being done.
    pub fn backend(what: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Backend { what: what.into(), source: source.into() }
    }

    /// The stable code that clients see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::SessionExists(_) => "SESSION_EXISTS",
            Self::SessionNotFound(_) => "SESSION_NOT_FOUND",
            Self::InvalidName { .. } => "INVALID_NAME",
            Self::InvalidRequest(_) => "REFUSED",
            Self::QuotaExceeded { .. } => "QUOTA_EXCEEDED",
            Self::Busy { .. } => "STORE_BUSY",
            Self::Full { .. } => STORE_FULL,
            Self::Backend { .. } => STORE_FAILED,
        }
    }
}

/// The kinds of [`ModelError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// No provider serves this name.
    UnknownModel,
    /// The key is missing or refused.
    Auth,
    /// Too many requests.
    RateLimited,
    /// The provider refuses the request.
    BadRequest,
    /// The provider failed.
    Server,
    /// The provider cannot be reached, or the connection broke.
    Network,
    /// No answer in time.
    Timeout,
    /// The provider's answer cannot be understood.
    BadResponse,
    /// The caller has cancelled.
    Cancelled,
}

impl ModelErrorKind {
    const ALL: [Self; 9] = [
        Self::UnknownModel,
        Self::Auth,
        Self::RateLimited,
        Self::BadRequest,
        Self::Server,
        Self::Network,
        Self::Timeout,
        Self::BadResponse,
        Self::Cancelled,
    ];

    /// The kind of this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The stable code that clients see.
    pub fn code(self) -> &'static str {
        match self {
            Self::UnknownModel => "MODEL_UNKNOWN",
            Self::Auth => "MODEL_AUTH",
            Self::RateLimited => "MODEL_RATE_LIMITED",
            Self::BadRequest => "MODEL_BAD_REQUEST",
            Self::Server => "MODEL_SERVER_ERROR",
            Self::Network => "MODEL_NETWORK",
            Self::Timeout => "MODEL_TIMEOUT",
            Self::BadResponse => "MODEL_BAD_RESPONSE",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// True when the same request may succeed later.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Server | Self::Network | Self::Timeout)
    }
}

/// What goes wrong with a model call.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("model `{model}`: {message}")]
pub struct ModelError {
    /// What kind of error it is.
    pub kind: ModelErrorKind,
    /// The model's name.
    pub model: String,
    /// What happened and what to do, for a person.
    pub message: String,
    /// HTTP status of the provider's answer.
    pub status: Option<u16>,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// An error without status.
    pub fn new(kind: ModelErrorKind, model: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, model: model.into(), message: message.into(), status: None, retry_after: None }
    }
}

/// How a tool call fails.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ToolError {
    /// The model is told and may mend it: wrong arguments, a failed look-up, a denied capability.
    #[error("{0}")]
    Recoverable(String),
    /// The run ends.
    #[error("tool `{tool}`: {message}")]
    Fatal {
        /// The tool's name; when it is empty, the run puts in that of the tool that was called.
        tool: String,
        /// A stable code, possibly the component's own.
        code: Cow<'static, str>,
        /// What happened.
        message: String,
    },
}

impl ToolError {
    /// The error with this tool's name, unless it has one.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        match self {
            Self::Fatal { tool, code, message } if tool.is_empty() => Self::Fatal { tool: name.into(), code, message },
            error @ (Self::Recoverable(_) | Self::Fatal { .. }) => error,
        }
    }
}

/// A failure of the storage ends the run; anything else, such as a name that cannot be used, the model may mend.
impl From<StoreError> for ToolError {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error {
            StoreError::Backend { .. } | StoreError::Full { .. } | StoreError::Busy { .. } => {
                Self::Fatal { tool: String::new(), code: error.code().into(), message }
            }
            StoreError::SessionExists(_)
            | StoreError::SessionNotFound(_)
            | StoreError::InvalidName { .. }
            | StoreError::QuotaExceeded { .. }
            | StoreError::InvalidRequest(_) => Self::Recoverable(message),
        }
    }
}

/// What ends a run.
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
    #[error("{what} not found: {name}{hint}")]
    NotFound {
        /// `Agent`, `App` …
        what: &'static str,
        /// Its name.
        name: String,
        /// What there is instead, starting with a separator, or nothing.
        hint: String,
    },
    /// A limit was reached.
    #[error("{limit} of {value} reached by agent `{agent}`; raise `{key}` to allow more")]
    Limit {
        /// The limit in words.
        limit: &'static str,
        /// Its value.
        value: u64,
        /// The agent that reached it.
        agent: String,
        /// The setting that raises it.
        key: &'static str,
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
        /// What happened.
        message: String,
    },
    /// A component's code failed: it trapped, ran out of memory or time, or broke the contract.
    #[error("component `{component}`: {message}")]
    Component {
        /// The component's name.
        component: String,
        /// A stable code: `COMPONENT_TRAPPED`, `COMPONENT_TIMEOUT`, `COMPONENT_MEMORY`, `COMPONENT_FAILED` …
        code: &'static str,
        /// What happened, and which setting changes it.
        message: String,
    },
    /// A plugin that every run must pass is not there.
    #[error("no run can begin without plugin `{plugin}`: {reason}")]
    PluginMissing {
        /// The plugin's name.
        plugin: String,
        /// Why it is not there.
        reason: String,
    },
    /// Something that an agent or a runner uses, such as a plugin or a summarizer, says that it failed.
    #[error("{} `{name}`: {message}", kind.label())]
    Extension {
        /// What it is.
        kind: ItemKind,
        /// Its name.
        name: String,
        /// A stable code, possibly the component's own.
        code: Cow<'static, str>,
        /// What it says.
        message: String,
    },
    /// The caller's input is wrong.
    #[error("{0}")]
    BadInput(String),
    /// What the user says is nothing that a user can say, or that a model takes.
    #[error("{0}")]
    InvalidMessage(String),
    /// An agent says that it failed.
    #[error("agent `{agent}`: {message}")]
    Agent {
        /// The agent's name.
        agent: String,
        /// A stable code: `AGENT_FAILED`, or the component's own.
        code: Cow<'static, str>,
        /// What it says.
        message: String,
    },
    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
    /// Nobody wants more events of this agent: the loop around it has ended, or its relay was dropped. The agent stops; this is not a
    /// failure.
    #[error("the agent was stopped by the agent around it")]
    Stopped,
    /// A defect of the host or of native code in it.
    #[error("internal error: {0}; please report it")]
    Internal(String),
    /// The event, stored already, that says what went wrong ends the run.
    #[error("{message}")]
    AlreadyReported {
        /// The code in the event.
        code: String,
        /// The message in the event.
        message: String,
    },
}

impl RunError {
    /// What a client is told. The storage's own words (paths, SQL) and defects of the host are for the log alone.
    pub fn client_message(&self) -> String {
        match self {
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

    /// The stable code that clients see in `errorCode`.
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
            Self::Cancelled => "CANCELLED",
            Self::Stopped => "STOPPED",
            Self::Internal(_) => "INTERNAL",
            Self::AlreadyReported { code, .. } => code,
        }
    }
}
