//! The routes, one file per group. A new group is a file and a line in [`all`].

mod apps;
mod artifacts;
mod components;
mod dev_ui;
mod mcp;
mod memory;
mod run;
mod runs;
mod sessions;
mod status;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};

use crate::error::ApiError;
use crate::state::AppState;

/// Returns all routes, with fallbacks for unknown paths and methods.
pub(crate) fn all() -> Router<AppState> {
    Router::new()
        .merge(apps::routes())
        .merge(artifacts::routes())
        .merge(components::routes())
        .merge(dev_ui::routes())
        .merge(mcp::routes())
        .merge(memory::routes())
        .merge(run::routes())
        .merge(runs::routes())
        .merge(sessions::routes())
        .merge(status::routes())
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(route_not_found)
}

pub(crate) async fn route_not_found(method: Method, uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "ROUTE_NOT_FOUND", format!("no route for {method} {}", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        format!("{} does not support {method}; the Allow header lists the supported methods", uri.path()),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_documentation_names_every_route() {
        let sources = [
            include_str!("routes/apps.rs"),
            include_str!("routes/artifacts.rs"),
            include_str!("routes/components.rs"),
            include_str!("routes/dev_ui.rs"),
            include_str!("routes/memory.rs"),
            include_str!("routes/run.rs"),
            include_str!("routes/runs.rs"),
            include_str!("routes/sessions.rs"),
            include_str!("routes/status.rs"),
        ];
        let documented = include_str!("../../../docs/http-api.md");
        let after_route = sources.iter().flat_map(|source| source.split(".route(").skip(1));
        let paths: Vec<_> = after_route.filter_map(|rest| rest.split('"').nth(1)).collect();
        assert!(paths.len() > 15, "{paths:?}");
        for path in paths {
            assert!(documented.contains(&format!("{path}`")), "docs/http-api.md lacks {path}");
        }
    }
}
