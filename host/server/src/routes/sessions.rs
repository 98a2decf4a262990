//! Sessions: create, import, list, read, update and delete.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use hatchery_core::{
    Event, EventActions, EventData, EventWindow, JsonMap, Session, SessionKey, StateScope, Timestamp, USER_AUTHOR,
    remove_proof,
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
    let mut events = body.events.unwrap_or_default();
    let mut initial_state = body.state.unwrap_or_default();
    if !events.is_empty() && !body.overwrite_shared_state {
        let deltas = events.iter_mut().map(|event| &mut event.actions.state_delta);
        deltas.chain([&mut initial_state]).for_each(remove_shared_keys);
    }
    if let Some(index) = events.iter().position(|event| event.partial) {
        return Err(ApiError::bad_input(format!("events[{index}] is partial; only complete events can be imported")));
    }
    state.app(&app)?;
    if !events.is_empty() {
        check_import(&state, &app, &user, body.session_id.as_deref().unwrap_or_default(), events.len())?;
    }
    let sessions = &state.services().sessions;
    let session = sessions.create(&app, &user, body.session_id.as_deref(), initial_state).await?;
    if events.is_empty() {
        return json::session(&session);
    }
    if let Err(error) = import(&state, &session.key, events).await {
        sessions.delete(&session.key).await?;
        return Err(error);
    }
    json::session(&state.session(&session.key, EventWindow::All).await?)
}

/// Removes the keys that other sessions share.
fn remove_shared_keys(state: &mut JsonMap) {
    state.retain(|key, _| !matches!(StateScope::of(key).0, StateScope::App | StateScope::User));
}

/// Checks that the operator allows imports: imported events can claim anything about agents, tools and users.
fn check_import(state: &AppState, app: &str, user: &str, session: &str, count: usize) -> Result<(), ApiError> {
    let detail = format!("{count} events");
    if state.config().allow_import {
        tracing::info!(target: "hatchery::audit", app, user, session, decision = "allowed", detail, "import");
        return Ok(());
    }
    tracing::warn!(target: "hatchery::audit", app, user, session, decision = "refused", detail, "import");
    let error = ApiError::new(StatusCode::FORBIDDEN, "IMPORT_NOT_ALLOWED", "sessions cannot be created with events");
    Err(error.advise("to let clients import sessions, set `server: { allow_import: true }` in hatchery.yaml"))
}

async fn import(state: &AppState, key: &SessionKey, events: Vec<EventData>) -> Result<(), ApiError> {
    // Sessions and summaries depend on the order of times.
    let now = Timestamp::now();
    for mut event in events {
        remove_proof(&mut event);
        event.timestamp = event.timestamp.min(now);
        if let Some(compaction) = &mut event.actions.compaction {
            compaction.start_timestamp = compaction.start_timestamp.min(now);
            compaction.end_timestamp = compaction.end_timestamp.min(now);
        }
        append(state, key, event).await?;
    }
    Ok(())
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
        (Some(time), _) => EventWindow::Since(time),
        (None, Some(count)) => EventWindow::Recent(count),
        (None, None) => EventWindow::All,
    };
    let mut session = state.session(&SessionKey::new(app, user, id), window).await?;
    if let Some(count) = query.num_recent_events {
        session.events = session.events.skip(session.events.len().saturating_sub(count));
    }
    json::session(&session)
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
    // They would be unreachable, and count towards the quota of the user.
    state.services().artifacts.delete_all(&key).await?;
    Ok(StatusCode::NO_CONTENT)
}
