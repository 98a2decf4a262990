//! The routes, one file per group. A new group is a file and a line in [`all`].

mod a2a;
mod apps;
mod artifacts;
mod builder;
mod components;
mod dev_ui;
mod evaluation;
mod graph;
mod happenings;
mod live;
mod mcp;
mod memory;
mod metrics;
mod run;
mod runs;
mod sessions;
mod status;
mod tool_calls;
mod traces;

use axum::Router;
use axum::extract::OriginalUri;
use axum::http::{Method, StatusCode, Uri};

use crate::error::ApiError;
use crate::state::AppState;

/// Returns all routes, with fallbacks for unknown paths and methods.
pub(crate) fn all() -> Router<AppState> {
    Router::new()
        .merge(a2a::routes())
        .merge(apps::routes())
        .merge(artifacts::routes())
        .merge(builder::routes())
        .merge(components::routes())
        .merge(dev_ui::routes())
        .merge(evaluation::routes())
        .merge(graph::routes())
        .merge(happenings::routes())
        .merge(live::routes())
        .merge(mcp::routes())
        .merge(memory::routes())
        .merge(metrics::routes())
        .merge(run::routes())
        .merge(runs::routes())
        .merge(sessions::routes())
        .merge(status::routes())
        .merge(tool_calls::routes())
        .merge(traces::routes())
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(route_not_found)
}

pub(crate) async fn route_not_found(method: Method, uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "ROUTE_NOT_FOUND", format!("no route for {method} {}", uri.path()))
}

async fn method_not_allowed(method: Method, OriginalUri(uri): OriginalUri) -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        format!("{} does not support {method}; the Allow header lists the supported methods", uri.path()),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_documentation_names_every_route() {
        let documentation = include_str!("../../../docs/http-api.md");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/routes");
        let files = fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
        let mut count = 0;
        for source in files {
            for path in source.split(".route(").skip(1).filter_map(|route| route.split('"').nth(1)) {
                assert!(documentation.contains(&format!("{path}`")), "docs/http-api.md lacks {path}");
                count += 1;
            }
        }
        assert!(count > 15, "{count} routes were found");
    }
}
