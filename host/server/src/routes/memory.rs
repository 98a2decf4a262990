//! The memory of a user in an app: adding a session, and searching.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json as JsonResponse, Router};
use hatchery_core::{EventWindow, SessionKey};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::extract::{Json, Params, QueryParams};
use crate::state::AppState;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/apps/{app}/users/{user}/memory", get(search).patch(add))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AddBody {
    #[serde(alias = "session_id")]
    session_id: String,
}

/// Adds a session to the memory. Replaces what was added of it before.
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

#[derive(Deserialize)]
struct SearchQuery {
    query: String,
}

/// Returns the entries that match a query, best first.
async fn search(
    State(state): State<AppState>,
    Params((app, user)): Params<(String, String)>,
    QueryParams(SearchQuery { query }): QueryParams<SearchQuery>,
) -> Result<JsonResponse<Value>, ApiError> {
    state.app(&app)?;
    let memories = state.services().memory.search(&app, &user, &query).await?;
    Ok(JsonResponse(json!({ "memories": memories })))
}
