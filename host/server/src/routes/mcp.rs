//! `/mcp`: the endpoint for MCP clients, over streamable HTTP.

use axum::Extension;
use axum::body::Body;
use axum::extract::{OriginalUri, Request, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::any;

use crate::api_document::ApiRouter;
use crate::auth::Principal;
use crate::body::{self, LargeBody};
use crate::error::ApiError;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().route("/mcp", any(mcp)).layer(Extension(LargeBody))
}

/// Forwards a request to the MCP service, after its body was read within the limits of size, time and memory.
async fn mcp(
    State(state): State<AppState>,
    principal: Principal,
    method: Method,
    OriginalUri(uri): OriginalUri,
    request: Request,
) -> Result<Response, ApiError> {
    let Some(endpoint) = state.mcp() else {
        let detail = format!("no route for {method} {}: this server has no MCP endpoint", uri.path());
        return Err(ApiError::new(StatusCode::NOT_FOUND, "ROUTE_NOT_FOUND", detail));
    };
    let (mut parts, body) = request.into_parts();
    if let Some(scope) = principal.mcp_scope() {
        parts.extensions.insert(scope);
    }
    let body = body::read(&parts, body, &state.config()).await?;
    Ok(endpoint.handle(Request::from_parts(parts, body)).await.map(Body::new))
}
