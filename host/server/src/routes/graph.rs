//! Graphs of apps and events, and the structure of an app.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::routing::get;
use hatchery::DevUi;
use hatchery_core::{AgentId, AgentKind, EventWindow, Instruction, SessionKey};
use hatchery_engine::App;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::api_document::ApiRouter;
use crate::error::ApiError;
use crate::extract::{Params, QueryParams, deserialize_boolean};
use crate::graph::{Path, Theme, dot, tool_names};
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new()
        .routes(routes!(structure))
        .route("/dev/build_graph/{app}", get(structure))
        .routes(routes!(images))
        .route("/dev/build_graph_image/{app}", get(images))
        .routes(routes!(graph))
        .routes(routes!(event_graph))
        .route("/dev/apps/{app}/users/{user}/sessions/{session}/events/{event}/graph", get(event_graph))
}

/// A graph in the DOT language.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Graph {
    /// Left out if there is no such event, or its author is not an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    dot_src: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct GraphQuery {
    /// Whether to use colours for a dark background.
    #[serde(default, deserialize_with = "deserialize_boolean")]
    dark_mode: bool,
    /// The path of an agent below the root, such as `child/grandchild`.
    #[serde(default)]
    node: String,
}

impl GraphQuery {
    fn theme(&self) -> Theme {
        if self.dark_mode { Theme::Dark } else { Theme::Light }
    }
}

/// Returns the agents of an app as a tree, with their tools, and the README of its folder.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/build_graph",
    tag = "graphs",
    responses((status = 200, description = "The agents", body = Object))
)]
async fn structure(State(state): State<AppState>, Params(app): Params<String>) -> Result<Json<Value>, ApiError> {
    let app = state.app(&app)?;
    // An instruction may be meant for the model only, a README for developers.
    let is_full = state.config().dev_ui() == DevUi::Full;
    let readme = if is_full { readme(&state, &app).await } else { None };
    let mut structure = json!({"name": app.name, "root_agent": describe(&app, app.root_id(), is_full)});
    if let (Value::Object(structure), Some(readme)) = (&mut structure, readme) {
        structure.insert("readme".into(), readme.into());
    }
    Ok(Json(structure))
}

async fn readme(state: &AppState, app: &App) -> Option<String> {
    let (files, name) = (state.source().app_files()?, app.name.clone());
    tokio::task::spawn_blocking(move || files.readme(&name)).await.ok().flatten()
}

/// Returns an agent with all of its sub agents. Keys are in snake_case, as clients expect.
fn describe(app: &App, id: AgentId, with_instruction: bool) -> Value {
    let agent = app.tree.agent(id);
    let tools: Vec<_> = tool_names(app, id).into_iter().map(|name| json!({"name": name, "type": "tool"})).collect();
    let sub_agents: Vec<_> = app.tree.children(id).iter().map(|id| describe(app, *id, with_instruction)).collect();
    let mut json = json!({
        "name": agent.name, "description": agent.description, "type": agent.kind.label(), "tools": tools,
        "sub_agents": sub_agents,
    });
    let (model, instruction) = match &agent.kind {
        AgentKind::Llm(llm) => (llm.model.as_ref(), Some(&llm.instruction)),
        AgentKind::Custom(custom) => (custom.model.as_ref(), None),
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => (None, None),
    };
    if let Value::Object(json) = &mut json {
        json.extend(model.map(|model| ("model".to_owned(), model.name().into())));
        if let (Some(Instruction::Template(text)), true) = (instruction, with_instruction) {
            json.insert("instruction".into(), text.as_str().into());
        }
    }
    json
}

/// Returns the graph of an app in the DOT language.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/graph",
    tag = "graphs",
    params(GraphQuery),
    responses((status = 200, description = "The graph", body = Graph))
)]
async fn graph(
    State(state): State<AppState>,
    Params(app): Params<String>,
    QueryParams(query): QueryParams<GraphQuery>,
) -> Result<Json<Graph>, ApiError> {
    let app = state.app(&app)?;
    let agent = find(&app, &query.node)?;
    Ok(Json(Graph { dot_src: Some(dot(&app, agent, &Path::default(), query.theme())) }))
}

/// Returns the graph of each agent with sub agents, by its path (the root is `""`), and the graph of `node` as
/// `dotSrc`.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/build_graph_image",
    tag = "graphs",
    params(GraphQuery),
    responses((status = 200, description = "The graphs", body = Object))
)]
async fn images(
    State(state): State<AppState>,
    Params(app): Params<String>,
    QueryParams(query): QueryParams<GraphQuery>,
) -> Result<Json<BTreeMap<String, Value>>, ApiError> {
    let app = state.app(&app)?;
    let draw = |id| dot(&app, id, &Path::default(), query.theme());
    let is_shown = |id: &AgentId| *id == app.root_id() || !app.tree.children(*id).is_empty();
    let agents = app.tree.iter().map(|(id, _)| id).filter(is_shown);
    let mut images: BTreeMap<_, _> =
        agents.map(|id| (path_below_root(&app, id), json!({"dotSrc": draw(id)}))).collect();
    images.insert("dotSrc".into(), draw(find(&app, &query.node)?).into());
    Ok(Json(images))
}

/// Returns the names on the path from the root to an agent, without the root.
fn path_below_root(app: &App, id: AgentId) -> String {
    app.tree.path(id).split_once('/').map(|(_, path)| path.to_owned()).unwrap_or_default()
}

/// Returns the agent with this path below the root.
fn find(app: &App, node: &str) -> Result<AgentId, ApiError> {
    let mut agents = app.tree.iter().map(|(id, _)| id);
    agents.find(|id| path_below_root(app, *id) == node).ok_or_else(|| {
        let name = node.escape_debug();
        ApiError::bad_input(format!(
            "`node` is `{name}`, but the app has no agent of that path; leave it out for the root"
        ))
    })
}

/// Returns the graph of an app with the path of an event.
#[utoipa::path(
    get,
    path = "/apps/{app}/users/{user}/sessions/{session}/events/{event}/graph",
    tag = "graphs",
    params(GraphQuery),
    responses((status = 200, description = "The graph", body = Graph))
)]
async fn event_graph(
    State(state): State<AppState>,
    Params((app, user, session, event)): Params<(String, String, String, String)>,
    QueryParams(query): QueryParams<GraphQuery>,
) -> Result<Json<Graph>, ApiError> {
    let key = SessionKey::new(app.as_str(), user, session);
    let session = state.session(&key, EventWindow::All).await?;
    let app = state.app(&app)?;
    let path = session.events.iter().find(|stored| stored.id == event).map(|event| Path::new(&app, event));
    let draw = |path: Path| dot(&app, app.root_id(), &path, query.theme());
    Ok(Json(Graph { dot_src: path.filter(|path| !path.is_empty()).map(draw) }))
}
