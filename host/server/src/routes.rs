//! The routes, one file per group. A new group is a file and a line in [`all`].

mod a2a;
mod app_tests;
mod apps;
mod artifacts;
mod builder;
mod components;
mod config;
mod deployment;
mod dev_ui;
mod evaluation;
mod graph;
mod host_events;
mod live;
mod login;
mod mcp;
mod memory;
mod metrics;
mod run;
mod runs;
mod sessions;
mod stats;
mod status;
mod tool_calls;
mod traces;
mod triggers;
mod ws;

use axum::Router;
use axum::extract::OriginalUri;
use axum::http::{Method, StatusCode, Uri};
use hatchery::BasePath;

use crate::api_document::{self, ApiRouter};
use crate::error::ApiError;
use crate::state::AppState;

pub(crate) use traces::SpanView;

/// Returns all routes below the path `base`, with fallbacks for unknown paths and methods, and the OpenAPI document.
pub(crate) fn all(base: Option<&BasePath>) -> Router<AppState> {
    let (router, document) = groups().split_for_parts();
    router
        .merge(api_document::route(document, base))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(|method, OriginalUri(uri): OriginalUri| route_not_found(method, uri))
}

fn groups() -> ApiRouter {
    ApiRouter::with_openapi(api_document::head())
        .merge(a2a::routes())
        .merge(app_tests::routes())
        .merge(apps::routes())
        .merge(artifacts::routes())
        .merge(builder::routes())
        .merge(components::routes())
        .merge(config::routes())
        .merge(deployment::routes())
        .merge(dev_ui::routes())
        .merge(evaluation::routes())
        .merge(graph::routes())
        .merge(host_events::routes())
        .merge(live::routes())
        .merge(login::routes())
        .merge(mcp::routes())
        .merge(memory::routes())
        .merge(metrics::routes())
        .merge(run::routes())
        .merge(runs::routes())
        .merge(sessions::routes())
        .merge(stats::routes())
        .merge(status::routes())
        .merge(tool_calls::routes())
        .merge(traces::routes())
        .merge(triggers::routes())
        .merge(ws::routes())
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

    use hatchery_core::matches_wildcard;

    use super::*;
    use crate::auth::Requirement;

    const GUIDE: &str = include_str!("../../../docs/http-api.md");

    const SECURITY_GUIDE: &str = include_str!("../../../docs/security.md");

    /// Routes without an entry in the document: other protocols, pages, and aliases of documented routes.
    fn undocumented() -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/routes");
        let routes = sources(&folder).into_iter().flat_map(|source| {
            let paths = source.split(".route(").skip(1).filter_map(|route| route.split('"').nth(1));
            paths.map(str::to_owned).collect::<Vec<_>>()
        });
        routes.collect()
    }

    /// Returns the texts of all files below a folder.
    fn sources(folder: &Path) -> Vec<String> {
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        paths
            .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![fs::read_to_string(path).unwrap()] })
            .collect()
    }

    /// Returns the paths of the routes that a proxy should not expose; `*` is a wildcard.
    fn withheld() -> Vec<String> {
        let (_, table) = SECURITY_GUIDE.split_once("should not pass on:\n\n").unwrap();
        let rows = table.split("\n\n").next().unwrap().lines().skip(2);
        let routes = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
        let paths = routes.filter_map(|route| route.split_whitespace().find(|word| word.starts_with('/')));
        paths.map(|path| path.replace('…', "*")).collect()
    }

    #[test]
    fn the_guide_names_every_route_that_a_proxy_should_not_pass_on() {
        let withheld = withheld();
        assert!(withheld.len() > 10, "{withheld:?}");
        let is_withheld = |path: &str| withheld.iter().any(|pattern| matches_wildcard(pattern, path));
        // Some are below these.
        let is_any_withheld = |path: &str| {
            ["", "/apps/a", "/dev/apps/a"].map(|base| format!("{base}{path}")).iter().any(|path| is_withheld(path))
        };
        let paths = groups().into_openapi().paths.paths.into_keys().chain(undocumented());
        let operators = paths.filter(|path| Requirement::for_path(path) == Requirement::Operator);
        let missing: Vec<_> = operators.chain(["/ws".to_owned()]).filter(|path| !is_any_withheld(path)).collect();
        assert_eq!(missing, Vec::<String>::new(), "docs/security.md lacks routes for operators");
        for path in ["/run", "/run_sse", "/list-apps", "/health", "/mcp", "/a2a/app"] {
            assert!(!is_withheld(path), "{path}");
        }
    }

    #[test]
    fn the_guide_names_every_route() {
        let documented: Vec<_> = groups().into_openapi().paths.paths.into_keys().collect();
        assert!(documented.len() > 30, "{documented:?}");
        for path in documented
            .iter()
            .map(|path| path.trim_start_matches("/dev/apps/{app}"))
            .chain(undocumented().iter().map(String::as_str))
        {
            assert!(GUIDE.contains(&format!("{path}`")), "docs/http-api.md lacks {path}");
        }
    }
}
