//! Artifacts of a session. Names may contain `/`, so all paths below `artifacts/` are one route that is parsed here.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hatchery_core::{EventWindow, Part, PartData, SessionKey};
use serde::{Deserialize, Serialize};

use crate::body::LargeBody;
use crate::error::ApiError;
use crate::extract::{Json, Params, QueryParams};
use crate::state::AppState;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route(
            "/apps/{app}/users/{user}/sessions/{session}/artifacts",
            get(list).post(save).layer(Extension(LargeBody)),
        )
        .route("/apps/{app}/users/{user}/sessions/{session}/artifacts/{*path}", get(read).delete(delete))
}

async fn list(
    State(state): State<AppState>,
    Params((app, user, id)): Params<(String, String, String)>,
) -> Result<axum::Json<Vec<String>>, ApiError> {
    let key = existing_session(&state, app, user, id).await?;
    Ok(axum::Json(state.services().artifacts.list(&key).await?))
}

#[derive(Deserialize)]
struct SaveBody {
    filename: String,
    artifact: Part,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SavedArtifact {
    filename: String,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<String>,
}

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

#[derive(Deserialize)]
struct ReadQuery {
    version: Option<String>,
}

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
