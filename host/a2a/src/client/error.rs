//! Errors of remote agents.

use std::path::PathBuf;
use std::time::Duration;

use hatchery_core::MissingVariable;
use thiserror::Error;

use hatchery_egress as egress;

/// Reasons why a remote agent has not answered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClientError {
    /// A header needs a variable of the host's environment.
    #[error("the header `{key}` needs the environment variable {name} of the host, which is not set")]
    Variable { key: String, name: String },
    /// A header of the configuration is not a valid header.
    #[error("the header `{0}` is invalid; its name and value must be ASCII without line breaks")]
    Header(String),
    /// The card cannot be read.
    #[error("its card cannot be read: {0}")]
    Card(String),
    /// The file with the card cannot be read.
    #[error("its card cannot be read: {}: {reason}", .file.display())]
    CardFile { file: PathBuf, reason: String },
    /// The card has no interface that this host speaks.
    #[error("it speaks {0}; this host speaks JSONRPC in versions 0.3 and 1.0")]
    Interface(String),
    /// A connection is not allowed.
    #[error("{0}")]
    Refused(String),
    /// There is no connection, or it was lost.
    #[error("Failed to communicate with the remote agent: {0}")]
    Communication(String),
    /// The card was not received in time.
    #[error("its card was not received within {} s", .0.as_secs_f64())]
    CardTimeout(Duration),
    /// Nothing was received for too long.
    #[error("it sent nothing for {} s; it may have had an effect", .0.as_secs_f64())]
    Timeout(Duration),
    /// The whole answer took too long.
    #[error("its answer took longer than {} s in all; it may have had an effect; raise `max_time` to allow more", .0.as_secs_f64())]
    TooLong(Duration),
    /// An answer is too large.
    #[error("it sent more than {limit} bytes in one {what}; raise `{key}` to allow more")]
    TooLarge { what: &'static str, limit: usize, key: &'static str },
    /// The answer is not one of the protocol.
    #[error("Failed to convert the remote agent's response: {0}")]
    Response(String),
    /// The agent refused the request.
    #[error("it refused the request with the code {code}: {message}")]
    Peer { code: i64, message: String },
    /// The task has failed, or was refused.
    #[error("its task {state}: {message}")]
    Task { state: &'static str, message: String },
}

impl ClientError {
    /// Returns the error for a setting whose variable is not set.
    pub(super) fn variable(key: &str, MissingVariable(name): MissingVariable) -> Self {
        Self::Variable { key: key.into(), name }
    }

    /// Returns the stable code that clients see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Variable { .. } | Self::Header(_) => "A2A_CONFIGURATION",
            Self::Card(_) | Self::CardFile { .. } | Self::Interface(_) => "A2A_CARD",
            Self::Refused(_) => "A2A_NOT_ALLOWED",
            Self::Communication(_) => "A2A_UNREACHABLE",
            Self::CardTimeout(_) | Self::Timeout(_) | Self::TooLong(_) => "A2A_TIMEOUT",
            Self::TooLarge { .. } => "A2A_TOO_LARGE",
            Self::Response(_) => "A2A_BAD_RESPONSE",
            Self::Peer { .. } => "A2A_REFUSED",
            Self::Task { .. } => "A2A_TASK_FAILED",
        }
    }

    /// Returns the error of a request or of its response, in which nothing was received for at most `read_timeout`.
    pub(super) fn request(error: reqwest::Error, read_timeout: Duration) -> Self {
        match egress::refusal(&error) {
            Some(reason) => Self::Refused(reason),
            None if error.is_timeout() && !error.is_connect() => Self::Timeout(read_timeout),
            None => Self::Communication(egress::describe(error)),
        }
    }

    /// Returns the message for clients and models. Settings and the environment of the host are only in its log.
    pub(super) fn for_callers(&self) -> String {
        match self {
            Self::Variable { .. } | Self::Header(_) => {
                "its configuration is incomplete; the server's log holds the cause".into()
            }
            Self::CardFile { .. } => "its card cannot be read; the server's log holds the cause".into(),
            Self::Refused(_) => "the server may not connect to it; its log holds the cause".into(),
            Self::TooLong(limit) => {
                format!("its answer took longer than {} s in all; it may have had an effect", limit.as_secs_f64())
            }
            Self::TooLarge { what, limit, .. } => format!("it sent more than {limit} bytes in one {what}"),
            Self::Card(_)
            | Self::Interface(_)
            | Self::Communication(_)
            | Self::CardTimeout(_)
            | Self::Timeout(_)
            | Self::Response(_)
            | Self::Peer { .. }
            | Self::Task { .. } => self.to_string(),
        }
    }

    /// Returns the error for reports about the host, which name files without their folders.
    pub(super) fn for_reports(&self) -> String {
        match self {
            Self::CardFile { file, reason } => {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                format!("its card cannot be read: {name}: {reason}")
            }
            error => error.to_string(),
        }
    }

    /// Returns true if the connection has failed, so that asking again may help.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Communication(_) | Self::Timeout(_))
    }
}
