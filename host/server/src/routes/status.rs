//! `GET /health` and `GET /version`.

use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::state::AppState;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/health", get(health)).route("/version", get(version))
}

async fn health() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

async fn version() -> Json<Value> {
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "language": "rust",
        "language_version": env!("CARGO_PKG_RUST_VERSION"),
    }))
}
