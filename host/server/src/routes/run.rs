//! Runs: `POST /run` returns all events at once, `POST /run_sse` (also `/run-sse`) streams them as server-sent events.
//!
//! A client that disconnects does not cancel the run, unless the request or the configuration says so, or the server
//! serves another UI, such as ADK's web client.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::FutureExt;
use hatchery_core::{
    CallerOrigin, ClientMessage, Content, JsonMap, RunConfig, RunError, SessionKey, StoredRun, StreamingMode,
    TraceParent,
};
use hatchery_engine::{App, Run, RunRequest};
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::runs::{self, RunView};
use crate::api_document::{ApiRouter, schemas};
use crate::auth::Principal;
use crate::body::LargeBody;
use crate::error::{self, ApiError};
use crate::extract::Json;
use crate::json;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new()
        .routes(routes!(run))
        .routes(routes!(run_sse))
        .route("/run-sse", post(run_sse))
        .layer(Extension(LargeBody))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunBody {
    #[serde(alias = "app_name")]
    app_name: Option<String>,
    #[serde(alias = "user_id")]
    user_id: Option<String>,
    #[serde(alias = "session_id")]
    session_id: Option<String>,
    #[serde(alias = "new_message")]
    #[schema(value_type = Option<schemas::Content>)]
    new_message: Option<ClientMessage>,
    #[serde(alias = "invocation_id")]
    invocation_id: Option<String>,
    /// The id of the run, which makes the request idempotent. Can also be set by the header `Idempotency-Key`.
    #[serde(alias = "run_id")]
    run_id: Option<String>,
    pub(super) streaming: Option<bool>,
    #[serde(alias = "state_delta")]
    #[schema(value_type = Option<Object>)]
    state_delta: Option<JsonMap>,
    #[serde(alias = "cancel_on_disconnect")]
    cancel_on_disconnect: Option<bool>,
    /// Metadata for every event of the run, at most 16 KiB of JSON.
    #[serde(alias = "custom_metadata")]
    #[schema(value_type = Option<Object>)]
    custom_metadata: Option<JsonMap>,
    /// True if the response does not wait for the run (`/run` and `/ws` only).
    pub(super) background: Option<bool>,
}

impl RunBody {
    /// Returns the session; missing names are empty.
    pub(super) fn session(&self) -> SessionKey {
        let [app, user, id] = [&self.app_name, &self.user_id, &self.session_id].map(|name| name.as_deref());
        SessionKey::new(app.unwrap_or_default(), user.unwrap_or_default(), id.unwrap_or_default())
    }

    /// Sets whether the run is cancelled when the client disconnects, unless the client has set it.
    pub(super) fn with_default_cancel(mut self, cancels: bool) -> Self {
        self.cancel_on_disconnect.get_or_insert(cancels);
        self
    }
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A run, with a guard that cancels it when the client disconnects.
pub(super) struct StartedRun {
    pub(super) run: Run,
    pub(super) guard: Option<DropGuard>,
}

/// Starts a run. `cancel` cancels it.
pub(super) async fn start(
    state: &AppState,
    principal: &Principal,
    body: RunBody,
    streaming_mode: StreamingMode,
    trace_parent: Option<TraceParent>,
    cancel: &CancellationToken,
) -> Result<StartedRun, ApiError> {
    let app = permitted_app(state, principal, &body)?;
    let cancel_on_disconnect = body.cancel_on_disconnect.unwrap_or(state.config().cancel_on_disconnect());
    let request = RunRequest { trace_parent, ..request(body, streaming_mode, cancel.clone())? };
    let permit = state.acquire_run_permit()?;
    // Created first, so that a disconnect while the run is being stored cancels it too.
    let guard = cancel_on_disconnect.then(|| cancel.clone().drop_guard());
    let run = state.runner().run_inline(app, request, permit).await?;
    Ok(StartedRun { run, guard })
}

/// Returns the app of a run, if the client may use it.
fn permitted_app(state: &AppState, principal: &Principal, body: &RunBody) -> Result<Arc<App>, ApiError> {
    let name = require("appName", body.app_name.clone())?;
    principal.check_app(&name)?;
    // A user that is missing is an error of the request.
    body.user_id.as_deref().map_or(Ok(()), |user| principal.check_user(user))?;
    body.state_delta.as_ref().map_or(Ok(()), |state| principal.check_state(state))?;
    state.app(&name)
}

/// Converts the body to a request for the runner. Clients cannot set limits.
fn request(body: RunBody, streaming_mode: StreamingMode, cancel: CancellationToken) -> Result<RunRequest, ApiError> {
    let invocation_id = body.invocation_id.filter(|id| !id.trim().is_empty());
    if body.new_message.is_none() && invocation_id.is_none() {
        return Err(missing_field("newMessage"));
    }
    Ok(RunRequest {
        user: require("userId", body.user_id)?,
        session: require("sessionId", body.session_id)?,
        message: body.new_message.map(Content::try_from).transpose()?,
        invocation_id,
        run_id: body.run_id,
        state_delta: body.state_delta.unwrap_or_default(),
        config: RunConfig {
            streaming_mode,
            custom_metadata: body.custom_metadata.map(Arc::new),
            ..RunConfig::default()
        },
        origin: CallerOrigin::Http,
        input: None,
        trace_parent: None,
        cancel,
    })
}

/// Takes the run's id from the header `Idempotency-Key` if the body has none.
fn with_idempotency_key(body: RunBody, headers: &HeaderMap) -> Result<RunBody, ApiError> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY).filter(|_| body.run_id.is_none()) else { return Ok(body) };
    let key = key.to_str().map_err(|_| ApiError::bad_input("the header `Idempotency-Key` is not ASCII"))?;
    // A structured field is a string in quotation marks, which many clients leave out.
    Ok(RunBody { run_id: Some(key.trim().trim_matches('"').to_owned()), ..body })
}

/// Returns the span of the caller. An invalid header is ignored, as the W3C recommends.
pub(super) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    headers.get(TraceParent::HEADER)?.to_str().ok()?.parse().ok()
}

fn require(field: &'static str, value: Option<String>) -> Result<String, ApiError> {
    value.filter(|value| !value.trim().is_empty()).ok_or_else(|| missing_field(field))
}

fn missing_field(field: &str) -> ApiError {
    ApiError::bad_input(format!("`{field}` is missing or empty"))
}

const RUN_ID: HeaderName = HeaderName::from_static("x-hatchery-run");

/// Adds the id of the run, if it is already known.
fn with_run_id(run_id: Option<&str>, mut response: Response) -> Response {
    // A chosen id may have characters that no header has.
    if let Some(id) = run_id.and_then(|id| HeaderValue::from_str(id).ok()) {
        response.headers_mut().insert(RUN_ID, id);
    }
    response
}

/// Starts a background run.
pub(super) async fn begin_in_background(
    state: &AppState,
    principal: &Principal,
    body: RunBody,
    trace_parent: Option<TraceParent>,
) -> Result<StoredRun, ApiError> {
    let app = permitted_app(state, principal, &body)?;
    let request = request(body, StreamingMode::Off, CancellationToken::new())?;
    let _permit = state.acquire_run_permit()?;
    Ok(state.runner().run_in_background(app, RunRequest { trace_parent, ..request }).await?)
}

/// Starts a background run. Returns it with the path of its status.
async fn run_in_background(
    state: &AppState,
    principal: &Principal,
    body: RunBody,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let body = with_idempotency_key(body, headers)?;
    let run = begin_in_background(state, principal, body, trace_parent(headers)).await?;
    let id = run.id.clone();
    // A path has only ASCII characters.
    let path = HeaderValue::from_str(&state.config().path_of(&runs::path(&run))).map_err(|_| ApiError::internal())?;
    let response = (StatusCode::ACCEPTED, [(header::LOCATION, path)], axum::Json(RunView::from(run))).into_response();
    Ok(with_run_id(Some(&id), response))
}

/// Runs an agent and returns all events as an array. If the run fails, the error contains the events so far.
#[utoipa::path(
    post,
    path = "/run",
    tag = "runs",
    request_body = RunBody,
    responses(
        (status = 200, description = "The events of the run", body = [schemas::Event]),
        (status = 202, description = "The run was started in the background", body = RunView),
    )
)]
async fn run(
    State(state): State<AppState>,
    principal: Principal,
    headers: HeaderMap,
    Json(body): Json<RunBody>,
) -> Result<Response, ApiError> {
    if body.background == Some(true) {
        // Boxed, because it is the larger part of the future and rarely used.
        return run_in_background(&state, &principal, body, &headers).boxed().await;
    }
    let body = with_idempotency_key(body, &headers)?;
    let cancel = CancellationToken::new();
    let mut started = start(&state, &principal, body, StreamingMode::Off, trace_parent(&headers), &cancel).await?;
    let mut events = Vec::new();
    while let Some(item) = started.run.next().await {
        match item {
            Ok(event) => events.push(event),
            Err(error) => {
                let response = ApiError::from(error).with_events(events).into_response();
                return Ok(with_run_id(started.run.id(), response));
            }
        }
    }
    Ok(with_run_id(started.run.id(), json::events(&events)))
}

/// Runs an agent and streams its events as server-sent events. Each event is one `data:` line in one chunk.
#[utoipa::path(
    post,
    path = "/run_sse",
    tag = "runs",
    request_body = RunBody,
    responses((status = 200, description = "The events of the run", body = String, content_type = "text/event-stream"))
)]
async fn run_sse(
    State(state): State<AppState>,
    principal: Principal,
    headers: HeaderMap,
    Json(body): Json<RunBody>,
) -> Result<Response, ApiError> {
    let streaming_mode = if body.streaming == Some(true) { StreamingMode::On } else { StreamingMode::Off };
    let body = with_idempotency_key(body, &headers)?;
    let cancel = CancellationToken::new();
    let started = start(&state, &principal, body, streaming_mode, trace_parent(&headers), &cancel).await?;
    let run_id = started.run.id().map(str::to_owned);
    let frames = sse_frames(started, state.config().keep_alive);
    Ok(with_run_id(run_id.as_deref(), event_stream(Body::from_stream(frames))))
}

/// Returns the response for a stream of server-sent events.
pub(super) fn event_stream(frames: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, frames).into_response()
}

fn sse_frames(
    started: StartedRun,
    keep_alive: Duration,
) -> impl futures::Stream<Item = Result<Bytes, std::convert::Infallible>> {
    futures::stream::unfold(started, move |mut started| async move {
        let frame = match tokio::time::timeout(keep_alive, started.run.next()).await {
            Err(_) => Bytes::from_static(b": keep-alive\n\n"),
            Ok(Some(Ok(event))) => frame(event.json()),
            Ok(Some(Err(error))) => error_frame(&error),
            Ok(None) => {
                // The run has ended, so there is nothing to cancel.
                started.guard.take().map(DropGuard::disarm);
                return None;
            }
        };
        Some((Ok(frame), started))
    })
}

pub(super) fn error_frame(error: &RunError) -> Bytes {
    frame(json!({"error": error::detail(error), "code": error.code()}).to_string().as_bytes())
}

/// Returns one SSE message, without line breaks in its JSON, which would end the `data:` line.
pub(super) fn frame(json: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(json.len() + 8);
    frame.extend_from_slice(b"data: ");
    frame.extend(json.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    frame.extend_from_slice(b"\n\n");
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(body: serde_json::Value) -> Result<RunRequest, ApiError> {
        request(serde_json::from_value(body).unwrap(), StreamingMode::Off, CancellationToken::new())
    }

    #[test]
    fn the_header_idempotency_key_is_the_id_of_a_run_unless_the_body_has_one() {
        for (header, own, expected) in [("r-1", None, "r-1"), (" \"r-1\" ", None, "r-1"), ("r-1", Some("r-2"), "r-2")] {
            let body = serde_json::from_value(json!({"runId": own})).unwrap();
            let headers = HeaderMap::from_iter([(IDEMPOTENCY_KEY.parse().unwrap(), header.parse().unwrap())]);
            assert_eq!(with_idempotency_key(body, &headers).unwrap().run_id.as_deref(), Some(expected));
        }
        let body = || serde_json::from_value(json!({})).unwrap();
        assert_eq!(with_idempotency_key(body(), &HeaderMap::new()).unwrap().run_id, None);
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static(IDEMPOTENCY_KEY),
            HeaderValue::from_bytes(b"\xff").unwrap(),
        )]);
        let error = with_idempotency_key(body(), &headers).err().unwrap();
        assert_eq!((error.status.as_u16(), &*error.detail), (400, "the header `Idempotency-Key` is not ASCII"));
    }

    #[test]
    fn an_interrupted_run_is_resumed_with_or_without_a_message() {
        for key in ["invocationId", "invocation_id"] {
            let request = requested(json!({"userId": "u", "sessionId": "s", key: "e-1"})).unwrap();
            assert_eq!((request.invocation_id.as_deref(), request.message), (Some("e-1"), None));
        }
        let message = json!({"parts": [{"functionResponse": {"id": "c1", "name": "order", "response": {"ok": true}}}]});
        let body = json!({"userId": "u", "sessionId": "s", "invocationId": "e-1", "newMessage": message});
        let request = requested(body).unwrap();
        assert_eq!(request.invocation_id.as_deref(), Some("e-1"));
        let message = request.message.unwrap();
        let answer = message.function_responses().next().unwrap();
        assert_eq!((answer.id.as_deref(), &answer.response["ok"]), (Some("c1"), &json!(true)));
    }

    #[test]
    fn a_new_run_needs_a_message() {
        for id in [json!(null), json!(""), json!(" ")] {
            let error = requested(json!({"userId": "u", "sessionId": "s", "invocationId": id})).unwrap_err();
            assert_eq!((error.status.as_u16(), &*error.detail), (400, "`newMessage` is missing or empty"));
        }
    }

    #[test]
    fn a_client_cannot_set_limits() {
        let limits = json!({"maxLlmCalls": 1, "maxTokens": 1});
        let mut body = json!({"userId": "u", "sessionId": "s", "newMessage": {"parts": [{"text": "hi"}]}});
        body["runConfig"] = limits.clone();
        body.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        assert_eq!(requested(body).unwrap().config, RunConfig::default());
    }

    #[test]
    fn a_frame_is_one_data_line() {
        assert_eq!(frame(b"{\"a\":\"b\\n\"}"), "data: {\"a\":\"b\\n\"}\n\n");
        assert_eq!(frame(b"{\n  \"a\": 1\r\n}"), "data: {   \"a\": 1  }\n\n");
    }
}
