//! Artifacts of a session. Names may contain `/`, so all paths below `artifacts/` are one route that is parsed here.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hatchery_core::{EventWindow, Part, PartData, SessionKey};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::UtoipaMethodRouterExt;
use utoipa_axum::routes;

use crate::api_document::{ApiRouter, schemas};
use crate::body::LargeBody;
use crate::error::ApiError;
use crate::extract::{Json, Params, QueryParams};
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(list, save).layer(Extension(LargeBody))).routes(routes!(read, delete))
}

/// Returns the names of the artifacts of a session and of its user.
#[utoipa::path(
    get,
    path = "/apps/{app}/users/{user}/sessions/{session}/artifacts",
    tag = "artifacts",
    responses((status = 200, description = "The names", body = [String]))
)]
async fn list(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
) -> Result<axum::Json<Vec<String>>, ApiError> {
    let key = existing_session(&state, app, user, id).await?;
    Ok(axum::Json(state.services().artifacts.list(&key).await?))
}

#[derive(Deserialize, ToSchema)]
struct SaveBody {
    filename: String,
    #[schema(value_type = schemas::Part)]
    artifact: Part,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SavedArtifact {
    filename: String,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<String>,
}

/// Stores a new version of an artifact.
#[utoipa::path(
    post,
    path = "/apps/{app}/users/{user}/sessions/{session}/artifacts",
    tag = "artifacts",
    request_body = SaveBody,
    responses((status = 200, description = "The artifact is stored", body = SavedArtifact))
)]
async fn save(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
    Json(body): Json<SaveBody>,
) -> Result<axum::Json<SavedArtifact>, ApiError> {
    if body.artifact.data == PartData::Other && body.artifact.extra.is_empty() {
        return Err(ApiError::bad_input("the artifact is empty; set `text`, `inlineData` or `fileData`"));
    }
    let key = existing_session(&state, app, user, id).await?;
    let version = state.services().artifacts.save(&key, &body.filename, &body.artifact).await?;
    let mime_type = match body.artifact.data {
        PartData::InlineData(blob) => Some(blob.mime_type),
        _ => None,
    };
    Ok(axum::Json(SavedArtifact { filename: body.filename, version, mime_type }))
}

/// A parsed path below `artifacts/`.
#[derive(Debug, PartialEq)]
enum Target<'a> {
    /// `name`
    Newest(&'a str),
    /// `name/versions`
    Versions(&'a str),
    /// `name/versions/3`, `name/versions/latest`
    Version(&'a str, &'a str),
}

fn parse_target(path: &str) -> Target<'_> {
    if let Some(name) = path.strip_suffix("/versions") {
        return Target::Versions(name);
    }
    match path.rsplit_once('/') {
        Some((front, version)) => match front.strip_suffix("/versions") {
            Some(name) => Target::Version(name, version),
            None => Target::Newest(path),
        },
        None => Target::Newest(path),
    }
}

#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the schema of a response")]
enum ArtifactOrVersions {
    Artifact(Box<schemas::Part>),
    Versions(Vec<u64>),
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ReadQuery {
    /// A number from 0, or `latest`. Default: `latest`.
    version: Option<String>,
}

/// Returns an artifact: below `NAME` the newest version, below `NAME/versions/N` that one, below `NAME/versions` the
/// numbers of all versions.
#[utoipa::path(
    get,
    path = "/apps/{app}/users/{user}/sessions/{session}/artifacts/{*path}",
    tag = "artifacts",
    params(ReadQuery),
    responses((status = 200, description = "The artifact, or its versions", body = ArtifactOrVersions))
)]
async fn read(
    State(state): State<AppState>,
    Params((app, user, id, path)): Params<(String, String, String, String)>,
    QueryParams(query): QueryParams<ReadQuery>,
) -> Result<Response, ApiError> {
    let key = existing_session(&state, app, user, id).await?;
    let (name, version) = match parse_target(&path) {
        Target::Versions(name) => return versions(&state, &key, name).await,
        Target::Version(name, version) => (name, Some(version)),
        Target::Newest(name) => (name, query.version.as_deref()),
    };
    let version = version.map(parse_version).transpose()?.flatten();
    let part = state.services().artifacts.load(&key, name, version).await?;
    let part = part.ok_or_else(|| ApiError::artifact_not_found(name, version))?;
    Ok(axum::Json(part).into_response())
}

async fn versions(state: &AppState, key: &SessionKey, name: &str) -> Result<Response, ApiError> {
    let versions = state.services().artifacts.versions(key, name).await?;
    if versions.is_empty() {
        return Err(ApiError::artifact_not_found(name, None));
    }
    Ok(axum::Json(versions).into_response())
}

/// Deletes all versions of an artifact.
#[utoipa::path(
    delete,
    path = "/apps/{app}/users/{user}/sessions/{session}/artifacts/{*path}",
    tag = "artifacts",
    responses((status = 204, description = "The artifact is deleted"))
)]
async fn delete(
    State(state): State<AppState>,
    Params((app, user, id, name)): Params<(String, String, String, String)>,
) -> Result<StatusCode, ApiError> {
    let key = existing_session(&state, app, user, id).await?;
    state.services().artifacts.delete(&key, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn parse_version(text: &str) -> Result<Option<u64>, ApiError> {
    if text == "latest" {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| ApiError::invalid(format!("`{text}` is not a version; write a number from 0 or `latest`")))
}

/// Returns the key of a session, after a check that it exists.
async fn existing_session(state: &AppState, app: String, user: String, id: String) -> Result<SessionKey, ApiError> {
    let key = SessionKey::new(app, user, id);
    state.session(&key, EventWindow::Recent(0)).await?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_contain_slashes_and_the_word_versions() {
        assert_eq!(parse_target("a.txt"), Target::Newest("a.txt"));
        assert_eq!(parse_target("dir/a.txt"), Target::Newest("dir/a.txt"));
        assert_eq!(parse_target("versions"), Target::Newest("versions"));
        assert_eq!(parse_target("dir/a.txt/versions"), Target::Versions("dir/a.txt"));
        assert_eq!(parse_target("dir/a.txt/versions/3"), Target::Version("dir/a.txt", "3"));
        assert_eq!(parse_target("a/versions/latest"), Target::Version("a", "latest"));
    }
}
