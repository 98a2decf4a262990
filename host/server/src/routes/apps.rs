//! The apps: `GET /list-apps`, and `GET /apps/{app}/app-info`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use hatchery::{AppOrigin, DevUi};
use hatchery_core::{AgentId, AgentKind, FunctionDeclaration, Instruction, LlmAgent, Part, Tool};
use hatchery_engine::App;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::api_document::ApiRouter;
use crate::auth::Principal;
use crate::error::ApiError;
use crate::extract::{Params, QueryParams, deserialize_boolean};
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
    /// `yaml`, `wasm` for an app of a component, or `native` for an app of the program that the host is part of.
    language: &'static str,
    /// False: no toolset of the host operates a computer.
    is_computer_use: bool,
    /// The agents by name.
    agents: BTreeMap<String, AgentInfo>,
}

/// The level of detail of descriptions of agents.
#[derive(Clone, Copy)]
struct Detail {
    instructions: bool,
    /// The schemas of the arguments and results of tools.
    schemas: bool,
}

impl Detail {
    /// The detail of lists, which may have many apps.
    const LIST: Self = Self { instructions: false, schemas: false };
}

impl AppInfo {
    fn new(app: &App, origin: AppOrigin, detail: Detail) -> Self {
        let root = app.root();
        let agents = app.tree.iter().map(|(id, agent)| (agent.name.clone(), AgentInfo::new(app, id, detail)));
        Self {
            name: app.name.clone(),
            root_agent_name: root.name.clone(),
            description: root.description.clone(),
            language: origin.label(),
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
    /// The texts of the static instruction. Absent if there is none, in lists, and if the client may not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    static_instruction: Option<String>,
    /// `llm`, `sequential`, `parallel`, `loop` or `custom`.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    tools: Vec<ToolInfo>,
    sub_agents: Vec<String>,
}

impl AgentInfo {
    fn new(app: &App, id: AgentId, detail: Detail) -> Self {
        let agent = app.tree.agent(id);
        let (model, tools) = match &agent.kind {
            AgentKind::Llm(llm) => (llm.model.as_ref(), llm.tools.as_slice()),
            AgentKind::Custom(custom) => (custom.model.as_ref(), custom.tools.as_slice()),
            AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => (None, [].as_slice()),
        };
        let declaration = |tool: &Arc<dyn Tool>| ToolDeclaration::new(tool.declaration(), detail.schemas);
        let mut declarations: Vec<_> = tools.iter().map(declaration).collect();
        // The tools of toolsets are declared during runs.
        for name in tool_names(app, id) {
            if declarations.iter().all(|declaration| declaration.name != name) {
                declarations.push(ToolDeclaration { name, ..ToolDeclaration::default() });
            }
        }
        let declare = |declaration| ToolInfo { function_declarations: vec![declaration] };
        let (instruction, static_instruction) = match &agent.kind {
            AgentKind::Llm(llm) if detail.instructions => instructions(llm),
            _ => (String::new(), None),
        };
        Self {
            name: agent.name.clone(),
            description: agent.description.clone(),
            instruction,
            static_instruction,
            kind: agent.kind.label(),
            model: model.map(|model| model.name().to_owned()),
            tools: declarations.into_iter().map(declare).collect(),
            sub_agents: app.tree.children(id).iter().map(|id| app.tree.agent(*id).name.clone()).collect(),
        }
    }
}

/// Returns the template of an agent's instruction, and the texts of its static one.
fn instructions(llm: &LlmAgent) -> (String, Option<String>) {
    let template = match &llm.instruction {
        Instruction::Template(text) => text.clone(),
        Instruction::Computed(_) | Instruction::None => String::new(),
    };
    let texts: Vec<_> = llm.static_instruction.iter().filter_map(Part::as_text).collect();
    (template, (!texts.is_empty()).then(|| texts.join("\n\n")))
}

/// A tool as Gemini's API declares it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ToolInfo {
    function_declarations: Vec<ToolDeclaration>,
}

/// The declaration of a function. Tools of toolsets have only a name here, and those in lists have no schemas.
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
    fn new(declaration: &FunctionDeclaration, with_schemas: bool) -> Self {
        let schema = |schema: &Option<Value>| schema.clone().filter(|_| with_schemas);
        Self {
            name: declaration.name.clone(),
            description: declaration.description.clone(),
            parameters_json_schema: schema(&declaration.parameters),
            response_json_schema: schema(&declaration.response),
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Whether the agents of each app are listed.
    #[serde(default, deserialize_with = "deserialize_boolean")]
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
    let source = state.source();
    let info = |name: &String| {
        let app = source.app(name)?;
        Some(AppInfo::new(&app, source.app_origin(name), Detail::LIST))
    };
    Json(AppList::Detailed { apps: names.iter().filter_map(info).collect() })
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
    let instructions = state.config().dev_ui() == DevUi::Full && principal.scope().is_none();
    let detail = Detail { instructions, schemas: true };
    Ok(Json(AppInfo::new(&app, state.source().app_origin(&app.name), detail)))
}

#[cfg(test)]
mod tests {
    use hatchery_core::JsonMap;
    use hatchery_engine::build::{function_tool, llm, sequential};
    use serde_json::json;

    use super::*;

    fn info(app: &App, detail: Detail) -> Value {
        serde_json::to_value(AppInfo::new(app, AppOrigin::Native, detail)).unwrap()
    }

    #[test]
    fn agents_are_described_as_clients_expect() {
        let schema = json!({"type": "object"});
        let tool = function_tool("book", "Books.", |_: JsonMap, _| async { Ok(()) }).parameters(schema.clone());
        let planner = llm("planner").model("m").instruction("Plan for {user}.").static_instruction("Be fixed.");
        let app = sequential("root").sub_agent(planner.static_instruction("Be still.").tool(tool)).build().unwrap();
        let app = App::new("trip", app).unwrap();
        let shown = info(&app, Detail { instructions: true, schemas: true });
        assert_eq!((&shown["rootAgentName"], &shown["language"]), (&json!("root"), &json!("native")));
        assert_eq!(shown["agents"]["root"]["sub_agents"], json!(["planner"]));
        let planner = &shown["agents"]["planner"];
        assert_eq!((&planner["instruction"], &planner["model"]), (&json!("Plan for {user}."), &json!("m")));
        assert_eq!(planner["static_instruction"], "Be fixed.\n\nBe still.");
        let declaration = json!({"name": "book", "description": "Books.", "parametersJsonSchema": schema});
        assert_eq!(planner["tools"][0]["functionDeclarations"][0], declaration);
    }

    #[test]
    fn agents_in_lists_have_no_instructions_and_no_schemas_of_tools() {
        let tool = function_tool("book", "Books.", |_: JsonMap, _| async { Ok(()) });
        let tool = tool.parameters(json!({"type": "object"}));
        let planner = llm("planner").instruction("Plan.").static_instruction("Be fixed.").tool(tool).build().unwrap();
        let listed = info(&App::new("trip", planner).unwrap(), Detail::LIST);
        let planner = &listed["agents"]["planner"];
        assert_eq!((&planner["instruction"], planner.get("static_instruction")), (&json!(""), None));
        let declarations = json!([{"functionDeclarations": [{"name": "book", "description": "Books."}]}]);
        assert_eq!(planner["tools"], declarations);
    }
}
