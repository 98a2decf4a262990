//! Error mapping: HTTP statuses and error bodies of providers to [`ModelError`]s.

use std::time::Duration;

use hatchery_core::{ModelError, ModelErrorKind};
use serde_json::Value;

use crate::Secret;

/// Maximum number of characters of an error body in a message.
const MAX_SHOWN_CHARS: usize = 500;

/// Returns the kind of error for an HTTP status.
pub(crate) fn kind_of_status(status: u16) -> ModelErrorKind {
    match status {
        401 | 403 => ModelErrorKind::Auth,
        404 => ModelErrorKind::UnknownModel,
        408 | 504 => ModelErrorKind::Timeout,
        429 => ModelErrorKind::RateLimited,
        400..=499 => ModelErrorKind::BadRequest,
        500..=599 => ModelErrorKind::Server,
        _ => ModelErrorKind::BadResponse,
    }
}

/// The model and its provider, as error messages name them.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// The model's name as configured, with any prefix.
    pub(crate) model: String,
    pub(crate) provider: &'static str,
    /// The environment variable that holds the key.
    pub(crate) key_variable: &'static str,
    /// The environment variable that holds the base URL.
    pub(crate) url_variable: &'static str,
    /// Redacted from all messages.
    pub(crate) key: Option<Secret>,
}

impl Origin {
    /// Creates an error of this model. The key is redacted.
    pub(crate) fn error(&self, kind: ModelErrorKind, message: impl Into<String>) -> ModelError {
        ModelError::new(kind, &self.model, self.redacted(message.into()))
    }

    /// Creates an error for a response that violates the protocol.
    pub(crate) fn bad_response(&self, message: impl std::fmt::Display) -> ModelError {
        self.error(
            ModelErrorKind::BadResponse,
            format!("{} sent an answer that cannot be read: {message}", self.provider),
        )
    }

    /// Creates an error for an HTTP response with an error status.
    pub(crate) fn status_error(&self, status: u16, body: &[u8], retry_after: Option<Duration>) -> ModelError {
        // Gemini wraps the error of a stream in a list.
        let details = serde_json::from_slice::<Value>(body).ok().map(|mut body| match body.get_mut(0) {
            Some(first) => first.take(),
            None => body,
        });
        let kind = match details.as_ref() {
            Some(details) if is_invalid_key(details) => ModelErrorKind::Auth,
            _ => kind_of_status(status),
        };
        let reason = match details.as_ref().and_then(message_of) {
            Some(message) => message.to_owned(),
            None => String::from_utf8_lossy(body).trim().to_owned(),
        };
        let mut message = format!("{} answered HTTP {status}", self.provider);
        if !reason.is_empty() {
            message.push_str(": ");
            message.push_str(&truncate(&reason));
        }
        match kind {
            ModelErrorKind::Auth => {
                message.push_str(&format!(" (check the key in {})", self.key_variable));
            }
            ModelErrorKind::UnknownModel => {
                message.push_str(&format!(" (check the model's name, and {} if it is set)", self.url_variable));
            }
            _ => {}
        }
        ModelError { status: Some(status), retry_after, ..self.error(kind, message) }
    }

    /// Creates an error from the `error` key of a stream event or of a body with HTTP 200.
    pub(crate) fn body_error(&self, error: &Value) -> ModelError {
        let status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        let word = |key| error.get(key).and_then(Value::as_str).unwrap_or_default();
        let words = [word("code"), word("type"), word("status")];
        let is_any = |names: &[&str]| words.iter().any(|word| names.contains(word));
        let kind = match status {
            Some(status) if status >= 400 => kind_of_status(status),
            _ if is_any(&["rate_limit_exceeded", "rate_limit_error", "insufficient_quota", "RESOURCE_EXHAUSTED"]) => {
                ModelErrorKind::RateLimited
            }
            _ if is_any(&["invalid_request_error", "INVALID_ARGUMENT"]) => ModelErrorKind::BadRequest,
            _ if is_any(&["authentication_error", "invalid_api_key", "UNAUTHENTICATED", "PERMISSION_DENIED"]) => {
                ModelErrorKind::Auth
            }
            _ => ModelErrorKind::Server,
        };
        let message = match error {
            Value::String(message) => message.clone(),
            error => match error.get("message").and_then(Value::as_str) {
                Some(message) => message.to_owned(),
                None => error.to_string(),
            },
        };
        let message = format!("{} reports: {}", self.provider, truncate(&message));
        ModelError { status: status.filter(|status| *status >= 400), ..self.error(kind, message) }
    }

    fn redacted(&self, message: String) -> String {
        match &self.key {
            Some(key) if !key.expose().is_empty() => message.replace(key.expose(), "[key]"),
            _ => message,
        }
    }
}

/// Gemini rejects an invalid key with HTTP 400 and a reason in the details.
fn is_invalid_key(body: &Value) -> bool {
    body.pointer("/error/details").and_then(Value::as_array).is_some_and(|details| {
        details.iter().any(|detail| detail.get("reason").is_some_and(|reason| reason == "API_KEY_INVALID"))
    })
}

fn message_of(body: &Value) -> Option<&str> {
    let error = body.get("error")?;
    error.get("message").unwrap_or(error).as_str()
}

fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
