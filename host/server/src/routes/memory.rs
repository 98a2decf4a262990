//! The memory of a user in an app: adding, searching and deleting.

use axum::Json as JsonResponse;
use axum::extract::State;
use axum::http::StatusCode;
use hatchery_core::{EventWindow, SessionKey};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::api_document::{ApiRouter, schemas};
use crate::error::ApiError;
use crate::extract::{Json, Params, QueryParams};
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(search, add, delete))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AddBody {
    #[serde(alias = "session_id")]
    session_id: String,
}

/// Adds a session to the memory. Its earlier entries are replaced.
#[utoipa::path(
    patch,
    path = "/apps/{app}/users/{user}/memory",
    tag = "memory",
    request_body = AddBody,
    responses((status = 204, description = "The session was added"))
)]
async fn add(
    State(state): State<AppState>,
    Params((app, user)): Params<(String, String)>,
    Json(body): Json<AddBody>,
) -> Result<StatusCode, ApiError> {
    state.app(&app)?;
    let session = state.session(&SessionKey::new(app, user, body.session_id), EventWindow::All).await?;
    state.services().memory.add_session(&session).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct DeleteQuery {
    /// The session. It may have been deleted already.
    session_id: String,
}

/// Deletes the memory entries of a session. The session itself is not deleted.
#[utoipa::path(
    delete,
    path = "/apps/{app}/users/{user}/memory",
    tag = "memory",
    params(DeleteQuery),
    responses((status = 204, description = "The entries are deleted"))
)]
async fn delete(
    State(state): State<AppState>,
    Params((app, user)): Params<(String, String)>,
    QueryParams(DeleteQuery { session_id }): QueryParams<DeleteQuery>,
) -> Result<StatusCode, ApiError> {
    state.app(&app)?;
    let key = SessionKey::new(app, user, session_id);
    state.services().memory.delete_session(&key).await?;
    let (SessionKey { app, user, id }, action) = (&key, "delete from the memory");
    tracing::info!(target: "hatchery::audit", %app, %user, session = %id, action, decision = "deleted", "deletion");
    Ok(StatusCode::NO_CONTENT)
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "the schema of a response")]
struct Memories {
    memories: Vec<MemoryEntry>,
}

/// A remembered message.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the schema of a response")]
struct MemoryEntry {
    content: schemas::Content,
    author: Option<String>,
    /// Seconds since 1970.
    timestamp: f64,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct SearchQuery {
    /// The words to search for.
    query: String,
}

/// Returns the entries that match a query, best first.
#[utoipa::path(
    get,
    path = "/apps/{app}/users/{user}/memory",
    tag = "memory",
    params(SearchQuery),
    responses((status = 200, description = "The entries", body = Memories))
)]
async fn search(
    State(state): State<AppState>,
    Params((app, user)): Params<(String, String)>,
    QueryParams(SearchQuery { query }): QueryParams<SearchQuery>,
) -> Result<JsonResponse<Value>, ApiError> {
    state.app(&app)?;
    let memories = state.services().memory.search(&app, &user, &query).await?;
    Ok(JsonResponse(json!({ "memories": memories })))
}
