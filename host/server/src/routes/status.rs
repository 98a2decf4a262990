//! `GET /health`, `GET /ready` and `GET /version`.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use utoipa_axum::routes;

use crate::api_document::ApiRouter;
use crate::error::ApiError;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(health)).routes(routes!(ready)).routes(routes!(version))
}

/// Returns `{"status": "ok"}`, with `loading` if apps or components are still being loaded. With authentication, their
/// names are left out.
#[utoipa::path(
    get,
    path = "/health",
    tag = "status",
    responses((status = 200, description = "The server is up", body = Object))
)]
async fn health(State(state): State<AppState>) -> Json<Value> {
    let loading = if state.auth().is_none() { state.source().loading() } else { Vec::new() };
    Json(if loading.is_empty() { json!({"status": "ok"}) } else { json!({"status": "ok", "loading": loading}) })
}

/// Returns `{"status": "ready"}` when everything is loaded.
///
/// # Errors
/// 503 while something is still being loaded.
#[utoipa::path(
    get,
    path = "/ready",
    tag = "status",
    responses((status = 200, description = "Everything is loaded", body = Object))
)]
async fn ready(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    let loading = state.source().loading();
    if loading.is_empty() {
        Ok(Json(json!({"status": "ready"})))
    } else if state.auth().is_some() {
        Err(ApiError::loading(&["components".to_owned()]))
    } else {
        Err(ApiError::loading(&loading))
    }
}

/// Returns the version of the server.
#[utoipa::path(
    get,
    path = "/version",
    tag = "status",
    responses((status = 200, description = "The version", body = Object))
)]
async fn version() -> Json<Value> {
    Json(json!({
        "version": hatchery_core::VERSION,
        "language": "rust",
        "language_version": env!("CARGO_PKG_RUST_VERSION"),
    }))
}
