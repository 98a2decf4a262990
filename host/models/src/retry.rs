//! Error mapping: categories of failed model calls, and how each is retried.
//!
//! | category | retried | strategy |
//! |---|---|---|
//! | [`RateLimited`](ErrorCategory::RateLimited), [`Timeout`](ErrorCategory::Timeout), [`Server`](ErrorCategory::Server) | yes | exponential backoff |
//! | [`Network`](ErrorCategory::Network) | yes | fixed delay |
//! | [`Auth`](ErrorCategory::Auth), [`Client`](ErrorCategory::Client), [`Model`](ErrorCategory::Model), [`Unknown`](ErrorCategory::Unknown) | no | |

use std::time::Duration;

use hatchery_core::{ModelError, ModelErrorKind};

/// The delay of [`RetryStrategy::FixedDelay`], and the first one of [`RetryStrategy::ExponentialBackoff`].
pub const BASE_DELAY: Duration = Duration::from_secs(1);

/// The longest delay before a retry.
pub const MAX_DELAY: Duration = Duration::from_secs(30);

/// The category of a failed model call. Determined from its kind, which comes from the status of the response or the
/// type of the error, and never from its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCategory {
    /// The key is missing or rejected, or its account has no credit left.
    Auth,
    /// Too many requests.
    RateLimited,
    /// The provider cannot be reached, or the connection was lost.
    Network,
    /// The provider rejects the request.
    Client,
    /// The provider failed.
    Server,
    /// The provider did not respond in time.
    Timeout,
    /// There is no such model.
    Model,
    /// Anything else, such as a response that cannot be parsed.
    Unknown,
}

/// Retry strategy of a failed model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetryStrategy {
    /// Not at all.
    NoRetry,
    /// At once.
    ImmediateRetry,
    /// After [`BASE_DELAY`].
    FixedDelay,
    /// After a delay that doubles each time, up to [`MAX_DELAY`].
    ExponentialBackoff,
}

impl From<ModelErrorKind> for ErrorCategory {
    fn from(kind: ModelErrorKind) -> Self {
        match kind {
            ModelErrorKind::Auth => Self::Auth,
            ModelErrorKind::RateLimited => Self::RateLimited,
            ModelErrorKind::Network => Self::Network,
            ModelErrorKind::BadRequest => Self::Client,
            ModelErrorKind::Server => Self::Server,
            ModelErrorKind::Timeout => Self::Timeout,
            ModelErrorKind::UnknownModel => Self::Model,
            ModelErrorKind::BadResponse | ModelErrorKind::Cancelled => Self::Unknown,
        }
    }
}

impl ErrorCategory {
    /// Returns the category of an HTTP status.
    pub fn from_status(status: u16) -> Self {
        kind_of_status(status).into()
    }

    /// Returns the name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auth => "AUTH_ERROR",
            Self::RateLimited => "RATE_LIMITED",
            Self::Network => "NETWORK_ERROR",
            Self::Client => "CLIENT_ERROR",
            Self::Server => "SERVER_ERROR",
            Self::Timeout => "TIMEOUT_ERROR",
            Self::Model => "MODEL_ERROR",
            Self::Unknown => "UNKNOWN_ERROR",
        }
    }

    /// Returns the retry strategy for errors of this category.
    pub fn strategy(self) -> RetryStrategy {
        match self {
            Self::RateLimited | Self::Timeout | Self::Server => RetryStrategy::ExponentialBackoff,
            Self::Network => RetryStrategy::FixedDelay,
            Self::Auth | Self::Client | Self::Model | Self::Unknown => RetryStrategy::NoRetry,
        }
    }
}

/// Returns true if the same request may succeed later.
pub fn is_retryable(category: ErrorCategory) -> bool {
    category.strategy() != RetryStrategy::NoRetry
}

/// Returns the delay before a retry, where `attempt` is 0 for the first one. `None` if there is none. Jitter and
/// `Retry-After` are up to the caller.
pub fn delay(strategy: RetryStrategy, attempt: u32) -> Option<Duration> {
    match strategy {
        RetryStrategy::NoRetry => None,
        RetryStrategy::ImmediateRetry => Some(Duration::ZERO),
        RetryStrategy::FixedDelay => Some(BASE_DELAY),
        RetryStrategy::ExponentialBackoff => {
            Some(BASE_DELAY.saturating_mul(2_u32.saturating_pow(attempt)).min(MAX_DELAY))
        }
    }
}

/// Returns the message of an error after the name of its category.
pub fn normalized_message(error: &ModelError) -> String {
    let category = match ErrorCategory::from(error.kind) {
        ErrorCategory::Auth => "Authentication failed",
        ErrorCategory::RateLimited => "Rate limited",
        ErrorCategory::Network => "Network error",
        ErrorCategory::Client => "Client error",
        ErrorCategory::Server => "Server error",
        ErrorCategory::Timeout => "Request timed out",
        ErrorCategory::Model => "Model error",
        ErrorCategory::Unknown => "Unknown error",
    };
    format!("{category}: {}", error.message)
}

/// Returns the kind of error for an HTTP status.
pub(crate) fn kind_of_status(status: u16) -> ModelErrorKind {
    match status {
        401..=403 => ModelErrorKind::Auth,
        404 => ModelErrorKind::UnknownModel,
        408 | 504 => ModelErrorKind::Timeout,
        429 => ModelErrorKind::RateLimited,
        400..=499 => ModelErrorKind::BadRequest,
        500..=599 => ModelErrorKind::Server,
        _ => ModelErrorKind::BadResponse,
    }
}
