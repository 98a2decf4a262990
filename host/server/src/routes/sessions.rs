//! Sessions: create, import, list, read, change and delete.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use hatchery_core::content::JsonMap;
use hatchery_core::event::USER;
use hatchery_core::session::EventWindow;
use hatchery_core::{Event, EventActions, EventData, Session, SessionKey, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use crate::error::ApiError;
use crate::extract::{Json, Params, QueryParams, RawJson};
use crate::json;
use crate::state::AppState;

/// Sessions of evaluations start so; they are not listed.
const EVALUATION_IDS: [&str; 3] = ["adk-eval-session-", "___eval___session___", "ADK_EVAL_"];

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/apps/{app}/users/{user}/sessions", get(list).post(create)).route(
        "/apps/{app}/users/{user}/sessions/{session}",
        get(read).post(create_with_id).patch(change).delete(delete),
    )
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CreateBody {
    state: Option<JsonMap>,
    #[serde(alias = "session_id")]
    session_id: Option<String>,
    events: Option<Vec<EventData>>,
}

async fn create(
    State(state): State<AppState>,
    Params((app, user)): Params<(String, String)>,
    body: RawJson,
) -> Result<Response, ApiError> {
    let body = if body.is_empty() { CreateBody::default() } else { body.parse()? };
    let events = body.events.unwrap_or_default();
    if let Some(index) = events.iter().position(|event| event.partial) {
        return Err(ApiError::bad_input(format!("events[{index}] is partial; only whole events can be imported")));
    }
    state.app(&app)?;
    let sessions = &state.services().sessions;
    let session = sessions.create(&app, &user, body.session_id.as_deref(), body.state.unwrap_or_default()).await?;
    if events.is_empty() {
        return json::session(&session);
    }
    if let Err(error) = import(&state, &session.key, events).await {
        sessions.delete(&session.key).await?;
        return Err(error);
    }
    json::session(&state.session(&session.key, EventWindow::All).await?)
}

async fn import(state: &AppState, key: &SessionKey, events: Vec<EventData>) -> Result<(), ApiError> {
    for event in events {
        state.services().sessions.append(key, &Event::new(event)).await?;
    }
    Ok(())
}

/// The body is `{"state": {…}}` or, as some clients send it, the state itself.
async fn create_with_id(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
    body: RawJson,
) -> Result<Response, ApiError> {
    let mut given: JsonMap = if body.is_empty() { JsonMap::new() } else { body.parse()? };
    if given.len() == 1 {
        match given.get_mut("state") {
            Some(Value::Object(inner)) => given = std::mem::take(inner),
            Some(Value::Null) => given.clear(),
            _ => {}
        }
    }
    state.app(&app)?;
    json::session(&state.services().sessions.create(&app, &user, Some(&id), given).await?)
}

async fn list(
    State(state): State<AppState>,
    Params((app, user)): Params<(String, String)>,
) -> Result<Response, ApiError> {
    state.app(&app)?;
    let sessions = state.services().sessions.list(&app, &user).await?;
    let is_evaluation = |session: &Session| EVALUATION_IDS.iter().any(|prefix| session.key.id.starts_with(prefix));
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
        (None, Some(most)) => EventWindow::Recent(most),
        (None, None) => EventWindow::All,
    };
    let mut session = state.session(&SessionKey::new(app, user, id), window).await?;
    if let Some(most) = query.num_recent_events {
        session.events = session.events.skip(session.events.len().saturating_sub(most));
    }
    json::session(&session)
}

#[derive(Deserialize)]
struct ChangeBody {
    #[serde(rename = "stateDelta", alias = "state_delta")]
    state_delta: JsonMap,
}

/// Changes the state by an event of the user's.
async fn change(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
    Json(body): Json<ChangeBody>,
) -> Result<Response, ApiError> {
    state.app(&app)?;
    let key = SessionKey::new(app, user, id);
    let event = Event::new(EventData {
        author: USER.into(),
        invocation_id: format!("p-{}", uuid::Uuid::new_v4()),
        actions: EventActions { state_delta: body.state_delta, ..EventActions::default() },
        ..EventData::default()
    });
    state.services().sessions.append(&key, &event).await?;
    json::session(&state.session(&key, EventWindow::All).await?)
}

async fn delete(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
) -> Result<StatusCode, ApiError> {
    state.app(&app)?;
    state.services().sessions.delete(&SessionKey::new(app, user, id)).await?;
    Ok(StatusCode::NO_CONTENT)
}
