//! Editing of an app's YAML files, for the developer UI and ADK's web client.

mod multipart;

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hatchery::{AppFile, AppFiles, AppFilesError, DevUi, Diagnostic, Texts};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::api_document::{ApiRouter, schemas};
use crate::error::ApiError;
use crate::extract::{Json as JsonBody, Params, QueryParams, RawBody, deserialize_boolean};
use crate::state::AppState;

const ROOT_FILE: &str = "root_agent.yaml";

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new()
        .routes(routes!(list, write))
        .routes(routes!(check))
        .routes(routes!(read))
        .routes(routes!(save))
        .routes(routes!(cancel))
        .route("/builder/app/{app}", get(read))
        .route("/builder/save", post(save_any))
        .route("/builder/app/{app}/cancel", post(cancel))
}

/// Returns the files of the apps in the served folder.
pub(super) fn app_files(state: &AppState) -> Result<AppFiles, ApiError> {
    let error =
        || ApiError::new(StatusCode::NOT_FOUND, "NO_FOLDER", "this host serves no folder whose files can be edited");
    state.source().app_files().ok_or_else(error)
}

/// Checks that the configuration allows clients to read and change the files of apps.
pub(super) fn require_full(state: &AppState) -> Result<(), ApiError> {
    if state.config().dev_ui() == DevUi::Full {
        return Ok(());
    }
    let detail = "this server does not let its clients read and change the files of apps";
    let error = ApiError::new(StatusCode::FORBIDDEN, "BUILDER_NOT_ALLOWED", detail);
    Err(error.advise("to allow it, set `server: { dev_ui: full }` in hatchery.yaml"))
}

#[derive(Serialize, ToSchema)]
struct FilesView {
    #[schema(value_type = Vec<schemas::AppFile>)]
    files: Vec<AppFile>,
}

/// Returns the YAML files of an app.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/files",
    tag = "builder",
    responses((status = 200, description = "The files", body = FilesView))
)]
async fn list(State(state): State<AppState>, Params(app): Params<String>) -> Result<Json<FilesView>, ApiError> {
    require_full(&state)?;
    Ok(Json(FilesView { files: read_files(&state, app).await? }))
}

async fn read_files(state: &AppState, app: String) -> Result<Vec<AppFile>, ApiError> {
    let files = app_files(state)?;
    let listed = tokio::task::spawn_blocking(move || files.list(&app)).await.map_err(|_| ApiError::internal())?;
    Ok(listed?)
}

#[derive(Deserialize, ToSchema)]
struct FilesBody {
    /// Texts by path.
    #[schema(value_type = Object)]
    files: Texts,
    /// The SHA-256 of each file before the edit, to detect concurrent changes.
    #[serde(default)]
    known: BTreeMap<String, String>,
}

#[derive(Serialize, ToSchema)]
struct CheckView {
    /// Empty if the app can be loaded.
    #[schema(value_type = Vec<schemas::Diagnostic>)]
    diagnostics: Vec<Diagnostic>,
}

/// Checks files without writing them.
#[utoipa::path(
    post,
    path = "/dev/apps/{app}/check",
    tag = "builder",
    request_body = FilesBody,
    responses((status = 200, description = "The problems", body = CheckView))
)]
async fn check(
    State(state): State<AppState>,
    Params(app): Params<String>,
    JsonBody(body): JsonBody<FilesBody>,
) -> Result<Json<CheckView>, ApiError> {
    require_full(&state)?;
    let diagnostic = app_files(&state)?.check(&app, body.files).await?;
    Ok(Json(CheckView { diagnostics: diagnostic.into_iter().collect() }))
}

/// Writes files if the app can be loaded with them. The host then reloads them like any other change.
#[utoipa::path(
    post,
    path = "/dev/apps/{app}/files",
    tag = "builder",
    request_body = FilesBody,
    responses((status = 200, description = "The files", body = FilesView))
)]
async fn write(
    State(state): State<AppState>,
    Params(app): Params<String>,
    JsonBody(body): JsonBody<FilesBody>,
) -> Result<Json<FilesView>, ApiError> {
    require_full(&state)?;
    write_files(&state, &app, body.files, &body.known).await?;
    Ok(Json(FilesView { files: read_files(&state, app).await? }))
}

async fn write_files(
    state: &AppState,
    app: &str,
    texts: Texts,
    known: &BTreeMap<String, String>,
) -> Result<(), ApiError> {
    let detail = texts.keys().cloned().collect::<Vec<_>>().join(", ");
    let written = app_files(state)?.write(app, texts, known).await;
    record_edit(app, &detail, written.is_ok());
    Ok(written?)
}

/// Writes an edit of files to the audit log.
pub(super) fn record_edit(app: &str, files: &str, is_written: bool) {
    let decision = if is_written { "allowed" } else { "refused" };
    tracing::info!(target: "hatchery::audit", app, decision, detail = files, "edit");
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ReadQuery {
    /// Default: `root_agent.yaml`.
    file_path: Option<String>,
    /// Whether to return the draft instead of the file, if there is one.
    #[serde(default, deserialize_with = "deserialize_boolean")]
    tmp: bool,
}

/// Returns a file as text; an empty text if there is no such file, and the client then offers no editor.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/builder",
    tag = "builder",
    params(ReadQuery),
    responses((status = 200, description = "The file", body = String, content_type = "text/plain"))
)]
async fn read(
    State(state): State<AppState>,
    Params(app): Params<String>,
    QueryParams(query): QueryParams<ReadQuery>,
) -> Result<Response, ApiError> {
    let path = query.file_path.unwrap_or_else(|| ROOT_FILE.into());
    let staged = query.tmp.then(|| state.drafts().read(&app, &path)).flatten();
    let text = match staged {
        Some(text) => text,
        None if state.config().dev_ui() != DevUi::Full => String::new(),
        None => match read_files(&state, app).await {
            Ok(files) => files.into_iter().find(|file| file.path == path).map(|file| file.text).unwrap_or_default(),
            Err(error) if error.status.is_client_error() => String::new(),
            Err(error) => return Err(error),
        },
    };
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct SaveQuery {
    /// Whether to save the files as a draft only.
    #[serde(default, deserialize_with = "deserialize_boolean")]
    tmp: bool,
}

/// Saves the files of a form, or saves them as a draft.
#[utoipa::path(
    post,
    path = "/dev/apps/{app}/builder/save",
    tag = "builder",
    params(SaveQuery),
    request_body(content = Object, content_type = "multipart/form-data"),
    responses((status = 200, description = "The files are saved", body = bool, content_type = "application/json"))
)]
async fn save(
    State(state): State<AppState>,
    Params(app): Params<String>,
    QueryParams(query): QueryParams<SaveQuery>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Json<bool>, ApiError> {
    save_files(&state, Some(app), query.tmp, &headers, &body).await
}

/// Saves files whose names begin with the name of the app.
async fn save_any(
    State(state): State<AppState>,
    QueryParams(query): QueryParams<SaveQuery>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Json<bool>, ApiError> {
    save_files(&state, None, query.tmp, &headers, &body).await
}

/// Saves the files of a form as a draft, or writes them together with the draft. Their names are `APP/PATH`.
async fn save_files(
    state: &AppState,
    app: Option<String>,
    is_draft: bool,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Json<bool>, ApiError> {
    require_full(state)?;
    let mut texts = Texts::new();
    let mut owner = app;
    for (name, text) in multipart::files(headers, body)? {
        let wrong = || {
            ApiError::bad_input(format!("`{name}` is not the name of a file of one app, such as `hello/{ROOT_FILE}`"))
        };
        let (folder, path) = name.split_once('/').ok_or_else(wrong)?;
        if owner.get_or_insert_with(|| folder.to_owned()) != folder {
            return Err(wrong());
        }
        texts.insert(path.to_owned(), text);
    }
    let app = owner.ok_or_else(|| ApiError::bad_input("the form has no files"))?;
    let files = app_files(state)?;
    if is_draft {
        // A draft may be incomplete, but its paths must be paths of an app.
        files.check(&app, texts.clone()).await?;
        state.drafts().add(&app, texts)?;
        return Ok(Json(true));
    }
    let mut all = state.drafts().files(&app);
    all.extend(texts);
    write_files(state, &app, all, &BTreeMap::new()).await?;
    state.drafts().remove(&app);
    Ok(Json(true))
}

/// Discards the draft of an app.
#[utoipa::path(
    post,
    path = "/dev/apps/{app}/builder/cancel",
    tag = "builder",
    responses((status = 200, description = "The draft is discarded", body = bool, content_type = "application/json"))
)]
async fn cancel(State(state): State<AppState>, Params(app): Params<String>) -> Result<Json<bool>, ApiError> {
    require_full(&state)?;
    state.drafts().remove(&app);
    Ok(Json(true))
}

impl From<AppFilesError> for ApiError {
    fn from(error: AppFilesError) -> Self {
        let (status, code) = match &error {
            AppFilesError::UnknownApp(_) => (StatusCode::NOT_FOUND, "APP_NOT_FOUND"),
            AppFilesError::InvalidName(_) | AppFilesError::InvalidPath(_) => (StatusCode::BAD_REQUEST, "BAD_INPUT"),
            AppFilesError::NotYaml(_) => (StatusCode::CONFLICT, "APP_NOT_EDITABLE"),
            AppFilesError::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE"),
            AppFilesError::Changed(_) => (StatusCode::PRECONDITION_FAILED, "FILE_CHANGED"),
            AppFilesError::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "INVALID_APP"),
            AppFilesError::File(cause) => {
                tracing::error!(%cause, "the files of an app cannot be used");
                return Self::internal();
            }
        };
        Self::new(status, code, error.to_string())
    }
}
