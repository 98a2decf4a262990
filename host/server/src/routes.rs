//! The routes, one file per group. A new group is a file and a line in [`all`].

mod apps;
mod artifacts;
mod components;
mod dev_ui;
mod run;
mod sessions;
mod status;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};

use crate::error::ApiError;
use crate::state::AppState;

/// Every route, with answers for paths and methods that there are not.
pub(crate) fn all() -> Router<AppState> {
    Router::new()
        .merge(apps::routes())
        .merge(artifacts::routes())
        .merge(components::routes())
        .merge(dev_ui::routes())
        .merge(run::routes())
        .merge(sessions::routes())
        .merge(status::routes())
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(route_not_found)
}

async fn route_not_found(method: Method, uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "ROUTE_NOT_FOUND", format!("no route for {method} {}", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        format!("{} does not take {method}; the Allow header says what it takes", uri.path()),
    )
}
