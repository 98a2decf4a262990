//! The runs of a session: list, read, follow and cancel.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::stream::BoxStream;
use hatchery_core::{EventWindow, RunError, RunFailure, RunService, SessionKey, StoredRun, Timestamp, encode_segment};
use hatchery_engine::RunUpdate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::run::{error_frame, event_stream, frame};
use crate::api_document::{ApiRouter, schemas};
use crate::error::ApiError;
use crate::extract::{Params, QueryParams, check_user_is_not_host};
use crate::state::AppState;

const DEFAULT_PAGE_SIZE: usize = 50;
const MAX_PAGE_SIZE: usize = 1000;

/// The state of a run that is stored as running or accepted, and that no host has any more.
const INTERRUPTED: &str = "interrupted";

const LAST_EVENT_ID: &str = "last-event-id";

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(list)).routes(routes!(read)).routes(routes!(follow)).routes(routes!(cancel))
}

/// The status of a run.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunView {
    id: String,
    app_name: String,
    user_id: String,
    session_id: String,
    #[schema(value_type = schemas::RunState)]
    state: &'static str,
    #[schema(value_type = Option<schemas::Failure>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RunFailure>,
    background: bool,
    cancel_requested: bool,
    attempts: u32,
    /// Seconds since 1970.
    #[schema(value_type = f64)]
    accepted: Timestamp,
    /// Seconds since 1970.
    #[schema(value_type = f64)]
    updated: Timestamp,
}

impl From<StoredRun> for RunView {
    fn from(run: StoredRun) -> Self {
        Self {
            id: run.id,
            app_name: run.session.app.to_string(),
            user_id: run.session.user.to_string(),
            session_id: run.session.id.to_string(),
            state: run.state.name(),
            error: run.failure,
            background: run.is_background,
            cancel_requested: run.is_cancel_requested,
            attempts: run.attempts,
            accepted: run.accepted,
            updated: run.updated,
        }
    }
}

impl RunView {
    /// Returns the view of a run. `interrupted` are the ids of the runs that no host has in progress.
    fn new(run: StoredRun, interrupted: &HashSet<String>) -> Self {
        let is_interrupted = interrupted.contains(&run.id);
        let view = Self::from(run);
        if is_interrupted { Self { state: INTERRUPTED, ..view } } else { view }
    }
}

/// Returns the path of a run, without the base path.
pub(super) fn path(run: &StoredRun) -> String {
    let SessionKey { app, user, id } = &run.session;
    let [app, user, id, run] = [&**app, &**user, &**id, &*run.id].map(encode_segment);
    format!("/apps/{app}/users/{user}/sessions/{id}/runs/{run}")
}

fn service(state: &AppState) -> Result<&dyn RunService, ApiError> {
    state.services().sessions.runs().ok_or_else(|| {
        let detail = "the session service of this host stores no runs";
        ApiError::new(StatusCode::NOT_IMPLEMENTED, "RUNS_NOT_STORED", detail)
    })
}

fn not_found(run: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "RUN_NOT_FOUND", format!("Run not found: {run}"))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
struct ListQuery {
    /// Maximum number of runs, from 1 to 1000. Default: 50.
    limit: Option<usize>,
    /// `nextPageToken` of the previous page.
    #[serde(alias = "page_token")]
    page_token: Option<u64>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ListView {
    runs: Vec<RunView>,
    /// `pageToken` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<u64>,
}

/// Returns the runs of a session, newest first.
#[utoipa::path(
    get,
    path = "/apps/{app}/users/{user}/sessions/{session}/runs",
    tag = "runs",
    params(ListQuery),
    responses((status = 200, description = "The runs", body = ListView))
)]
async fn list(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Json<ListView>, ApiError> {
    let limit = query.limit.unwrap_or(DEFAULT_PAGE_SIZE);
    if !(1..=MAX_PAGE_SIZE).contains(&limit) {
        return Err(ApiError::bad_input(format!("`limit` is a number from 1 to {MAX_PAGE_SIZE}")));
    }
    let key = SessionKey::new(app, user, id);
    state.session(&key, EventWindow::Recent(0)).await?;
    let page = service(&state)?.list(&key, query.page_token, limit).await?;
    let interrupted = state.runner().find_interrupted(&key, &page.runs).await?;
    let runs = page.runs.into_iter().map(|run| RunView::new(run, &interrupted)).collect();
    Ok(Json(ListView { runs, next_page_token: page.next }))
}

type RunParams = Params<(String, String, String, String)>;

/// Returns a run.
#[utoipa::path(
    get,
    path = "/apps/{app}/users/{user}/sessions/{session}/runs/{run}",
    tag = "runs",
    responses((status = 200, description = "The run", body = RunView))
)]
async fn read(
    State(state): State<AppState>,
    Params((app, user, id, run)): RunParams,
) -> Result<Json<RunView>, ApiError> {
    let key = SessionKey::new(app, user, id);
    state.session(&key, EventWindow::Recent(0)).await?;
    let stored = service(&state)?.get(&key, &run).await?.ok_or_else(|| not_found(&run))?;
    let interrupted = state.runner().find_interrupted(&key, std::slice::from_ref(&stored)).await?;
    Ok(Json(RunView::new(stored, &interrupted)))
}

/// Cancels a run and returns it: 200 if it has ended, 202 if its host has not reacted yet.
#[utoipa::path(
    post,
    path = "/apps/{app}/users/{user}/sessions/{session}/runs/{run}/cancel",
    tag = "runs",
    responses(
        (status = 200, description = "The run has ended", body = RunView),
        (status = 202, description = "The cancellation was requested", body = RunView),
    )
)]
async fn cancel(State(state): State<AppState>, Params((app, user, id, run)): RunParams) -> Result<Response, ApiError> {
    let key = SessionKey::new(app, user, id);
    state.session(&key, EventWindow::Recent(0)).await?;
    service(&state)?;
    let stored = state.runner().cancel_run(&key, &run).await?.ok_or_else(|| not_found(&run))?;
    let status = if stored.state.has_ended() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(RunView::from(stored))).into_response())
}

/// Returns the header `Last-Event-ID`.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let id = headers.get(LAST_EVENT_ID).map(|id| {
        let id = id.to_str().ok().and_then(|id| id.trim().parse().ok());
        id.ok_or_else(|| ApiError::bad_input("the header `Last-Event-ID` is not the id of an event of this stream"))
    });
    id.transpose()
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FollowQuery {
    /// The session revision after which to start.
    after: Option<u64>,
}

/// Streams the events of a run as server-sent events: first the stored ones, then new ones. The id of an event is the
/// session revision that it created; partial events have none. The stream ends with an event `end` when the run has
/// ended or waits; without it when the server stops.
#[utoipa::path(
    get,
    path = "/apps/{app}/users/{user}/sessions/{session}/runs/{run}/events",
    tag = "runs",
    params(FollowQuery),
    responses((status = 200, description = "The events", body = String, content_type = "text/event-stream"))
)]
async fn follow(
    State(state): State<AppState>,
    Params((app, user, id, run)): RunParams,
    QueryParams(query): QueryParams<FollowQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = last_event_id(&headers)?.or(query.after).unwrap_or_default();
    let updates = updates(&state, &SessionKey::new(app, user, id), &run, after).await?;
    // Ends with this host, as the run may belong to another one and continue.
    let updates = updates.take_until(state.stop().clone().cancelled_owned()).boxed();
    Ok(stream(updates, state.config().keep_alive))
}

/// Returns the events of a run after a session revision: the stored ones, then new ones.
///
/// # Errors
/// 404 if there is no such run, or if it belongs to the host itself.
pub(super) async fn updates(
    state: &AppState,
    session: &SessionKey,
    run: &str,
    after: u64,
) -> Result<BoxStream<'static, Result<RunUpdate, RunError>>, ApiError> {
    check_user_is_not_host(&session.user)?;
    state.session(session, EventWindow::Recent(0)).await?;
    service(state)?;
    state.runner().follow(session, run, after).await?.ok_or_else(|| not_found(run))
}

fn stream(updates: BoxStream<'static, Result<RunUpdate, RunError>>, keep_alive: Duration) -> Response {
    let frames = futures::stream::unfold(updates, move |mut updates| async move {
        let frame = match tokio::time::timeout(keep_alive, updates.next()).await {
            Err(_) => Bytes::from_static(b": keep-alive\n\n"),
            Ok(Some(Ok(update))) => update_frame(update),
            Ok(Some(Err(error))) => error_frame(&error),
            Ok(None) => return None,
        };
        Some((Ok::<_, Infallible>(frame), updates))
    });
    event_stream(Body::from_stream(frames))
}

fn update_frame(update: RunUpdate) -> Bytes {
    match update {
        RunUpdate::Event { revision: None, event } => frame(event.json()),
        RunUpdate::Event { revision: Some(revision), event } => add_prefix(&format!("id: {revision}\n"), event.json()),
        // Numbers and texts can always be written.
        RunUpdate::End(run) => {
            add_prefix("event: end\n", &serde_json::to_vec(&RunView::from(*run)).unwrap_or_default())
        }
    }
}

fn add_prefix(prefix: &str, json: &[u8]) -> Bytes {
    [prefix.as_bytes(), &frame(json)].concat().into()
}
