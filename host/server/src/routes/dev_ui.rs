//! The developer UI at `/dev-ui`: the embedded page and its files, or another UI from a folder.

use std::path::Path;

use axum::Json;
use axum::body::Body;
use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hatchery::{DevUi, ServerConfig};
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_http::services::{ServeDir, ServeFile};

use crate::api_document::ApiRouter;
use crate::dev_ui;
use crate::error::ApiError;
use crate::routes::route_not_found;
use crate::state::AppState;

/// The settings that ADK's web UI reads.
const RUNTIME_CONFIG: &str = "assets/config/runtime-config.json";

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new()
        .route("/", get(|state, method, OriginalUri(uri): OriginalUri| redirect(state, method, uri, "./dev-ui/")))
        .route("/dev-ui", get(|state, method, OriginalUri(uri): OriginalUri| redirect(state, method, uri, "dev-ui/")))
        .route("/dev-ui/", get(serve))
        .route("/dev-ui/{*path}", get(serve))
        .route("/config/telemetry", get(telemetry).post(telemetry))
}

/// Disables the usage reports of ADK's web client, which otherwise asks for consent. The client cannot enable them.
async fn telemetry() -> Json<Value> {
    Json(json!({"telemetry": false}))
}

/// Redirects to a relative URL, because a proxy may have removed a prefix of the path. Keeps the query.
async fn redirect(State(state): State<AppState>, method: Method, uri: Uri, target: &str) -> Result<Response, ApiError> {
    if state.config().dev_ui() == DevUi::Off {
        return Err(route_not_found(method, uri).await);
    }
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let location =
        HeaderValue::try_from(format!("{target}{query}")).map_err(|_| ApiError::bad_input("invalid query"))?;
    Ok((StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location)]).into_response())
}

async fn serve(
    State(state): State<AppState>,
    OriginalUri(original): OriginalUri,
    request: Request,
) -> Result<Response, ApiError> {
    let config = state.config();
    let uri = request.uri().clone();
    let path = uri.path().strip_prefix("/dev-ui/").unwrap_or_default();
    if config.dev_ui() == DevUi::Off {
        return Err(route_not_found(request.method().clone(), original).await);
    }
    if let Some(folder) = &config.dev_ui_folder {
        return Ok(serve_folder(folder, path, &config, request).await);
    }
    let served = match dev_ui::file(path, request.headers().get(header::IF_NONE_MATCH)) {
        Some(file) => Some(file),
        // A missing file is an error; every other path is a place in the page.
        None if path.starts_with("assets/") => None,
        None => dev_ui::page(path, config.dev_ui()),
    };
    match served {
        Some(response) => Ok(response),
        None => Err(route_not_found(request.method().clone(), original).await),
    }
}

/// Serves a file of a folder; `index.html` for paths without a file.
async fn serve_folder(folder: &Path, path: &str, config: &ServerConfig, request: Request) -> Response {
    if path == RUNTIME_CONFIG {
        return Json(json!({"backendUrl": config.path_of(""), "telemetry": false})).into_response();
    }
    let (mut parts, _) = request.into_parts();
    parts.uri = Uri::try_from(format!("/{path}")).unwrap_or_default();
    let files = ServeDir::new(folder).fallback(ServeFile::new(folder.join("index.html")));
    // Missing files are responses, so that this cannot fail.
    let mut response = match files.oneshot(Request::from_parts(parts, Body::empty())).await {
        Ok(response) => response.into_response(),
        Err(never) => match never {},
    };
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, dev_ui::FOLDER_POLICY);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
