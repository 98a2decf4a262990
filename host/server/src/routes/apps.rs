//! The apps: `GET /list-apps`, and `GET /apps/{app}/app-info`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use hatchery::{CatalogReport, DevUi};
use hatchery_core::{AgentId, AgentKind, FunctionDeclaration, Instruction};
use hatchery_engine::App;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::api_document::ApiRouter;
use crate::auth::Principal;
use crate::error::ApiError;
use crate::extract::{Params, QueryParams};
use crate::graph::tool_names;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(list_apps)).routes(routes!(app_info))
}

/// The names of the apps, or with `detailed` the apps with their agents.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum AppList {
    Names(Vec<String>),
    Detailed { apps: Vec<AppInfo> },
}

/// An app with its agents.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AppInfo {
    name: String,
    root_agent_name: String,
    description: String,
    /// `yaml`, or `wasm` for an app of a component.
    language: &'static str,
    is_computer_use: bool,
    /// The agents by name.
    agents: BTreeMap<String, AgentInfo>,
}

impl AppInfo {
    fn new(app: &App, catalog: &CatalogReport, with_instructions: bool) -> Self {
        let root = app.root();
        let is_of_component = catalog.components.iter().any(|component| component.agents.contains(&app.name));
        let agents =
            app.tree.iter().map(|(id, agent)| (agent.name.clone(), AgentInfo::new(app, id, with_instructions)));
        Self {
            name: app.name.clone(),
            root_agent_name: root.name.clone(),
            description: root.description.clone(),
            language: if is_of_component { "wasm" } else { "yaml" },
            is_computer_use: false,
            agents: agents.collect(),
        }
    }
}

/// An agent. Its keys are in snake_case, as clients expect.
#[derive(Serialize, ToSchema)]
struct AgentInfo {
    name: String,
    description: String,
    /// The template of the instruction. Empty in lists, if it is computed, and if the client may not read it.
    instruction: String,
    /// `llm`, `sequential`, `parallel`, `loop` or `custom`.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    tools: Vec<ToolInfo>,
    sub_agents: Vec<String>,
}

impl AgentInfo {
    fn new(app: &App, id: AgentId, with_instruction: bool) -> Self {
        let agent = app.tree.agent(id);
        let (model, instruction, tools) = match &agent.kind {
            AgentKind::Llm(llm) => (llm.model.as_ref(), Some(&llm.instruction), llm.tools.as_slice()),
            AgentKind::Custom(custom) => (custom.model.as_ref(), None, custom.tools.as_slice()),
            AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => (None, None, [].as_slice()),
        };
        let mut declarations: Vec<_> = tools.iter().map(|tool| ToolDeclaration::new(tool.declaration())).collect();
        // The tools of toolsets are declared during runs.
        for name in tool_names(app, id) {
            if declarations.iter().all(|declaration| declaration.name != name) {
                declarations.push(ToolDeclaration { name, ..ToolDeclaration::default() });
            }
        }
        let declare = |declaration| ToolInfo { function_declarations: vec![declaration] };
        let instruction = match instruction.filter(|_| with_instruction) {
            Some(Instruction::Template(text)) => text.clone(),
            Some(Instruction::Computed(_) | Instruction::None) | None => String::new(),
        };
        Self {
            name: agent.name.clone(),
            description: agent.description.clone(),
            instruction,
            kind: agent.kind.label(),
            model: model.map(|model| model.name().to_owned()),
            tools: declarations.into_iter().map(declare).collect(),
            sub_agents: app.tree.children(id).iter().map(|id| app.tree.agent(*id).name.clone()).collect(),
        }
    }
}

/// A tool as Gemini's API declares it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ToolInfo {
    function_declarations: Vec<ToolDeclaration>,
}

/// The declaration of a function. Tools of toolsets have only a name here.
#[derive(Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ToolDeclaration {
    name: String,
    description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    parameters_json_schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    response_json_schema: Option<Value>,
}

impl ToolDeclaration {
    fn new(declaration: &FunctionDeclaration) -> Self {
        Self {
            name: declaration.name.clone(),
            description: declaration.description.clone(),
            parameters_json_schema: declaration.parameters.clone(),
            response_json_schema: declaration.response.clone(),
        }
    }
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
) -> Json<AppList> {
    let mut names = state.source().app_names();
    names.retain(|name| principal.has_app(name));
    if !query.detailed {
        return Json(AppList::Names(names));
    }
    let catalog = state.source().report();
    let apps = names.iter().filter_map(|name| state.source().app(name));
    Json(AppList::Detailed { apps: apps.map(|app| AppInfo::new(&app, &catalog, false)).collect() })
}

/// Returns an app with its agents and their tools.
#[utoipa::path(
    get,
    path = "/apps/{app}/app-info",
    tag = "apps",
    responses((status = 200, description = "The app", body = AppInfo))
)]
async fn app_info(
    State(state): State<AppState>,
    principal: Principal,
    Params(app): Params<String>,
) -> Result<Json<AppInfo>, ApiError> {
    let app = state.app(&app)?;
    // An instruction may be meant for the model only.
    let with_instructions = state.config().dev_ui() == DevUi::Full && principal.scope().is_none();
    Ok(Json(AppInfo::new(&app, &state.source().report(), with_instructions)))
}

#[cfg(test)]
mod tests {
    use hatchery_core::JsonMap;
    use hatchery_engine::build::{function_tool, llm, sequential};
    use serde_json::json;

    use super::*;

    #[test]
    fn agents_are_described_as_clients_expect() {
        let tool = function_tool("book", "Books.", |_: JsonMap, _| async { Ok(()) });
        let planner = llm("planner").model("m").instruction("Plan for {user}.").tool(tool);
        let app = App::new("trip", sequential("root").sub_agent(planner).build().unwrap()).unwrap();
        let info = serde_json::to_value(AppInfo::new(&app, &CatalogReport::default(), true)).unwrap();
        assert_eq!((&info["rootAgentName"], &info["language"]), (&json!("root"), &json!("yaml")));
        assert_eq!(info["agents"]["root"]["sub_agents"], json!(["planner"]));
        let planner = &info["agents"]["planner"];
        assert_eq!((&planner["instruction"], &planner["model"]), (&json!("Plan for {user}."), &json!("m")));
        let declaration = &planner["tools"][0]["functionDeclarations"][0];
        assert_eq!((&declaration["name"], &declaration["description"]), (&json!("book"), &json!("Books.")));
        let listed = serde_json::to_value(AppInfo::new(&app, &CatalogReport::default(), false)).unwrap();
        assert_eq!(listed["agents"]["planner"]["instruction"], "");
    }
}
