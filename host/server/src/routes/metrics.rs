//! `GET /metrics`, for Prometheus.

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hatchery_telemetry::{GaugeValue, Metrics};

use crate::error::ApiError;
use crate::state::AppState;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(State(state): State<AppState>) -> Result<Response, ApiError> {
    let (report, apps) = (state.source().report(), state.source().app_names());
    let gauges = [
        ("active_runs", "Runs that are in progress or queued", state.runner().active_runs()),
        ("apps", "Apps that are served", apps.len()),
        ("components", "Components that are loaded", report.components.len()),
    ];
    let gauges = gauges.map(|(name, help, value)| GaugeValue { name, help, value: value as u64 });
    let text = state.metrics().encode(gauges).map_err(|_| ApiError::internal())?;
    Ok(([(CONTENT_TYPE, Metrics::CONTENT_TYPE)], text).into_response())
}
