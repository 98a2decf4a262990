//! Imports, forks and rewinds of sessions.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use hatchery_core::{
    EventData, EventWindow, ImportError, JsonMap, RunError, SessionImport, SessionKey, SessionPoint, pluralize,
};
use hatchery_engine::tasks::run_to_completion;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::UtoipaMethodRouterExt;
use utoipa_axum::routes;

use crate::api_document::{ApiRouter, schemas};
use crate::auth::Principal;
use crate::body::LargeBody;
use crate::error::ApiError;
use crate::extract::{Json, Params, RawJson};
use crate::json;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(import).layer(Extension(LargeBody))).routes(routes!(fork)).routes(routes!(rewind))
}

/// An exported session, as `GET` returns it. The ids in it belong to the exported session.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ImportBody {
    #[schema(value_type = Option<Object>)]
    #[serde(default)]
    state: JsonMap,
    #[schema(value_type = Option<Vec<schemas::Event>>)]
    #[serde(default)]
    events: Vec<EventData>,
    /// Whether imported events may set `app:` and `user:` keys, which are shared with other sessions.
    #[serde(default, alias = "overwrite_shared_state")]
    overwrite_shared_state: bool,
}

/// Imports an exported session as a new session.
#[utoipa::path(
    post,
    path = "/apps/{app}/users/{user}/sessions/{session}/import",
    tag = "sessions",
    request_body = ImportBody,
    responses((status = 200, description = "The session", body = schemas::Session))
)]
async fn import(
    State(state): State<AppState>,
    principal: Principal,
    Params((app, user, id)): Params<(String, String, String)>,
    Json(body): Json<ImportBody>,
) -> Result<Response, ApiError> {
    state.app(&app)?;
    let import = SessionImport::ending_with(body.state, body.events)?;
    store(&state, &principal, &app, &user, Some(&id), import, body.overwrite_shared_state).await
}

/// Stores a new session with the events of a client.
pub(super) async fn store(
    state: &AppState,
    principal: &Principal,
    app: &str,
    user: &str,
    id: Option<&str>,
    import: SessionImport,
    overwrites_shared_state: bool,
) -> Result<Response, ApiError> {
    let key = SessionKey::new(app, user, id.unwrap_or_default());
    check_import(state, principal, &key, import.event_count())?;
    let import = if overwrites_shared_state { import } else { import.without_shared_state() };
    let (state, id) = (state.clone(), id.map(str::to_owned));
    // Completed even if the client disconnects, so that no session has a part of the events.
    let stored = run_to_completion(async move {
        Ok::<_, RunError>(import.store(&*state.services().sessions, &key.app, &key.user, id.as_deref()).await)
    });
    json::session(&stored.await??)
}

/// Checks that the client is an operator, or that the configuration allows imports to all clients: imported events can
/// claim anything about agents, tools and users.
fn check_import(state: &AppState, principal: &Principal, key: &SessionKey, count: usize) -> Result<(), ApiError> {
    let (app, user, session, detail) = (&*key.app, &*key.user, &*key.id, pluralize(count, "event", "events"));
    let is_allowed = match principal {
        Principal::Operator(_) => true,
        Principal::Client(_) => false,
        Principal::Anybody => state.config().allow_import,
    };
    if is_allowed {
        tracing::info!(target: "hatchery::audit", app, user, session, decision = "allowed", detail, "import");
        return Ok(());
    }
    tracing::warn!(target: "hatchery::audit", app, user, session, decision = "refused", detail, "import");
    let error = ApiError::new(StatusCode::FORBIDDEN, "IMPORT_NOT_ALLOWED", "sessions cannot be created with events");
    Err(error.advise(match principal {
        Principal::Client(_) => "only credentials with the role `operate` may import sessions",
        _ => "to let clients import sessions, set `server: { allow_import: true }` in hatchery.yaml",
    }))
}

impl From<ImportError> for ApiError {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Partial(_) | ImportError::WrongType { .. } => Self::bad_input(error.to_string()),
            ImportError::Event(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID_EVENT", error.to_string()),
            ImportError::Store(error) => error.into(),
        }
    }
}

/// The last event of a fork, and the id of the new session.
#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
struct ForkBody {
    #[serde(alias = "event_id")]
    event_id: Option<String>,
    revision: Option<u64>,
    #[serde(alias = "session_id")]
    session_id: Option<String>,
}

/// Copies a session up to and including an event, by default the whole session.
#[utoipa::path(
    post,
    path = "/apps/{app}/users/{user}/sessions/{session}/fork",
    tag = "sessions",
    request_body = Option<ForkBody>,
    responses((status = 200, description = "The new session", body = schemas::Session))
)]
async fn fork(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
    body: RawJson,
) -> Result<Response, ApiError> {
    let body: ForkBody = body.parse_or_default()?;
    state.app(&app)?;
    let point = match (body.event_id, body.revision) {
        (None, None) => None,
        (event_id, revision) => Some(point(event_id, revision)?),
    };
    let key = SessionKey::new(app, user, id);
    let fork = state.runner().fork_session(&key, point.as_ref(), body.session_id.as_deref()).await?;
    json::session(&state.session(&fork.key, EventWindow::All).await?)
}

/// The event to which to rewind a session.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RewindBody {
    #[serde(default, alias = "event_id")]
    event_id: Option<String>,
    #[serde(default)]
    revision: Option<u64>,
}

/// Removes all events after an event, and undoes their changes.
#[utoipa::path(
    post,
    path = "/apps/{app}/users/{user}/sessions/{session}/rewind",
    tag = "sessions",
    request_body = RewindBody,
    responses((status = 200, description = "The session", body = schemas::Session))
)]
async fn rewind(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
    Json(body): Json<RewindBody>,
) -> Result<Response, ApiError> {
    state.app(&app)?;
    let point = point(body.event_id, body.revision)?;
    let key = SessionKey::new(app, user, id);
    let rewound = state.runner().rewind_session(&key, &point).await?;
    let (SessionKey { app, user, id }, action) = (&key, format!("rewind to revision {}", rewound.revision));
    tracing::info!(target: "hatchery::audit", %app, %user, session = %id, action, decision = "deleted", "deletion");
    json::session(&state.session(&key, EventWindow::All).await?)
}

fn point(event_id: Option<String>, revision: Option<u64>) -> Result<SessionPoint, ApiError> {
    match (event_id, revision) {
        (Some(id), None) => Ok(SessionPoint::EventId(id)),
        (None, Some(revision)) => Ok(SessionPoint::Revision(revision)),
        (None, None) | (Some(_), Some(_)) => {
            Err(ApiError::bad_input("name the last event to keep, by `eventId` or by `revision`, its number from 1 on"))
        }
    }
}
