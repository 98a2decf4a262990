//! Error responses (`application/problem+json`). Internal details are logged and not sent.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hatchery_core::{Event, ModelErrorKind, RunError, SessionKey, StoreError, Timestamp, quoted_list};
use serde_json::{Map, Value, json};

/// The code of a call without a free instance.
const COMPONENT_BUSY: &str = "COMPONENT_BUSY";

/// An error response. The body has `title`, `status`, `code` and `detail`, the detail again as `error`, which some ADK
/// clients read, and the `events` of a failed run.
#[derive(Debug)]
pub struct ApiError {
    pub status: StatusCode,
    /// A stable code for programs.
    pub code: String,
    /// The problem and the next step.
    pub detail: String,
    /// The `Retry-After` header.
    pub retry_after: Option<Duration>,
    /// The events of a failed run.
    pub events: Vec<Arc<Event>>,
    /// The `WWW-Authenticate` header.
    pub challenge: Option<&'static str>,
}

impl ApiError {
    pub fn new(status: StatusCode, code: impl Into<String>, detail: impl Into<String>) -> Self {
        let (code, detail) = (code.into(), detail.into());
        Self { status, code, detail, retry_after: None, events: Vec::new(), challenge: None }
    }

    /// 400: a value of the request is invalid.
    pub fn bad_input(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BAD_INPUT", detail)
    }

    /// 422: a value has the wrong type, or a field is missing.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID_REQUEST", detail)
    }

    /// 404: there is no app with this name. `known` are the existing names.
    pub fn app_not_found(name: &str, known: &[String]) -> Self {
        let hint = if known.is_empty() {
            "no app is loaded; GET /components lists the reasons".to_owned()
        } else {
            format!("available: {}", quoted_list(known))
        };
        Self::new(StatusCode::NOT_FOUND, "APP_NOT_FOUND", format!("App not found: {name}; {hint}"))
    }

    /// 404: there is no app with this name that the client may use. Names no others.
    pub(crate) fn unknown_app(name: &str) -> Self {
        let detail = format!("App not found: {name}; GET /list-apps names those that you may use");
        Self::new(StatusCode::NOT_FOUND, "APP_NOT_FOUND", detail)
    }

    /// 500: the app exists, but cannot be loaded.
    pub fn app_not_loaded(name: &str, reason: &str) -> Self {
        let detail = format!("App cannot be loaded: {name}; {reason}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "APP_NOT_LOADED", detail)
    }

    /// 503: there is no app with this name yet. `loading` are the apps and components that are being loaded.
    pub fn app_loading(name: &str, loading: &[String]) -> Self {
        let loading = quoted_list(loading);
        let detail = format!(
            "App not loaded yet: {name}; still loading {loading}; try again, GET /components shows the progress"
        );
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "APP_LOADING", detail);
        Self { retry_after: Some(Duration::from_secs(1)), ..error }
    }

    /// 503: apps or components are still being loaded.
    pub fn loading(names: &[String]) -> Self {
        let names = quoted_list(names);
        let detail = format!("still loading {names}; GET /components shows the progress");
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "LOADING", detail);
        Self { retry_after: Some(Duration::from_secs(1)), ..error }
    }

    /// 404: there is no artifact with this name and version.
    pub fn artifact_not_found(name: &str, version: Option<u64>) -> Self {
        let version = version.map(|version| format!(", version {version}")).unwrap_or_default();
        Self::new(StatusCode::NOT_FOUND, "ARTIFACT_NOT_FOUND", format!("Artifact not found: {name}{version}"))
    }

    /// 503: a limit is reached temporarily.
    pub fn busy(detail: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", detail);
        Self { retry_after: Some(Duration::from_secs(1)), ..error }
    }

    /// 500: a defect. The cause is in the log.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "INTERNAL",
            "the server failed; its log has the cause, with the id in x-request-id",
        )
    }

    /// Writes the error to the log, with a remedy for the operator. The remedy is not sent to the client.
    #[must_use]
    pub fn advise(self, advice: impl Display) -> Self {
        tracing::info!(code = %self.code, "{}; {advice}", self.detail);
        self
    }

    /// Adds the events of a failed run.
    #[must_use]
    pub fn with_events(self, events: Vec<Arc<Event>>) -> Self {
        Self { events, ..self }
    }

    /// Says which credentials the client must send.
    pub(crate) fn with_challenge(self, challenge: &'static str) -> Self {
        Self { challenge: Some(challenge), ..self }
    }

    fn body(&self) -> Value {
        let mut body = Map::new();
        body.insert("title".into(), self.status.canonical_reason().unwrap_or("Error").into());
        body.insert("status".into(), self.status.as_u16().into());
        body.insert("code".into(), self.code.as_str().into());
        body.insert("detail".into(), self.detail.as_str().into());
        body.insert("error".into(), self.detail.as_str().into());
        if !self.events.is_empty() {
            body.insert("events".into(), json!(self.events));
        }
        body.into()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.body().to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs_f64().ceil().max(1.0) as u64));
        }
        if let Some(challenge) = self.challenge {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        RunError::Store(error).into()
    }
}

impl From<RunError> for ApiError {
    fn from(error: RunError) -> Self {
        let retry_after = match &error {
            RunError::Model(error) => error.retry_after,
            RunError::Component { code: COMPONENT_BUSY, .. } => Some(Duration::from_secs(1)),
            RunError::Store(StoreError::Busy { retry_after, .. }) => Some(*retry_after),
            RunError::Store(StoreError::QuotaExceeded { key: "quotas.user_runs", .. }) => Some(Duration::from_secs(1)),
            RunError::Store(StoreError::QuotaExceeded { key: "quotas.user_tokens_per_day", .. }) => {
                Some(until_tomorrow(Timestamp::now()))
            }
            _ => None,
        };
        Self { retry_after, ..Self::new(status(&error), error.code(), detail(&error)) }
    }
}

/// Returns the time until the next midnight, UTC.
fn until_tomorrow(now: Timestamp) -> Duration {
    const DAY: i64 = 24 * 3600 * 1_000_000;
    Duration::from_micros((DAY - now.as_micros().rem_euclid(DAY)).unsigned_abs())
}

/// Returns the message of an error for clients, and logs its internal details.
pub(crate) fn detail(error: &RunError) -> String {
    match error {
        RunError::Store(StoreError::Backend { context, source } | StoreError::Full { context, source }) => {
            tracing::error!(context, error = %source, "storage failed");
        }
        RunError::Internal(cause) => tracing::error!(cause, "a run failed because of a defect of the host"),
        // Errors of a run itself are logged when it ends.
        RunError::Store(StoreError::QuotaExceeded { .. }) | RunError::PluginMissing { .. } => return error.redact(),
        _ => {}
    }
    let message = error.client_message();
    match error {
        RunError::Store(StoreError::SessionExists(_)) => {
            format!("{message}; send messages to it, or create one with another id")
        }
        RunError::Store(StoreError::SessionNotFound(SessionKey { app, user, id })) => {
            format!("{message}; create it with POST /apps/{app}/users/{user}/sessions/{id}")
        }
        _ => message,
    }
}

fn status(error: &RunError) -> StatusCode {
    match error {
        RunError::Store(error) => match error {
            StoreError::SessionExists(_) | StoreError::Fenced(_) | StoreError::EventExists(_) => StatusCode::CONFLICT,
            StoreError::SessionNotFound(_) => StatusCode::NOT_FOUND,
            StoreError::InvalidName { .. } | StoreError::InvalidRequest(_) => StatusCode::BAD_REQUEST,
            StoreError::QuotaExceeded { is_request: true, .. } => StatusCode::PAYLOAD_TOO_LARGE,
            StoreError::QuotaExceeded { is_request: false, .. } => StatusCode::TOO_MANY_REQUESTS,
            StoreError::Busy { .. } => StatusCode::SERVICE_UNAVAILABLE,
            StoreError::Full { .. } => StatusCode::INSUFFICIENT_STORAGE,
            StoreError::Backend { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        },
        RunError::Model(error) => model_status(error.kind),
        RunError::AlreadyReported { code, .. } => reported_status(code),
        RunError::NotFound { .. } => StatusCode::NOT_FOUND,
        RunError::BadInput(_) | RunError::Cycle { .. } => StatusCode::BAD_REQUEST,
        RunError::InvalidMessage(_) => StatusCode::UNPROCESSABLE_ENTITY,
        RunError::Cancelled
        | RunError::ReaderTooSlow { .. }
        | RunError::Stopped
        | RunError::PluginMissing { .. }
        | RunError::Component { code: COMPONENT_BUSY, .. } => StatusCode::SERVICE_UNAVAILABLE,
        RunError::Tool(_)
        | RunError::Limit { .. }
        | RunError::Callback { .. }
        | RunError::Component { .. }
        | RunError::Extension { .. }
        | RunError::Agent { .. }
        | RunError::Internal(_)
        | RunError::ReadOnly => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn model_status(kind: ModelErrorKind) -> StatusCode {
    match kind {
        ModelErrorKind::UnknownModel => StatusCode::INTERNAL_SERVER_ERROR,
        ModelErrorKind::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ModelErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ModelErrorKind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        ModelErrorKind::Auth
        | ModelErrorKind::BadRequest
        | ModelErrorKind::Server
        | ModelErrorKind::Network
        | ModelErrorKind::BadResponse => StatusCode::BAD_GATEWAY,
    }
}

/// Returns the status of an error by its code, for errors that an event or a stored run reports.
fn reported_status(code: &str) -> StatusCode {
    if let Some(kind) = ModelErrorKind::from_code(code) {
        return model_status(kind);
    }
    match code {
        "QUOTA_EXCEEDED" => StatusCode::TOO_MANY_REQUESTS,
        COMPONENT_BUSY | "PLUGIN_MISSING" | "READER_TOO_SLOW" | "STOPPED" | "STORE_BUSY" => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        "STORE_FULL" => StatusCode::INSUFFICIENT_STORAGE,
        // Components choose the codes of their agents and tools, so other codes do not say whose fault the error is.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::{ItemKind, ModelError, RunLimit, ToolError};

    use super::*;

    fn model(kind: ModelErrorKind) -> RunError {
        RunError::Model(ModelError::new(kind, "gemini-x", "no"))
    }

    #[test]
    fn every_error_of_a_run_has_its_status_and_code() {
        let key = || SessionKey::new("app", "user", "s");
        let (agent, message) = ("a".to_owned(), "no".to_owned());
        let quota = |is_request| StoreError::QuotaExceeded { message: "no".into(), key: "quotas.x", is_request };
        let busy = StoreError::Busy { context: "no".into(), retry_after: Duration::from_secs(1) };
        let cases: [(RunError, u16, &str); 35] = [
            (StoreError::SessionExists(key()).into(), 409, "SESSION_EXISTS"),
            (StoreError::SessionNotFound(key()).into(), 404, "SESSION_NOT_FOUND"),
            (StoreError::Fenced(key()).into(), 409, "TURN_TAKEN_OVER"),
            (StoreError::EventExists("e1".into()).into(), 409, "EVENT_EXISTS"),
            (StoreError::InvalidName { name: "..".into(), reason: "no" }.into(), 400, "INVALID_NAME"),
            (StoreError::InvalidRequest("no".into()).into(), 400, "REFUSED"),
            (StoreError::backend("table", "no").into(), 500, "STORE_FAILED"),
            (StoreError::Full { context: "table".into(), source: "no".into() }.into(), 507, "STORE_FULL"),
            (quota(true).into(), 413, "QUOTA_EXCEEDED"),
            (quota(false).into(), 429, "QUOTA_EXCEEDED"),
            (busy.into(), 503, "STORE_BUSY"),
            (model(ModelErrorKind::UnknownModel), 500, "MODEL_UNKNOWN"),
            (model(ModelErrorKind::Auth), 502, "MODEL_AUTH"),
            (model(ModelErrorKind::RateLimited), 429, "MODEL_RATE_LIMITED"),
            (model(ModelErrorKind::BadRequest), 502, "MODEL_BAD_REQUEST"),
            (model(ModelErrorKind::Server), 502, "MODEL_SERVER_ERROR"),
            (model(ModelErrorKind::Network), 502, "MODEL_NETWORK"),
            (model(ModelErrorKind::Timeout), 504, "MODEL_TIMEOUT"),
            (model(ModelErrorKind::BadResponse), 502, "MODEL_BAD_RESPONSE"),
            (model(ModelErrorKind::Cancelled), 503, "CANCELLED"),
            (
                RunError::Tool(ToolError::Fatal { tool: "t".into(), code: "X".into(), message: message.clone() }),
                500,
                "X",
            ),
            (RunError::NotFound { kind: "Agent", name: agent.clone(), hint: String::new() }, 404, "NOT_FOUND"),
            (RunError::Limit { limit: RunLimit::Tokens, value: 1, agent: agent.clone() }, 500, "LIMIT_REACHED"),
            (
                RunError::Callback {
                    callback: "c".into(),
                    agent: agent.clone(),
                    code: "CALLBACK_FAILED".into(),
                    message: message.clone(),
                },
                500,
                "CALLBACK_FAILED",
            ),
            (
                RunError::Component { component: "c".into(), code: "COMPONENT_TRAPPED", message: message.clone() },
                500,
                "COMPONENT_TRAPPED",
            ),
            (
                RunError::Component { component: "c".into(), code: COMPONENT_BUSY, message: message.clone() },
                503,
                "COMPONENT_BUSY",
            ),
            (RunError::PluginMissing { plugin: "p".into(), reason: message.clone() }, 503, "PLUGIN_MISSING"),
            (
                RunError::Extension {
                    kind: ItemKind::Plugin,
                    name: "p".into(),
                    code: "CENSORED".into(),
                    message: message.clone(),
                },
                500,
                "CENSORED",
            ),
            (RunError::BadInput("no".into()), 400, "BAD_INPUT"),
            (RunError::InvalidMessage("no".into()), 422, "INVALID_MESSAGE"),
            (RunError::Agent { agent, code: "AGENT_FAILED".into(), message: message.clone() }, 500, "AGENT_FAILED"),
            (RunError::Cancelled, 503, "CANCELLED"),
            (RunError::ReaderTooSlow { last_event_id: "1".into() }, 503, "READER_TOO_SLOW"),
            (RunError::Internal("no".into()), 500, "INTERNAL"),
            (RunError::AlreadyReported { code: "SAFETY".into(), message }, 500, "SAFETY"),
        ];
        for (error, status, code) in cases {
            let text = error.to_string();
            let error = ApiError::from(error);
            assert_eq!((error.status.as_u16(), error.code.as_str()), (status, code), "{text}");
            // Other codes do not say whose fault the error is.
            if status >= 500 || status == 429 {
                let reported = RunError::AlreadyReported { code: error.code, message: text };
                assert_eq!(ApiError::from(reported).status.as_u16(), status, "{code}");
            }
        }
    }

    #[test]
    fn internal_details_are_not_sent() {
        let error = ApiError::from(StoreError::backend("/srv/secret.db", "disk I/O error"));
        assert_eq!(error.detail, "the storage failed; the server's log holds the cause");
        let full = StoreError::Full { context: "/srv/secret.db".into(), source: "disk full".into() };
        let expected = "the storage is full, and nothing of this was stored; the operator must free some space";
        assert_eq!(ApiError::from(full).detail, expected);
        let error = ApiError::from(RunError::Internal("index 3 of 2".into()));
        assert_eq!(error.detail, "the server failed; its log holds the cause");
    }

    #[test]
    fn quotas_of_runs_say_when_to_try_again() {
        let response = |key| {
            let error = StoreError::QuotaExceeded { message: "no".into(), key, is_request: false };
            ApiError::from(error).into_response().headers().get(header::RETRY_AFTER).cloned()
        };
        assert_eq!(response("quotas.user_runs"), Some(HeaderValue::from_static("1")));
        let seconds = response("quotas.user_tokens_per_day").unwrap().to_str().unwrap().parse::<u64>().unwrap();
        assert!((1..=86_400).contains(&seconds), "{seconds}");
        assert_eq!(response("quotas.user_sessions"), None);
        let noon = Timestamp::from_micros(12 * 3600 * 1_000_000);
        assert_eq!(until_tomorrow(noon), Duration::from_secs(12 * 3600));
    }

    #[test]
    fn retry_after_of_a_model_is_sent() {
        let wait = Some(Duration::from_millis(2500));
        let error = ModelError { retry_after: wait, ..ModelError::new(ModelErrorKind::RateLimited, "m", "slow down") };
        let response = ApiError::from(RunError::Model(error)).into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[header::RETRY_AFTER], "3");
    }

    #[test]
    fn a_busy_store_has_a_retry_after_header() {
        let busy = StoreError::Busy { context: "busy".into(), retry_after: Duration::from_secs(1) };
        let response = ApiError::from(busy).into_response();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[header::RETRY_AFTER]),
            (503, &"1".parse().unwrap())
        );
    }

    #[test]
    fn an_unknown_app_is_an_error_with_the_existing_names() {
        assert_eq!(ApiError::app_not_found("x", &["a".into()]).detail, "App not found: x; available: `a`");
        let none = ApiError::app_not_found("x", &[]);
        assert_eq!(none.detail, "App not found: x; no app is loaded; GET /components lists the reasons");
    }
}
