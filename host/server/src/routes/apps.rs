//! `GET /list-apps`.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hatchery_core::{AgentId, AgentKind};
use hatchery_engine::App;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::api_document::{ApiRouter, schemas};
use crate::auth::Principal;
use crate::extract::QueryParams;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(list_apps))
}

/// The names of the apps, or with `detailed` the apps with their agents.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the schema of a response")]
enum AppList {
    Names(Vec<String>),
    Detailed { apps: Vec<schemas::App> },
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Whether the agents of each app are listed.
    #[serde(default)]
    detailed: bool,
}

/// Returns the names of all apps that the client may use, sorted; with `?detailed=true` also their agents.
#[utoipa::path(
    get,
    path = "/list-apps",
    tag = "apps",
    params(ListQuery),
    responses((status = 200, description = "The apps", body = AppList))
)]
async fn list_apps(
    State(state): State<AppState>,
    principal: Principal,
    QueryParams(query): QueryParams<ListQuery>,
) -> Response {
    let mut names = state.source().app_names();
    names.retain(|name| principal.has_app(name));
    if !query.detailed {
        return Json(names).into_response();
    }
    let apps: Vec<_> = names.iter().filter_map(|name| state.source().app(name)).map(|app| describe(&app)).collect();
    Json(json!({ "apps": apps })).into_response()
}

fn describe(app: &App) -> Value {
    let root = app.root();
    let agents: Vec<_> = app.tree.iter().map(|(id, _)| describe_agent(app, id)).collect();
    json!({
        "name": app.name,
        "rootAgentName": root.name,
        "description": root.description,
        "isComputerUse": false,
        "agents": agents,
    })
}

fn describe_agent(app: &App, id: AgentId) -> Value {
    let agent = app.tree.agent(id);
    let sub_agents: Vec<_> = app.tree.children(id).iter().map(|id| app.tree.agent(*id).name.as_str()).collect();
    let mut json = json!({
        "name": agent.name,
        "description": agent.description,
        "kind": agent.kind.label(),
        "subAgents": sub_agents,
    });
    let (model, tools) = match &agent.kind {
        AgentKind::Llm(llm) => (&llm.model, &llm.tools),
        AgentKind::Custom(custom) => (&custom.model, &custom.tools),
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => return json,
    };
    if let Value::Object(json) = &mut json {
        json.extend(model.iter().map(|model| ("model".to_owned(), model.name().into())));
        let tools: Vec<_> = tools.iter().map(|tool| tool.declaration().name.as_str()).collect();
        json.insert("tools".into(), tools.into());
    }
    json
}
