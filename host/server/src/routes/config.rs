//! `GET /config`: the settings in force.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use hatchery::{DevUi, SettingsReport};
use utoipa_axum::routes;

use crate::api_document::{ApiRouter, schemas};
use crate::error::ApiError;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(config))
}

/// Returns the settings in force, each with its origin. Values that may be secret are left out.
#[utoipa::path(
    get,
    path = "/config",
    tag = "host",
    responses((status = 200, description = "The settings", body = schemas::Settings))
)]
async fn config(State(state): State<AppState>) -> Result<Json<SettingsReport>, ApiError> {
    if state.config().dev_ui() != DevUi::Full {
        let detail = "this server does not show its settings to its clients; read hatchery.yaml";
        let error = ApiError::new(StatusCode::FORBIDDEN, "CONFIG_NOT_SHOWN", detail);
        return Err(error.advise("to show them, set `server: { dev_ui: full }` in hatchery.yaml"));
    }
    Ok(Json(SettingsReport::clone(&state.settings())))
}
