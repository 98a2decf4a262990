//! Errors of MCP servers.

use std::time::Duration;

use hatchery_core::MissingVariable;
use thiserror::Error;

/// Reasons why a server cannot be used.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum McpError {
    /// A setting needs a variable of the host's environment.
    #[error("`{key}` needs the environment variable {name} of the host, which is not set")]
    Variable {
        /// The key of the setting.
        key: String,
        /// The name of the variable.
        name: String,
    },
    /// A header of the configuration is not a valid header.
    #[error("the header `{0}` is invalid; its name and value must be ASCII without line breaks")]
    Header(String),
    /// The program cannot be started.
    #[error("cannot start `{command}`: {reason}; check that it is installed and on the PATH of the host")]
    Start {
        /// The path or name of the program.
        command: String,
        reason: String,
    },
    /// The HTTP client cannot be created.
    #[error("cannot create an HTTP client: {0}")]
    HttpClient(String),
    /// There are no headers for a session.
    #[error("{0}")]
    SessionHeaders(String),
    /// The configuration has no such server, or it may not be used.
    #[error("{0}")]
    NotConfigured(String),
    /// The handshake failed.
    #[error("the handshake failed: {0}")]
    Handshake(String),
    /// The server requires a token, or one with more rights. The text is its challenge.
    #[error(
        "it requires authorization, and answered `{0}`; configure `oauth` or a header, or log in again with `hatchery login`"
    )]
    LoginRequired(String),
    /// The host cannot get a token.
    #[error("the host is not authorized: {0}")]
    Authorization(String),
    /// The connection was not ready in time.
    #[error("it did not complete the handshake within {} s; raise `connect_timeout` if it needs longer", .0.as_secs_f64())]
    ConnectTimeout(Duration),
    /// The connection ended. The text has the last output of the process.
    #[error("it closed the connection{0}")]
    Closed(String),
    /// A message is too large.
    #[error(
        "it sent a message of more than {0} bytes, so the connection was closed; raise `max_message` to allow more"
    )]
    MessageTooLarge(usize),
    /// It sends too many notifications.
    #[error(
        "it sent more than {0} notifications per second, so the connection was closed; raise `max_notifications` to \
         allow more"
    )]
    Flood(u32),
    /// The tools, resources or prompts cannot be listed.
    #[error("its {what} cannot be listed: {reason}")]
    Listing {
        /// The kind of the items, in the plural.
        what: &'static str,
        reason: String,
    },
    /// A prompt cannot be used as an instruction.
    #[error("its prompt `{name}` cannot be used: {reason}")]
    Prompt {
        /// The name of the prompt.
        name: String,
        reason: String,
    },
    /// The host has closed the connection for good.
    #[error("the host has closed the connection, because it is stopping or the server is not trusted any more")]
    Stopped,
}

impl McpError {
    /// Returns the error for a setting whose variable is not set.
    pub(super) fn variable(key: &str, MissingVariable(name): MissingVariable) -> Self {
        Self::Variable { key: key.into(), name }
    }

    /// Returns the error for models. Settings, paths of the host and output of the server are only in the log.
    pub(super) fn for_callers(&self) -> String {
        match self {
            Self::Variable { .. } | Self::Header(_) | Self::HttpClient(_) => "its configuration is incomplete".into(),
            Self::SessionHeaders(_) => "the session has no headers for it".into(),
            Self::NotConfigured(_) => "it is not configured".into(),
            Self::LoginRequired(_) | Self::Authorization(_) => "the host is not authorized to use it".into(),
            Self::Start { .. } => "it cannot be started".into(),
            Self::Handshake(_) | Self::ConnectTimeout(_) => "the handshake failed".into(),
            Self::Closed(_) => "it closed the connection".into(),
            Self::MessageTooLarge(max) => format!("it sent a message of more than {max} bytes"),
            Self::Flood(max) => format!("it sent more than {max} notifications per second"),
            Self::Listing { what, .. } => format!("its {what} cannot be listed"),
            Self::Prompt { name, .. } => format!("its prompt `{name}` cannot be used"),
            Self::Stopped => self.to_string(),
        }
    }
}
