//! `GET /metrics`, for Prometheus.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hatchery_telemetry::{GaugeValue, Metrics};
use utoipa_axum::routes;

use crate::api_document::ApiRouter;
use crate::error::ApiError;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(metrics))
}

/// Returns the metrics in the text format of Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "status",
    responses((status = 200, description = "The metrics", body = String, content_type = "application/openmetrics-text"))
)]
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
