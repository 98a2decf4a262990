//! Sessions: create, list, read, update and delete. `history` has imports, forks and rewinds.

mod history;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use hatchery_core::{
    Event, EventActions, EventData, EventWindow, JsonMap, Session, SessionImport, SessionKey, Timestamp, USER_AUTHOR,
};
use serde::Deserialize;
use serde_json::Value;

use crate::body::LargeBody;
use crate::error::ApiError;
use crate::extract::{Json, Params, QueryParams, RawJson};
use crate::json;
use crate::state::AppState;

/// Prefixes of the ids of evaluation sessions, which are not listed.
const EVALUATION_PREFIXES: [&str; 3] = ["adk-eval-session-", "___eval___session___", "ADK_EVAL_"];

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/apps/{app}/users/{user}/sessions", get(list).post(create).layer(Extension(LargeBody)))
        .route(
            "/apps/{app}/users/{user}/sessions/{session}",
            get(read).post(create_with_id).patch(update).delete(delete),
        )
        .route("/apps/{app}/users/{user}/sessions/{session}/close", post(close))
        .merge(history::routes())
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CreateBody {
    state: Option<JsonMap>,
    #[serde(alias = "session_id")]
    session_id: Option<String>,
    events: Option<Vec<EventData>>,
    /// Whether imported events and their state may set `app:` and `user:` keys, which other sessions share.
    #[serde(alias = "overwrite_shared_state")]
    overwrite_shared_state: bool,
}

async fn create(
    State(state): State<AppState>,
    Params((app, user)): Params<(String, String)>,
    body: RawJson,
) -> Result<Response, ApiError> {
    let body = if body.is_empty() { CreateBody::default() } else { body.parse()? };
    let events = body.events.unwrap_or_default();
    let initial_state = body.state.unwrap_or_default();
    state.app(&app)?;
    if events.is_empty() {
        let sessions = &state.services().sessions;
        return json::session(&sessions.create(&app, &user, body.session_id.as_deref(), initial_state).await?);
    }
    let import = SessionImport::new(initial_state, events)?;
    history::store(&state, (&app, &user), body.session_id.as_deref(), import, body.overwrite_shared_state).await
}

/// Appends an event of a client. Rejects events that could not be read again.
async fn append(state: &AppState, key: &SessionKey, event: EventData) -> Result<(), ApiError> {
    let event = Event::new(event);
    event.check_storable().map_err(|error| {
        let detail = format!("an event cannot be stored: {error}");
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID_EVENT", detail)
    })?;
    state.services().sessions.append(key, &event).await?;
    Ok(())
}

/// The body is `{"state": {…}}` or, as some clients send it, the state itself.
async fn create_with_id(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
    body: RawJson,
) -> Result<Response, ApiError> {
    let mut initial: JsonMap = if body.is_empty() { JsonMap::new() } else { body.parse()? };
    if initial.len() == 1 {
        match initial.get_mut("state") {
            Some(Value::Object(inner)) => initial = std::mem::take(inner),
            Some(Value::Null) => initial.clear(),
            _ => {}
        }
    }
    state.app(&app)?;
    json::session(&state.services().sessions.create(&app, &user, Some(&id), initial).await?)
}

async fn list(
    State(state): State<AppState>,
    Params((app, user)): Params<(String, String)>,
) -> Result<Response, ApiError> {
    state.app(&app)?;
    let sessions = state.services().sessions.list(&app, &user).await?;
    let is_evaluation = |session: &Session| EVALUATION_PREFIXES.iter().any(|prefix| session.key.id.starts_with(prefix));
    json::sessions(sessions.iter().filter(|session| !is_evaluation(session)))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadQuery {
    #[serde(alias = "num_recent_events")]
    num_recent_events: Option<usize>,
    #[serde(alias = "after_timestamp")]
    after_timestamp: Option<Timestamp>,
}

async fn read(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
    QueryParams(query): QueryParams<ReadQuery>,
) -> Result<Response, ApiError> {
    let window = match (query.after_timestamp, query.num_recent_events) {
        (Some(time), Some(count)) => EventWindow::RecentSince { count, time },
        (Some(time), None) => EventWindow::Since(time),
        (None, Some(count)) => EventWindow::Recent(count),
        (None, None) => EventWindow::All,
    };
    json::session(&state.session(&SessionKey::new(app, user, id), window).await?)
}

#[derive(Deserialize)]
struct UpdateBody {
    #[serde(rename = "stateDelta", alias = "state_delta")]
    state_delta: JsonMap,
}

/// Updates the state by appending an event of the user.
async fn update(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
    Json(body): Json<UpdateBody>,
) -> Result<Response, ApiError> {
    state.app(&app)?;
    let key = SessionKey::new(app, user, id);
    let event = EventData {
        author: USER_AUTHOR.into(),
        invocation_id: format!("p-{}", uuid::Uuid::new_v4()),
        actions: EventActions { state_delta: body.state_delta, ..EventActions::default() },
        ..EventData::default()
    };
    append(&state, &key, event).await?;
    json::session(&state.session(&key, EventWindow::All).await?)
}

/// Ends a client's use of a session. Its data stays.
async fn close(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
) -> Result<StatusCode, ApiError> {
    let app = state.app(&app)?;
    state.runner().close_session(&app, &user, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn delete(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
) -> Result<StatusCode, ApiError> {
    state.app(&app)?;
    let key = SessionKey::new(app, user, id);
    state.services().sessions.delete(&key).await?;
    state.runner().delete_artifacts(&key).await?;
    Ok(StatusCode::NO_CONTENT)
}
