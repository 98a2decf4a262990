//! `GET /health`, `GET /ready` and `GET /version`.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::AppState;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/health", get(health)).route("/ready", get(ready)).route("/version", get(version))
}

/// Returns `{"status": "ok"}`, with `loading` if apps or components are still being loaded. Their names are not for
/// everybody if the server has authentication.
async fn health(State(state): State<AppState>) -> Json<Value> {
    let loading = if state.auth().is_none() { state.source().loading() } else { Vec::new() };
    Json(if loading.is_empty() { json!({"status": "ok"}) } else { json!({"status": "ok", "loading": loading}) })
}

/// Returns `{"status": "ready"}` when everything is loaded.
///
/// # Errors
/// 503 before that.
async fn ready(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    let loading = state.source().loading();
    match loading.is_empty() {
        true => Ok(Json(json!({"status": "ready"}))),
        false if state.auth().is_some() => Err(ApiError::loading(&["components".to_owned()])),
        false => Err(ApiError::loading(&loading)),
    }
}

async fn version() -> Json<Value> {
    Json(json!({
        "version": hatchery_core::VERSION,
        "language": "rust",
        "language_version": env!("CARGO_PKG_RUST_VERSION"),
    }))
}
