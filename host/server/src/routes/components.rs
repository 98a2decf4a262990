//! `GET /components`: the loaded components, and the state of every file.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

use crate::state::AppState;
use hatchery::CatalogReport;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/components", get(components))
}

#[derive(Serialize)]
struct Components {
    #[serde(flatten)]
    catalog: CatalogReport,
    apps: Vec<AppEntry>,
}

#[derive(Serialize)]
struct AppEntry {
    name: String,
    agents: Vec<String>,
}

async fn components(State(state): State<AppState>) -> Json<Components> {
    let source = state.source();
    let apps = source.app_names().into_iter().filter_map(|name| source.app(&name)).map(|app| AppEntry {
        name: app.name.clone(),
        agents: app.agent_names().into_iter().map(Into::into).collect(),
    });
    Json(Components { apps: apps.collect(), catalog: source.report() })
}
