//! The deployment dialog of ADK's web client, which shows the `detail` of an error to the user.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use crate::api_document::ApiRouter;
use crate::error::ApiError;
use crate::extract::Params;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().route("/dev/apps/{app}/deploy/{target}", get(refuse).post(refuse))
}

/// Names the ways to deploy an app, because the host uploads nothing to a cloud.
async fn refuse(State(state): State<AppState>, Params((app, _)): Params<(String, String)>) -> ApiError {
    if let Err(error) = state.app(&app) {
        return error;
    }
    let detail = "this host does not deploy apps; serve their folder elsewhere with `hatchery serve FOLDER`, as a \
                  service, or in a container on Cloud Run, GKE or any other machine: see docs/operations.md of Hatchery";
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "DEPLOYMENT_NOT_SUPPORTED", detail)
}
