//! What a provider's failure means: from HTTP statuses and error bodies to [`ModelError`]s.

use std::time::Duration;

use hatchery_core::{ModelError, ModelErrorKind};
use serde_json::Value;

use crate::Secret;

/// The most characters of an error body that a message shows.
const MOST_SHOWN: usize = 500;

/// The kind of error that an HTTP status stands for.
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

/// Who answered: what an error message needs to know about a provider.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// The model's name, as the author wrote it.
    pub(crate) model: String,
    /// The provider's name.
    pub(crate) provider: &'static str,
    /// The environment variable that holds the key.
    pub(crate) key_variable: &'static str,
    /// The environment variable that holds the base URL.
    pub(crate) url_variable: &'static str,
    /// The key, so that it is never shown.
    pub(crate) key: Option<Secret>,
}

impl Origin {
    /// An error of this model.
    pub(crate) fn error(&self, kind: ModelErrorKind, message: impl Into<String>) -> ModelError {
        ModelError::new(kind, &self.model, self.redacted(message.into()))
    }

    /// The answer is not what the protocol says.
    pub(crate) fn bad_response(&self, message: impl std::fmt::Display) -> ModelError {
        self.error(
            ModelErrorKind::BadResponse,
            format!("{} sent an answer that cannot be read: {message}", self.provider),
        )
    }

    /// The error that an HTTP answer stands for.
    pub(crate) fn refusal(&self, status: u16, body: &[u8], retry_after: Option<Duration>) -> ModelError {
        // Gemini wraps the error of a stream in a list.
        let details = serde_json::from_slice::<Value>(body).ok().map(|mut body| match body.get_mut(0) {
            Some(first) => first.take(),
            None => body,
        });
        let kind = match details.as_ref() {
            Some(details) if names_a_bad_key(details) => ModelErrorKind::Auth,
            _ => kind_of_status(status),
        };
        let said = match details.as_ref().and_then(message_of) {
            Some(message) => message.to_owned(),
            None => String::from_utf8_lossy(body).trim().to_owned(),
        };
        let mut message = format!("{} answered HTTP {status}", self.provider);
        if !said.is_empty() {
            message.push_str(": ");
            message.push_str(&cut(&said));
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

    /// The error that a provider reports inside a stream, or in a body with HTTP 200: the value of its `error` key.
    pub(crate) fn reported(&self, error: &Value) -> ModelError {
        let status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        let word = |key| error.get(key).and_then(Value::as_str).unwrap_or_default();
        let words = [word("code"), word("type"), word("status")];
        let says = |wanted: &[&str]| words.iter().any(|word| wanted.contains(word));
        let kind = match status {
            Some(status) if status >= 400 => kind_of_status(status),
            _ if says(&["rate_limit_exceeded", "rate_limit_error", "insufficient_quota", "RESOURCE_EXHAUSTED"]) => {
                ModelErrorKind::RateLimited
            }
            _ if says(&["invalid_request_error", "INVALID_ARGUMENT"]) => ModelErrorKind::BadRequest,
            _ if says(&["authentication_error", "invalid_api_key", "UNAUTHENTICATED", "PERMISSION_DENIED"]) => {
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
        let message = format!("{} reports: {}", self.provider, cut(&message));
        ModelError { status: status.filter(|status| *status >= 400), ..self.error(kind, message) }
    }

    fn redacted(&self, message: String) -> String {
        match &self.key {
            Some(key) if !key.expose().is_empty() => message.replace(key.expose(), "[key]"),
            _ => message,
        }
    }
}

/// Gemini refuses a wrong key with HTTP 400 and says why in the details.
fn names_a_bad_key(body: &Value) -> bool {
    body.pointer("/error/details").and_then(Value::as_array).is_some_and(|details| {
        details.iter().any(|detail| detail.get("reason").is_some_and(|reason| reason == "API_KEY_INVALID"))
    })
}

fn message_of(body: &Value) -> Option<&str> {
    let error = body.get("error")?;
    error.get("message").unwrap_or(error).as_str()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
