//! Errors of model calls.

use std::time::Duration;

use thiserror::Error;

/// The kinds of [`ModelError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// No provider serves this name.
    UnknownModel,
    /// The API key is missing or rejected, or its account has no credit left.
    Auth,
    /// Too many requests.
    RateLimited,
    /// The provider rejects the request.
    BadRequest,
    /// The provider failed.
    Server,
    /// The provider cannot be reached, or the connection was lost.
    Network,
    /// The provider did not respond in time.
    Timeout,
    /// The provider's response cannot be parsed.
    BadResponse,
    /// The caller has cancelled the request.
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

    /// Returns the kind with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns the stable code that clients see.
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

    /// Returns true if the same request may succeed later.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Server | Self::Network | Self::Timeout)
    }
}

/// An error of a model call.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("model `{model}`: {message}")]
pub struct ModelError {
    /// The kind of error.
    pub kind: ModelErrorKind,
    /// The model's name.
    pub model: String,
    /// The error and the next step as text.
    pub message: String,
    /// HTTP status of the provider's response; `None` if there was none.
    pub status: Option<u16>,
    /// Delay before a retry, if the provider sends one.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// Creates the error of a model that has no live connections.
    pub fn not_live(model: impl Into<String>) -> Self {
        let message = "the model is not live; choose one that is, or send text to `/run` and `/run_sse`";
        Self::new(ModelErrorKind::BadRequest, model, message)
    }

    /// Creates an error without status.
    pub fn new(kind: ModelErrorKind, model: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, model: model.into(), message: message.into(), status: None, retry_after: None }
    }
}
