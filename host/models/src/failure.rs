//! Error mapping: HTTP statuses and error bodies of providers to [`ModelError`]s.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{ModelError, ModelErrorKind, truncate_chars};
use serde_json::Value;

use crate::Secret;
use crate::google_credentials::GoogleCredentials;
use crate::retry::kind_of_status;
use crate::service::{ServiceInfo, ServiceUrl};

/// Maximum number of characters of an error body in a message.
const MAX_EXCERPT_CHARS: usize = 500;

/// The HTTP status for an account that has no credit left.
const PAYMENT_REQUIRED: u16 = 402;
/// The codes for an account that has no credit left: OpenAI's and Anthropic's. Waiting does not help.
const NO_QUOTA: [&str; 2] = [INSUFFICIENT_QUOTA, "billing_error"];
pub(crate) const INSUFFICIENT_QUOTA: &str = "insufficient_quota";
/// The remedy for these errors, at the end of a message.
pub(crate) const QUOTA_REMEDY: &str = " (check the plan and the billing of the account)";

/// Codes of errors in streams, in the order of precedence. All others are errors of the server.
const KINDS_BY_CODE: [(&[&str], ModelErrorKind); 6] = [
    (&["rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED"], ModelErrorKind::RateLimited),
    (&["not_found_error", "model_not_found", "NOT_FOUND"], ModelErrorKind::UnknownModel),
    (&["invalid_request_error", "invalid_prompt", "request_too_large", "INVALID_ARGUMENT"], ModelErrorKind::BadRequest),
    (
        &[
            "authentication_error",
            "permission_error",
            "billing_error",
            "invalid_api_key",
            "UNAUTHENTICATED",
            "PERMISSION_DENIED",
        ],
        ModelErrorKind::Auth,
    ),
    (&["timeout_error", "DEADLINE_EXCEEDED"], ModelErrorKind::Timeout),
    (&["overloaded_error", "api_error", "server_error", "UNAVAILABLE"], ModelErrorKind::Server),
];

/// The model and its provider, as error messages name them.
#[derive(Clone)]
pub(crate) struct Origin {
    /// The model's name as configured, with any prefix.
    pub(crate) model: String,
    pub(crate) service: &'static ServiceInfo,
    /// Redacted from all messages.
    pub(crate) secrets: Vec<Secret>,
    /// Their access token is redacted too.
    pub(crate) credentials: Option<Arc<GoogleCredentials>>,
}

impl Origin {
    /// Returns the provider's name in messages.
    pub(crate) fn provider_name(&self) -> &'static str {
        self.service.name
    }

    /// Creates an error of this model. The key is redacted.
    pub(crate) fn error(&self, kind: ModelErrorKind, message: impl Into<String>) -> ModelError {
        ModelError::new(kind, &self.model, self.redact(message.into()))
    }

    /// Creates an error for a response that violates the protocol.
    pub(crate) fn bad_response(&self, message: impl std::fmt::Display) -> ModelError {
        self.error(
            ModelErrorKind::BadResponse,
            format!("{} sent an answer that cannot be read: {message}", self.provider_name()),
        )
    }

    /// Creates an error for a stream that ends before the answer is complete.
    pub(crate) fn incomplete_answer(&self) -> ModelError {
        let message = format!("the answer of {} ended before it was complete", self.provider_name());
        self.error(ModelErrorKind::Network, message)
    }

    /// Creates an error for an HTTP response with an error status.
    pub(crate) fn status_error(&self, status: u16, body: &[u8], retry_after: Option<Duration>) -> ModelError {
        // Gemini wraps the error of a stream in a list.
        let details = serde_json::from_slice::<Value>(body).ok().map(|mut body| match body.get_mut(0) {
            Some(first) => first.take(),
            None => body,
        });
        let has_no_quota =
            status == PAYMENT_REQUIRED || details.as_ref().and_then(|body| body.get("error")).is_some_and(has_no_quota);
        let kind = match details.as_ref() {
            Some(details) if has_no_quota || is_invalid_key(details) => ModelErrorKind::Auth,
            _ => kind_of_status(status),
        };
        let reason = match details.as_ref().and_then(message_of) {
            Some(message) => message.to_owned(),
            None => String::from_utf8_lossy(body).trim().to_owned(),
        };
        let mut message = format!("{} answered HTTP {status}", self.provider_name());
        if !reason.is_empty() {
            message.push_str(": ");
            message.push_str(&self.excerpt(reason));
        }
        message.push_str(&self.remedy(kind, has_no_quota));
        let retry_after = retry_after.or_else(|| details.as_ref().and_then(retry_delay));
        ModelError { status: Some(status), retry_after, ..self.error(kind, message) }
    }

    /// Returns the remedy for an error, to be appended to its message. Empty if none is known.
    fn remedy(&self, kind: ModelErrorKind, has_no_quota: bool) -> Cow<'static, str> {
        match (kind, &self.credentials) {
            (ModelErrorKind::Auth, _) if has_no_quota => QUOTA_REMEDY.into(),
            (ModelErrorKind::Auth, Some(credentials)) => {
                format!(" (check the access of {})", credentials.origin()).into()
            }
            (ModelErrorKind::Auth, None) => format!(" (check the key in {})", self.service.key_variables()).into(),
            (ModelErrorKind::UnknownModel, _) => {
                format!(" (check the model's name, and {} if it is set)", self.service.url_variable).into()
            }
            _ => "".into(),
        }
    }

    /// Returns the remedy for a server that does not answer, to be appended to a message.
    pub(crate) fn unreachable_remedy(&self) -> String {
        let variable = self.service.url_variable;
        match self.service.url {
            ServiceUrl::Default(_) => format!(" (check the network, and {variable} if it is set)"),
            ServiceUrl::Required { .. } => format!(" (check that it runs at the URL in {variable})"),
        }
    }

    /// Creates an error from the `error` key of a stream event or of a body with HTTP 200.
    pub(crate) fn body_error(&self, error: &Value) -> ModelError {
        let status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        let word = |key| error.get(key).and_then(Value::as_str).unwrap_or_default();
        let words = [word("code"), word("type"), word("status")];
        let has_no_quota = has_no_quota(error);
        let kind = match status {
            _ if has_no_quota => ModelErrorKind::Auth,
            Some(status) if status >= 400 => kind_of_status(status),
            _ => KINDS_BY_CODE
                .iter()
                .find(|(codes, _)| codes.iter().any(|code| words.contains(code)))
                .map_or(ModelErrorKind::Server, |(_, kind)| *kind),
        };
        let message = match error {
            Value::String(message) => message.clone(),
            error => match error.get("message").and_then(Value::as_str) {
                Some(message) => message.to_owned(),
                None => error.to_string(),
            },
        };
        let remedy = if has_no_quota { QUOTA_REMEDY } else { "" };
        let message = format!("{} reports: {}{remedy}", self.provider_name(), self.excerpt(message));
        ModelError { status: status.filter(|status| *status >= 400), ..self.error(kind, message) }
    }

    /// Returns the redacted beginning of a provider's text. Redacts before truncating, because a truncated secret would
    /// not be found.
    fn excerpt(&self, text: String) -> String {
        truncate_chars(&self.redact(text), MAX_EXCERPT_CHARS)
    }

    fn redact(&self, message: String) -> String {
        let token = self.credentials.as_ref().and_then(|credentials| credentials.current_token());
        let secrets = self.secrets.iter().chain(token.as_ref()).filter(|secret| !secret.expose().is_empty());
        secrets.fold(message, |message, secret| message.replace(secret.expose(), "[key]"))
    }
}

/// Returns true for Gemini's rejection of a key, which is an HTTP 400 with a reason in its details.
fn is_invalid_key(body: &Value) -> bool {
    body.pointer("/error/details").and_then(Value::as_array).is_some_and(|details| {
        details.iter().any(|detail| detail.get("reason").is_some_and(|reason| reason == "API_KEY_INVALID"))
    })
}

/// Returns the time after which Gemini accepts a request again, which is in the details of the error, such as `7.5s`.
/// It sends no `Retry-After`.
fn retry_delay(body: &Value) -> Option<Duration> {
    let mut details = body.pointer("/error/details")?.as_array()?.iter();
    let delay = details.find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

/// Returns true for the error of an account that has no credit left.
fn has_no_quota(error: &Value) -> bool {
    let is_code = |key| error.get(key).and_then(Value::as_str).is_some_and(|code| NO_QUOTA.contains(&code));
    ["code", "type"].into_iter().any(is_code)
}

fn message_of(body: &Value) -> Option<&str> {
    let error = body.get("error")?;
    error.get("message").unwrap_or(error).as_str()
}
