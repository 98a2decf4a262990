//! Test calls of a component's tool: one call in a temporary session, with the grants and limits in force.

use std::sync::{Arc, Mutex};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use hatchery::DevUi;
use hatchery_core::sync::MutexExt;
use hatchery_core::{Content, EventWindow, JsonMap, RunError, Services, SessionKey, Tool, ToolError};
use hatchery_engine::build::custom;
use hatchery_engine::tasks::run_to_completion;
use hatchery_engine::{App, RunRequest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::routes;
use uuid::Uuid;

use super::traces::SpanView;
use crate::api_document::{ApiRouter, schemas};
use crate::error::ApiError;
use crate::extract::{Params, RawJson};
use crate::state::AppState;

/// The name of the app and the agent of a test call.
const APP: &str = "tool_call";

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(call))
}

#[derive(Default, Deserialize, ToSchema)]
struct CallBody {
    #[schema(value_type = Option<Object>)]
    #[serde(default)]
    args: JsonMap,
    /// The initial state of the session.
    #[schema(value_type = Option<Object>)]
    #[serde(default)]
    state: JsonMap,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallView {
    #[serde(flatten)]
    outcome: Outcome,
    /// The changes of the session's state.
    state_delta: JsonMap,
    artifacts: Vec<String>,
    /// The spans of the call. Empty if the host records none.
    spans: Vec<SpanView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Outcome {
    Result(Value),
    Error { code: String, message: String },
}

impl From<Result<Value, ToolError>> for Outcome {
    fn from(result: Result<Value, ToolError>) -> Self {
        match result {
            Ok(value) => Self::Result(value),
            Err(ToolError::Recoverable(message)) => Self::Error { code: "TOOL_FAILED".into(), message },
            Err(ToolError::Fatal { code, message, .. }) => Self::Error { code: code.into_owned(), message },
        }
    }
}

/// Calls a tool of a component in a temporary session.
#[utoipa::path(
    post,
    path = "/components/{name}/tools/{tool}/call",
    tag = "components",
    request_body = Option<CallBody>,
    responses((status = 200, description = "The result, or the error of the tool", body = schemas::ToolCall))
)]
async fn call(
    State(state): State<AppState>,
    Params((component, name)): Params<(String, String)>,
    body: RawJson,
) -> Result<Json<CallView>, ApiError> {
    let body: CallBody = body.parse_or_default()?;
    if state.config().dev_ui() != DevUi::Full {
        let detail = "this server does not let its clients call single tools; an agent can call them";
        let error = ApiError::new(StatusCode::FORBIDDEN, "TOOL_CALL_NOT_ALLOWED", detail);
        return Err(error.advise("to allow it, set `server: { dev_ui: full }` in hatchery.yaml"));
    }
    let tool = find_tool(&state, &component, &name)?;
    let permit = state.acquire_run_permit()?;
    // Completed even if the client disconnects, so that the session is deleted.
    let called = run_to_completion(async move {
        let _permit = permit;
        Ok(call_once(&state, tool, body).await)
    });
    called.await?.map(Json)
}

/// Calls the tool in a temporary session, which is deleted afterwards.
async fn call_once(state: &AppState, tool: Arc<dyn Tool>, body: CallBody) -> Result<CallView, ApiError> {
    let user = format!("{APP}-{}", Uuid::new_v4());
    let session = state.services().sessions.create(APP, &user, None, body.state).await?;
    let called = call_in_session(state, tool, body.args, &session.key).await;
    delete(state.services(), &session.key).await?;
    called
}

/// Deletes the session of a test call, with its artifacts and the artifacts of its temporary user.
async fn delete(services: &Services, key: &SessionKey) -> Result<(), ApiError> {
    for name in services.artifacts.list(key).await? {
        services.artifacts.delete(key, &name).await?;
    }
    Ok(services.sessions.delete(key).await?)
}

fn find_tool(state: &AppState, component: &str, name: &str) -> Result<Arc<dyn Tool>, ApiError> {
    let not_found = |detail: String| ApiError::new(StatusCode::NOT_FOUND, "TOOL_NOT_FOUND", detail);
    let items = state.source().items().ok_or_else(|| not_found("this host has no components".into()))?;
    items.tool(&format!("{component}/{name}")).map_err(|error| not_found(error.to_string()))
}

/// Calls the tool by an agent in code, so that the usual pipeline of tool calls applies.
async fn call_in_session(
    state: &AppState,
    tool: Arc<dyn Tool>,
    args: JsonMap,
    key: &SessionKey,
) -> Result<CallView, ApiError> {
    let name = tool.declaration().name.clone();
    let result = Arc::new(Mutex::new(None));
    let place = result.clone();
    let agent = custom(APP, move |cx| {
        let (name, args, place) = (name.clone(), args.clone(), place.clone());
        async move {
            let outcome = cx.call.host()?.call_tool(&cx.call, &name, args).await;
            *place.lock_unpoisoned() = Some(outcome);
            // Stores the changes of the call.
            cx.flush().await
        }
    });
    let agent = agent.tool(tool).build().map_err(|error| ApiError::bad_input(error.to_string()))?;
    let app = App::new(APP, agent).map_err(|error| ApiError::bad_input(error.to_string()))?;
    let request = RunRequest::new(&*key.user, &*key.id, Content::user("call"));
    let ended = state.runner().run(Arc::new(app), request).await?.collect().await;
    let outcome = match (result.lock_unpoisoned().take(), ended) {
        (Some(result), _) => Outcome::from(result),
        (None, Ok(_)) => return Err(ApiError::internal()),
        (None, Err(error)) => run_error(error),
    };
    let mut view = CallView { outcome, state_delta: JsonMap::new(), artifacts: Vec::new(), spans: Vec::new() };
    let stored = state.services().sessions.get(key, EventWindow::All).await?;
    for event in stored.iter().flat_map(|session| &session.events) {
        view.state_delta.extend(event.actions.state_delta.clone());
        view.artifacts.extend(event.actions.artifact_delta.keys().cloned());
    }
    view.spans = state.traces().session(Some(APP), &key.id).iter().map(|span| SpanView::from(&**span)).collect();
    Ok(view)
}

fn run_error(error: RunError) -> Outcome {
    Outcome::Error { code: error.code().into(), message: error.to_string() }
}
