//! Errors of remote agents.

use std::time::Duration;

use hatchery_core::MissingVariable;
use thiserror::Error;

use crate::error::ErrorKind;

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
    /// The card has no interface that this host speaks.
    #[error("it speaks {0}; this host speaks JSONRPC in versions 0.3 and 1.0")]
    Interface(String),
    /// A connection is not allowed.
    #[error("{0}")]
    Refused(String),
    /// There is no connection, or it was lost.
    #[error("Failed to communicate with the remote agent: {0}")]
    Communication(String),
    /// There was no answer in time.
    #[error("it did not answer within {} s, so its task was canceled; it may have had an effect", .0.as_secs_f64())]
    Timeout(Duration),
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
            Self::Card(_) | Self::Interface(_) => "A2A_CARD",
            Self::Refused(_) => "A2A_NOT_ALLOWED",
            Self::Communication(_) => "A2A_UNREACHABLE",
            Self::Timeout(_) => "A2A_TIMEOUT",
            Self::TooLarge { .. } => "A2A_TOO_LARGE",
            Self::Response(_) => "A2A_BAD_RESPONSE",
            Self::Peer { .. } => "A2A_REFUSED",
            Self::Task { .. } => "A2A_TASK_FAILED",
        }
    }

    /// Returns true if the agent does not know the task or the operation, so that asking again is useless.
    pub(super) fn is_of_kind(&self, kind: ErrorKind) -> bool {
        matches!(self, Self::Peer { code, .. } if *code == kind.code())
    }
}
