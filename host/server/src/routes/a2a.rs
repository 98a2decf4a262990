//! `/a2a/{app}`: apps for A2A clients, over JSON-RPC and HTTP+JSON, with their cards.

use axum::Extension;
use axum::body::Body;
use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{any, get, post};
use hatchery_a2a::A2aEndpoint;
use utoipa_axum::routes;

use crate::api_document::ApiRouter;
use crate::auth::Principal;
use crate::body::{self, LargeBody};
use crate::error::ApiError;
use crate::extract::Params;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new()
        .route("/a2a/{app}", post(app))
        .route("/a2a/{app}/{*path}", any(path))
        .layer(Extension(LargeBody))
        .routes(routes!(default_card))
        .route("/.well-known/agent.json", get(default_card))
}

async fn app(
    state: State<AppState>,
    principal: Principal,
    Params(app): Params<String>,
    request: Request,
) -> Result<Response, ApiError> {
    handle(&state, &principal, &app, "", request).await
}

async fn path(
    state: State<AppState>,
    principal: Principal,
    Params((app, path)): Params<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    handle(&state, &principal, &app, &path, request).await
}

/// Forwards a request to the A2A service, after its body was read within the limits of size, time and memory.
async fn handle(
    state: &AppState,
    principal: &Principal,
    app: &str,
    path: &str,
    request: Request,
) -> Result<Response, ApiError> {
    let endpoint = endpoint(state, request.method(), request.uri())?;
    let (mut parts, body) = request.into_parts();
    if let Some(scope) = principal.scope() {
        parts.extensions.insert(scope.clone());
    }
    let body = body::read(&parts, body, &state.config()).await?;
    match endpoint.handle(app, path, Request::from_parts(parts, body)).await {
        Some(response) => Ok(response.map(Body::new)),
        None => Err(match state.app(app) {
            Ok(_) => {
                let detail = format!(
                    "A2A clients may not use the app `{app}`; `a2a.expose` in hatchery.yaml lists those that they may"
                );
                ApiError::new(StatusCode::NOT_FOUND, "APP_NOT_EXPOSED", detail)
            }
            Err(_) if A2aEndpoint::means_default_app(app, path) => no_default_app(state),
            Err(error) => error,
        }),
    }
}

/// Returns the card of the app that `a2a.expose.default_app` names, or of the only app.
#[utoipa::path(
    get,
    path = "/.well-known/agent-card.json",
    tag = "a2a",
    responses((status = 200, description = "The card", body = Object))
)]
async fn default_card(
    State(state): State<AppState>,
    method: Method,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let card = endpoint(&state, &method, &uri)?.default_card(&headers);
    card.map(|response| response.map(Body::new)).ok_or_else(|| no_default_app(&state))
}

fn no_default_app(state: &AppState) -> ApiError {
    let path = state.config().path_of("/a2a/APP/.well-known/agent-card.json");
    let detail = format!(
        "this server has several apps: read the card of one at `{path}`, or name one by `a2a.expose.default_app` in hatchery.yaml"
    );
    ApiError::new(StatusCode::NOT_FOUND, "NO_DEFAULT_APP", detail)
}

fn endpoint<'a>(state: &'a AppState, method: &Method, uri: &Uri) -> Result<&'a A2aEndpoint, ApiError> {
    state.a2a().ok_or_else(|| {
        let detail = format!("no route for {method} {}: this server has no A2A endpoint", uri.path());
        ApiError::new(StatusCode::NOT_FOUND, "ROUTE_NOT_FOUND", detail)
    })
}
