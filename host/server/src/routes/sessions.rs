//! Sessions: create, list, read, update and delete. `history` has imports, forks and rewinds.

mod history;
mod pages;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use hatchery_core::{
    Event, EventActions, EventData, EventWindow, JsonMap, RunError, Session, SessionImport, SessionKey, SessionPage,
    Timestamp, USER_AUTHOR,
};
use hatchery_engine::tasks::run_to_completion;
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::UtoipaMethodRouterExt;
use utoipa_axum::routes;

use crate::api_document::{ApiRouter, schemas};
use crate::auth::Principal;
use crate::body::LargeBody;
use crate::error::ApiError;
use crate::extract::{Json, Params, QueryParams, RawJson};
use crate::json;
use crate::state::AppState;

/// Prefixes of the ids of evaluation sessions, which are hidden from lists.
const EVALUATION_PREFIXES: [&str; 3] = ["adk-eval-session-", "___eval___session___", "ADK_EVAL_"];

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new()
        .routes(routes!(list, create).layer(Extension(LargeBody)))
        .routes(routes!(read, create_with_id, update, delete))
        .routes(routes!(close))
        .merge(history::routes())
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
struct CreateBody {
    /// The initial state.
    #[schema(value_type = Option<Object>)]
    state: Option<JsonMap>,
    /// The id of the session. Default: a new UUID.
    #[serde(alias = "session_id")]
    session_id: Option<String>,
    /// Events to import.
    #[schema(value_type = Option<Vec<schemas::Event>>)]
    events: Option<Vec<EventData>>,
    /// Whether imported events may set `app:` and `user:` keys, which are shared with other sessions.
    #[serde(alias = "overwrite_shared_state")]
    overwrite_shared_state: bool,
}

/// Creates a session, optionally with the `events` of an export.
#[utoipa::path(
    post,
    path = "/apps/{app}/users/{user}/sessions",
    tag = "sessions",
    request_body = Option<CreateBody>,
    responses((status = 200, description = "The session", body = schemas::Session))
)]
async fn create(
    State(state): State<AppState>,
    principal: Principal,
    Params((app, user)): Params<(String, String)>,
    body: RawJson,
) -> Result<Response, ApiError> {
    let body: CreateBody = body.parse_or_default()?;
    let events = body.events.unwrap_or_default();
    let initial_state = body.state.unwrap_or_default();
    principal.check_state(&initial_state)?;
    state.app(&app)?;
    if events.is_empty() {
        let sessions = &state.services().sessions;
        return json::session(&sessions.create(&app, &user, body.session_id.as_deref(), initial_state).await?);
    }
    let import = SessionImport::new(initial_state, events)?;
    let (id, overwrites) = (body.session_id.as_deref(), body.overwrite_shared_state);
    history::store(&state, &principal, &app, &user, id, import, overwrites).await
}

/// Appends an event of a client. Rejects events that the store could not return unchanged.
async fn append(state: &AppState, key: &SessionKey, event: EventData) -> Result<(), ApiError> {
    let event = Event::new(event);
    event.check_storable().map_err(|error| {
        let detail = format!("an event cannot be stored: {error}");
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID_EVENT", detail)
    })?;
    state.services().sessions.append(key, &event).await?;
    Ok(())
}

/// Creates a session with this id.
///
/// The body is `{"state": {…}}`, or the state itself, as some clients send it.
#[utoipa::path(
    post,
    path = "/apps/{app}/users/{user}/sessions/{session}",
    tag = "sessions",
    request_body = Option<Object>,
    responses((status = 200, description = "The session", body = schemas::Session))
)]
async fn create_with_id(
    State(state): State<AppState>,
    principal: Principal,
    Params((app, user, id)): Params<(String, String, String)>,
    body: RawJson,
) -> Result<Response, ApiError> {
    let mut initial: JsonMap = body.parse_or_default()?;
    if initial.len() == 1 {
        match initial.get_mut("state") {
            Some(Value::Object(inner)) => initial = std::mem::take(inner),
            Some(Value::Null) => initial.clear(),
            _ => {}
        }
    }
    principal.check_state(&initial)?;
    state.app(&app)?;
    json::session(&state.services().sessions.create(&app, &user, Some(&id), initial).await?)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
struct ListQuery {
    /// Maximum number of sessions, from 1 to 1000; the header `Link` has the URL of the next page. Default: all.
    limit: Option<usize>,
    /// The token in the link of the previous page.
    #[serde(alias = "page_token")]
    page_token: Option<String>,
}

/// Returns the sessions of a user, without their events. A page may have fewer sessions than its limit.
#[utoipa::path(
    get,
    path = "/apps/{app}/users/{user}/sessions",
    tag = "sessions",
    params(ListQuery),
    responses((status = 200, description = "The sessions", body = [schemas::Session]))
)]
async fn list(
    State(state): State<AppState>,
    Params((app, user)): Params<(String, String)>,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Response, ApiError> {
    state.app(&app)?;
    let sessions = &state.services().sessions;
    let after = query.page_token.as_deref().map(pages::parse_token).transpose()?;
    let page = match (query.limit, &after) {
        (None, None) => SessionPage { sessions: sessions.list(&app, &user).await?, next: None },
        (limit, after) => sessions.list_page(&app, &user, after.as_ref(), pages::limit(limit)?).await?,
    };
    let is_evaluation = |session: &Session| EVALUATION_PREFIXES.iter().any(|prefix| session.key.id.starts_with(prefix));
    let response = json::sessions(page.sessions.iter().filter(|session| !is_evaluation(session)))?;
    match page.next {
        Some(next) => pages::link(response, query.limit, &format!("pageToken={}", pages::token(&next))),
        None => Ok(response),
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
struct ReadQuery {
    /// Maximum number of events; the newest are returned.
    #[serde(alias = "num_recent_events")]
    num_recent_events: Option<usize>,
    /// Seconds since 1970; older events are left out.
    #[serde(alias = "after_timestamp")]
    #[param(value_type = Option<f64>)]
    after_timestamp: Option<Timestamp>,
    /// Number of events to skip, oldest first; 0 for the first page.
    after: Option<u64>,
    /// Maximum number of events of a page, from 1 to 1000; the header `Link` has the URL of the next page. Default:
    /// 1000.
    limit: Option<usize>,
}

impl ReadQuery {
    /// Returns the offset and the size of a page; `None` without the parameters of a page.
    fn page(&self) -> Result<Option<(u64, usize)>, ApiError> {
        if self.after.is_none() && self.limit.is_none() {
            return Ok(None);
        }
        if self.num_recent_events.is_some() || self.after_timestamp.is_some() {
            let detail = "`after` and `limit` cannot be combined with `numRecentEvents` and `afterTimestamp`";
            return Err(ApiError::bad_input(detail));
        }
        Ok(Some((self.after.unwrap_or_default(), pages::limit(self.limit)?)))
    }
}

/// Returns a session with its events.
#[utoipa::path(
    get,
    path = "/apps/{app}/users/{user}/sessions/{session}",
    tag = "sessions",
    params(ReadQuery),
    responses((status = 200, description = "The session", body = schemas::Session))
)]
async fn read(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
    QueryParams(query): QueryParams<ReadQuery>,
) -> Result<Response, ApiError> {
    let key = SessionKey::new(app, user, id);
    if let Some((after, limit)) = query.page()? {
        let session = state.session(&key, EventWindow::Page { after, limit }).await?;
        let response = json::session(&session)?;
        let end = after.saturating_add(session.events.len() as u64);
        return if session.events.len() == limit && end < session.revision {
            pages::link(response, query.limit, &format!("after={end}"))
        } else {
            Ok(response)
        };
    }
    let window = match (query.after_timestamp, query.num_recent_events) {
        (Some(time), Some(count)) => EventWindow::RecentSince { count, time },
        (Some(time), None) => EventWindow::Since(time),
        (None, Some(count)) => EventWindow::Recent(count),
        (None, None) => EventWindow::All,
    };
    json::session(&state.session(&key, window).await?)
}

#[derive(Deserialize, ToSchema)]
struct UpdateBody {
    #[serde(rename = "stateDelta", alias = "state_delta")]
    #[schema(value_type = Object)]
    state_delta: JsonMap,
}

/// Updates the state. The change is appended as an event of the user.
#[utoipa::path(
    patch,
    path = "/apps/{app}/users/{user}/sessions/{session}",
    tag = "sessions",
    request_body = UpdateBody,
    responses((status = 200, description = "The session", body = schemas::Session))
)]
async fn update(
    State(state): State<AppState>,
    principal: Principal,
    Params((app, user, id)): Params<(String, String, String)>,
    Json(body): Json<UpdateBody>,
) -> Result<Response, ApiError> {
    principal.check_state(&body.state_delta)?;
    state.app(&app)?;
    let key = SessionKey::new(app, user, id);
    let mut actions = EventActions { state_delta: body.state_delta, ..EventActions::default() };
    actions.remove_temp_state();
    let event = EventData {
        author: USER_AUTHOR.into(),
        invocation_id: format!("p-{}", uuid::Uuid::new_v4()),
        actions,
        ..EventData::default()
    };
    append(&state, &key, event).await?;
    json::session(&state.session(&key, EventWindow::All).await?)
}

/// Closes a session. Its data is not deleted.
#[utoipa::path(
    post,
    path = "/apps/{app}/users/{user}/sessions/{session}/close",
    tag = "sessions",
    responses((status = 204, description = "The session is closed"))
)]
async fn close(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
) -> Result<StatusCode, ApiError> {
    let app = state.app(&app)?;
    state.runner().close_session(&app, &user, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a session and, unless `retention.keep_artifacts` is set, its artifacts.
#[utoipa::path(
    delete,
    path = "/apps/{app}/users/{user}/sessions/{session}",
    tag = "sessions",
    responses((status = 204, description = "The session is deleted"))
)]
async fn delete(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
) -> Result<StatusCode, ApiError> {
    state.app(&app)?;
    let key = SessionKey::new(app, user, id);
    // Completed even if the client disconnects, so that no artifacts are left.
    run_to_completion(async move { delete_with_artifacts(&state, &key).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn delete_with_artifacts(state: &AppState, key: &SessionKey) -> Result<(), RunError> {
    let sessions = &state.services().sessions;
    let is_there = sessions.get(key, EventWindow::Recent(0)).await?.is_some();
    sessions.delete(key).await?;
    if is_there {
        let SessionKey { app, user, id } = key;
        tracing::info!(target: "hatchery::audit", %app, %user, session = %id, decision = "deleted", "deletion");
    }
    if !state.runner().keeps_artifacts() {
        // They would count towards the quota of the user.
        state.services().artifacts.delete_all(key).await?;
    }
    Ok(())
}
