//! Errors of the protocol, with their codes in JSON-RPC and their status over HTTP.

use hatchery_core::{RunError, StoreError};
use serde_json::{Value, json};
use thiserror::Error;

/// The domain of reasons in errors of version 1.0.
const DOMAIN: &str = "a2a-protocol.org";

/// An error of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct A2aError {
    /// The kind, which decides about the code.
    pub kind: ErrorKind,
    /// The error and the next step as text.
    pub message: String,
}

/// The kinds of [`A2aError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    Parse,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    TaskNotFound,
    TaskNotCancelable,
    PushNotificationNotSupported,
    UnsupportedOperation,
    ContentTypeNotSupported,
    InvalidAgentResponse,
    ExtendedCardNotConfigured,
    VersionNotSupported,
    /// The host has too much to do. The same request may succeed later.
    Busy,
}

impl ErrorKind {
    const ALL: [Self; 14] = [
        Self::Parse,
        Self::InvalidRequest,
        Self::MethodNotFound,
        Self::InvalidParams,
        Self::Internal,
        Self::TaskNotFound,
        Self::TaskNotCancelable,
        Self::PushNotificationNotSupported,
        Self::UnsupportedOperation,
        Self::ContentTypeNotSupported,
        Self::InvalidAgentResponse,
        Self::ExtendedCardNotConfigured,
        Self::VersionNotSupported,
        Self::Busy,
    ];

    /// Returns the code in JSON-RPC.
    pub fn code(self) -> i64 {
        match self {
            Self::Parse => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::TaskNotFound => -32001,
            Self::TaskNotCancelable => -32002,
            Self::PushNotificationNotSupported => -32003,
            Self::UnsupportedOperation => -32004,
            Self::ContentTypeNotSupported => -32005,
            Self::InvalidAgentResponse => -32006,
            Self::ExtendedCardNotConfigured => -32007,
            Self::VersionNotSupported => -32009,
            // The protocol has no code for it: the first one of servers.
            Self::Busy => -32000,
        }
    }

    /// Returns the kind with this code.
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns the HTTP status in the HTTP+JSON binding.
    pub fn status(self) -> u16 {
        match self {
            Self::TaskNotFound | Self::MethodNotFound => 404,
            Self::TaskNotCancelable => 409,
            Self::ContentTypeNotSupported => 415,
            Self::InvalidAgentResponse => 502,
            Self::Internal => 500,
            Self::Busy => 503,
            Self::Parse
            | Self::InvalidRequest
            | Self::InvalidParams
            | Self::PushNotificationNotSupported
            | Self::UnsupportedOperation
            | Self::ExtendedCardNotConfigured
            | Self::VersionNotSupported => 400,
        }
    }

    /// Returns the name of the status in Google's error model.
    fn grpc_status(self) -> &'static str {
        match self {
            Self::TaskNotFound => "NOT_FOUND",
            Self::TaskNotCancelable
            | Self::ExtendedCardNotConfigured
            | Self::PushNotificationNotSupported
            | Self::UnsupportedOperation => "FAILED_PRECONDITION",
            Self::MethodNotFound | Self::VersionNotSupported => "UNIMPLEMENTED",
            Self::Busy => "UNAVAILABLE",
            Self::Internal | Self::InvalidAgentResponse => "INTERNAL",
            Self::Parse | Self::InvalidRequest | Self::InvalidParams | Self::ContentTypeNotSupported => {
                "INVALID_ARGUMENT"
            }
        }
    }

    /// Returns the reason in the details of version 1.0.
    fn reason(self) -> &'static str {
        match self {
            Self::Parse => "PARSE_ERROR",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::MethodNotFound => "METHOD_NOT_FOUND",
            Self::InvalidParams => "INVALID_PARAMS",
            Self::Internal => "INTERNAL_ERROR",
            Self::TaskNotFound => "TASK_NOT_FOUND",
            Self::TaskNotCancelable => "TASK_NOT_CANCELABLE",
            Self::PushNotificationNotSupported => "PUSH_NOTIFICATION_NOT_SUPPORTED",
            Self::UnsupportedOperation => "UNSUPPORTED_OPERATION",
            Self::ContentTypeNotSupported => "CONTENT_TYPE_NOT_SUPPORTED",
            Self::InvalidAgentResponse => "INVALID_AGENT_RESPONSE",
            Self::ExtendedCardNotConfigured => "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
            Self::VersionNotSupported => "VERSION_NOT_SUPPORTED",
            Self::Busy => "BUSY",
        }
    }
}

impl A2aError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidParams, message)
    }

    pub(crate) fn task_not_found(id: &str) -> Self {
        Self::new(ErrorKind::TaskNotFound, format!("there is no task `{}`", excerpt(id)))
    }

    /// Returns the error object of JSON-RPC, with the details that version 1.0 requires. To clients of version 0.3, a
    /// code that it does not have is an internal error.
    pub(crate) fn to_json_rpc(&self, is_v0_3: bool) -> Value {
        let kind = match self.kind {
            ErrorKind::VersionNotSupported if is_v0_3 => ErrorKind::Internal,
            kind => kind,
        };
        json!({"code": kind.code(), "message": self.message, "data": [self.info()]})
    }

    /// Returns the body of the error in the HTTP+JSON binding.
    pub(crate) fn to_status_json(&self) -> Value {
        let Self { kind, message } = self;
        json!({"error": {
            "code": kind.status(), "status": kind.grpc_status(), "message": message, "details": [self.info()],
        }})
    }

    fn info(&self) -> Value {
        json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": self.kind.reason(), "domain": DOMAIN})
    }
}

/// The cause of an internal error is logged and not sent.
impl From<StoreError> for A2aError {
    fn from(error: StoreError) -> Self {
        RunError::from(error).into()
    }
}

impl From<RunError> for A2aError {
    fn from(error: RunError) -> Self {
        match &error {
            RunError::BadInput(_) | RunError::InvalidMessage(_) | RunError::Store(StoreError::InvalidName { .. }) => {
                Self::invalid_params(error.client_message())
            }
            RunError::Store(StoreError::Busy { .. }) => Self::new(ErrorKind::Busy, error.client_message()),
            _ => {
                tracing::warn!(code = error.code(), "an A2A request failed: {error}");
                Self::new(ErrorKind::Internal, error.client_message())
            }
        }
    }
}

/// Returns the beginning of a peer's text, escaped for a message.
pub(crate) fn excerpt(text: &str) -> String {
    hatchery_core::excerpt(text, 120)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_code_of_its_own() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(ErrorKind::from_code(-1), None);
    }

    #[test]
    fn a_code_of_version_1_is_an_internal_error_in_version_0_3() {
        let error = A2aError::new(ErrorKind::VersionNotSupported, "no");
        assert_eq!(error.to_json_rpc(true)["code"], -32603);
        let json = error.to_json_rpc(false);
        assert_eq!(
            (json["code"].as_i64(), &json["data"][0]["reason"]),
            (Some(-32009), &json!("VERSION_NOT_SUPPORTED"))
        );
    }
}
