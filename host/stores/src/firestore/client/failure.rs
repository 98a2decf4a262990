//! Failures of requests, and the errors that they are for callers.

use std::fmt;
use std::time::Duration;

use hatchery_core::StoreError;
use reqwest::StatusCode;
use serde::Deserialize;

/// An error of the service.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ApiError {
    message: String,
    pub(super) status: String,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.status)
    }
}

impl std::error::Error for ApiError {}

#[derive(Deserialize)]
struct ErrorBody {
    error: ApiError,
}

/// The reason why a request has no result.
pub(super) enum Failure {
    /// The service has answered with an error.
    Api(ApiError),
    /// There is no answer.
    Network(reqwest::Error),
    Store(StoreError),
}

impl Failure {
    /// Returns true if the same request may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Api(error) => is_temporary(error),
            Self::Network(_) => true,
            Self::Store(_) => false,
        }
    }

    /// Converts the failure. `activity` is a verb with its object, such as "read from Firestore".
    pub(super) fn into_error(self, activity: &str) -> StoreError {
        match self {
            Self::Api(error) => store_error(activity, error),
            Self::Network(error) => {
                tracing::warn!(%error, "cannot {activity}: it has not answered");
                unavailable()
            }
            Self::Store(error) => error,
        }
    }
}

/// Returns the error of a body; one of the HTTP status if the body has none.
pub(super) fn api_error(status: StatusCode, body: &[u8]) -> ApiError {
    // A stream of results that fails is a list with the error.
    let parsed = serde_json::from_slice::<ErrorBody>(body)
        .or_else(|_| serde_json::from_slice::<[ErrorBody; 1]>(body).map(|[error]| error));
    parsed.map(|body| body.error).unwrap_or_else(|_| {
        let name = match status {
            StatusCode::TOO_MANY_REQUESTS => "RESOURCE_EXHAUSTED",
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => "UNAVAILABLE",
            _ => "UNKNOWN",
        };
        ApiError { message: format!("HTTP {status}"), status: name.into() }
    })
}

fn is_temporary(error: &ApiError) -> bool {
    matches!(error.status.as_str(), "ABORTED" | "DEADLINE_EXCEEDED" | "INTERNAL" | "RESOURCE_EXHAUSTED" | "UNAVAILABLE")
}

/// Returns the error of a request for callers, with the next step. `activity` is a verb with its object, such as "read
/// from Firestore".
pub(super) fn store_error(activity: &str, error: ApiError) -> StoreError {
    let is_too_large =
        ["longer than", "exceeds the maximum", "exceeds maximum"].iter().any(|text| error.message.contains(text));
    match error.status.as_str() {
        "INVALID_ARGUMENT" | "RESOURCE_EXHAUSTED" if is_too_large => too_large(&error),
        _ if is_temporary(&error) => unavailable(),
        "UNAUTHENTICATED" | "PERMISSION_DENIED" => {
            StoreError::backend(format!("cannot {activity}: give the account the role roles/datastore.user"), error)
        }
        "NOT_FOUND" => {
            StoreError::backend(format!("cannot {activity}: create it with `gcloud firestore databases create`"), error)
        }
        _ => StoreError::backend(format!("cannot {activity}"), error),
    }
}

pub(super) fn too_large(error: &ApiError) -> StoreError {
    StoreError::InvalidRequest(format!(
        "Firestore stores at most 1 MiB in a document, such as the state of a session or what one call returned, and 10 MiB \
         at once: keep large values as artifacts ({error})"
    ))
}

pub(super) fn unavailable() -> StoreError {
    let context = "the Firestore database is busy or not available".into();
    StoreError::Busy { context, retry_after: Duration::from_secs(1) }
}
