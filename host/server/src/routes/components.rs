//! Components: the state of every file, a component in detail, and its earlier revisions; the state of MCP servers, of
//! remote agents and of HTTP APIs.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use hatchery::{CatalogReport, Comparison, ComponentDetail, DevUi, RestoreError};
use hatchery_a2a::RemoteAgentStatus;
use hatchery_mcp::ServerStatus;
use hatchery_openapi::ApiStatus;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::api_document::{ApiRouter, schemas};
use crate::error::ApiError;
use crate::extract::{Json as JsonBody, Params, QueryParams};
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new()
        .routes(routes!(components))
        .routes(routes!(component))
        .routes(routes!(compare))
        .routes(routes!(roll_back))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Components {
    #[serde(flatten)]
    catalog: CatalogReport,
    apps: Vec<AppEntry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mcp_servers: Vec<ServerStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    a2a_agents: Vec<RemoteAgentStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    openapi: Vec<ApiStatus>,
}

#[derive(Serialize)]
struct AppEntry {
    name: String,
    agents: Vec<String>,
}

/// Returns the components, and the state of every file of the served folder, MCP server, remote agent and HTTP API.
#[utoipa::path(
    get,
    path = "/components",
    tag = "components",
    responses((status = 200, description = "The components and files", body = schemas::Components))
)]
async fn components(State(state): State<AppState>) -> Json<Components> {
    let source = state.source();
    let apps = source.app_names().into_iter().filter_map(|name| source.app(&name)).map(|app| AppEntry {
        name: app.name.clone(),
        agents: app.agent_names().into_iter().map(Into::into).collect(),
    });
    Json(Components {
        apps: apps.collect(),
        catalog: source.report(),
        mcp_servers: state.mcp_servers().statuses(),
        a2a_agents: state.a2a_agents().statuses(),
        openapi: state.apis().statuses(),
    })
}

/// Returns a component with its grants, limits and stored revisions.
#[utoipa::path(
    get,
    path = "/components/{name}",
    tag = "components",
    responses((status = 200, description = "The component", body = schemas::ComponentDetail))
)]
async fn component(
    State(state): State<AppState>,
    Params(name): Params<String>,
) -> Result<Json<ComponentDetail>, ApiError> {
    let unknown = RestoreError::UnknownComponent(name.clone());
    let detail = blocking(move || state.source().component(&name)).await?;
    detail.map(Json).ok_or_else(|| unknown.into())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct CompareQuery {
    /// SHA-256 of a stored revision, in hexadecimal.
    from: String,
    /// SHA-256 of another stored revision.
    to: String,
}

/// Returns the differences between two revisions of a component.
#[utoipa::path(
    get,
    path = "/components/{name}/compare",
    tag = "components",
    params(CompareQuery),
    responses((status = 200, description = "The differences", body = schemas::Comparison))
)]
async fn compare(
    State(state): State<AppState>,
    Params(name): Params<String>,
    QueryParams(query): QueryParams<CompareQuery>,
) -> Result<Json<Comparison>, ApiError> {
    let from = state.source().inspect_revision(&name, &query.from).await?;
    let to = state.source().inspect_revision(&name, &query.to).await?;
    Ok(Json(Comparison::between(&from, &to)))
}

#[derive(Deserialize, ToSchema)]
struct RollbackBody {
    /// SHA-256 of a stored revision, in hexadecimal.
    to: String,
}

/// Replaces the file of a component by a stored revision. The host then reloads it like any other change.
#[utoipa::path(
    post,
    path = "/components/{name}/rollback",
    tag = "components",
    request_body = RollbackBody,
    responses((status = 202, description = "The file is replaced"))
)]
async fn roll_back(
    State(state): State<AppState>,
    Params(name): Params<String>,
    JsonBody(body): JsonBody<RollbackBody>,
) -> Result<StatusCode, ApiError> {
    if state.config().dev_ui() != DevUi::Full {
        let detail = "this server does not let its clients roll components back; use `hatchery rollback`";
        let error = ApiError::new(StatusCode::FORBIDDEN, "ROLLBACK_NOT_ALLOWED", detail);
        return Err(error.advise("to allow it, set `server: { dev_ui: full }` in hatchery.yaml"));
    }
    blocking(move || state.source().restore_component(&name, &body.to)).await??;
    Ok(StatusCode::ACCEPTED)
}

/// Runs file operations on a blocking thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| ApiError::internal())
}

impl From<RestoreError> for ApiError {
    fn from(error: RestoreError) -> Self {
        let (status, code) = match &error {
            RestoreError::UnknownComponent(_) => (StatusCode::NOT_FOUND, "COMPONENT_NOT_FOUND"),
            RestoreError::UnknownRevision { .. } => (StatusCode::NOT_FOUND, "REVISION_NOT_FOUND"),
            RestoreError::Refused(_) => (StatusCode::FORBIDDEN, "REVISION_REFUSED"),
            RestoreError::File(cause) => {
                tracing::error!(%cause, "the file of a component cannot be replaced");
                return Self::internal();
            }
        };
        Self::new(status, code, error.to_string())
    }
}
