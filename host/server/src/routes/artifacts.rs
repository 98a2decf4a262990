//! Artifacts of a session. Names may contain `/`, so one route has all paths below `artifacts/` and parses them.

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, TryStreamExt};
use hatchery::ByteSize;
use hatchery_core::{
    ArtifactStream, ByteStream, EventWindow, JsonMap, Part, PartData, SessionKey, StoreError, Timestamp,
    check_custom_metadata, encode_segment,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, Ref, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::UtoipaMethodRouterExt;
use utoipa_axum::routes;

use crate::api_document::{ApiRouter, schemas};
use crate::body::{BodyMemory, LargeBody, Upload, reserve_response};
use crate::error::ApiError;
use crate::extract::{Json, Params, QueryParams, check_content_encoding};
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(list, save).layer(Extension(LargeBody))).routes(routes!(read, upload, delete))
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
#[serde(rename_all = "camelCase")]
struct SaveBody {
    filename: String,
    #[schema(value_type = schemas::Part)]
    artifact: Part,
    /// Custom metadata of the version; at most 64 KiB.
    #[serde(default, alias = "custom_metadata")]
    #[schema(value_type = Option<Object>)]
    custom_metadata: Option<JsonMap>,
}

#[derive(Serialize, ToSchema)]
struct SavedArtifact {
    filename: String,
    #[serde(flatten)]
    metadata: ArtifactMetadata,
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
    let SaveBody { filename, artifact, custom_metadata } = body;
    let custom_metadata = custom_metadata.unwrap_or_default();
    check_name(&filename)?;
    check_metadata(&filename, &custom_metadata)?;
    let key = existing_session(&state, app, user, id).await?;
    let version = state.services().artifacts.save_with(&key, &filename, &artifact, &custom_metadata).await?;
    check_session_after_save(&state, &key).await?;
    let metadata = metadata(&state, &key, &filename, Some(version)).await?;
    Ok(axum::Json(SavedArtifact { filename, metadata }))
}

/// Checks that a name is not a path of versions, which no request could read.
fn check_name(name: &str) -> Result<(), ApiError> {
    if matches!(parse_target(name), Target::Newest(_)) {
        return Ok(());
    }
    let detail = format!("`{name}` is the path of versions; write the name of the artifact alone");
    Err(ApiError::bad_input(detail))
}

fn check_metadata(name: &str, custom_metadata: &JsonMap) -> Result<(), ApiError> {
    check_custom_metadata(name, custom_metadata).map_err(|error| ApiError::bad_input(error.to_string()))
}

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct UploadQuery {
    /// Custom metadata of the version: a JSON object.
    custom_metadata: Option<String>,
}

impl UploadQuery {
    fn custom_metadata(&self) -> Result<JsonMap, ApiError> {
        let Some(json) = &self.custom_metadata else { return Ok(JsonMap::new()) };
        serde_json::from_str(json).map_err(|error| {
            ApiError::invalid(format!(
                "`customMetadata` is not a JSON object, such as {{\"author\": \"ada\"}}: {error}"
            ))
        })
    }
}

/// The media type of a body without `Content-Type`.
const BINARY: &str = "application/octet-stream";

/// Stores the body as a new version of an artifact. The body is streamed to the artifact service.
#[utoipa::path(
    put,
    path = "/apps/{app}/users/{user}/sessions/{session}/artifacts/{*path}",
    tag = "artifacts",
    params(UploadQuery),
    request_body(content = String, description = "The bytes, of any media type", content_type = "application/octet-stream"),
    responses((status = 200, description = "The artifact is stored", body = SavedArtifact))
)]
async fn upload(
    State(state): State<AppState>,
    Params((app, user, id, name)): Params<(String, String, String, String)>,
    QueryParams(query): QueryParams<UploadQuery>,
    request: Request,
) -> Result<axum::Json<SavedArtifact>, ApiError> {
    let (parts, body) = request.into_parts();
    let mut upload = Upload::start(&parts, body, &state.config(), state.services().artifacts.stream_buffer());
    let key = SessionKey::new(app, user, id);
    match store(&state, &key, &name, &parts.headers, &query, &mut upload).await {
        Ok(saved) => Ok(axum::Json(saved)),
        Err(error) => Err(upload.reject(error).await),
    }
}

async fn store(
    state: &AppState,
    key: &SessionKey,
    name: &str,
    headers: &HeaderMap,
    query: &UploadQuery,
    upload: &mut Upload,
) -> Result<SavedArtifact, ApiError> {
    check_name(name)?;
    check_content_encoding(headers)?;
    let custom_metadata = query.custom_metadata()?;
    check_metadata(name, &custom_metadata)?;
    state.session(key, EventWindow::Recent(0)).await?;
    let artifacts = &state.services().artifacts;
    let mime_type = media_type(headers);
    let version = artifacts.save_stream_with(key, name, mime_type, &custom_metadata, upload.chunks()).await?;
    check_session_after_save(state, key).await?;
    let metadata = metadata(state, key, name, Some(version)).await?;
    Ok(SavedArtifact { filename: name.to_owned(), metadata })
}

fn media_type(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or(BINARY)
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
    /// `name/versions/metadata`
    VersionsMetadata(&'a str),
    /// `name/versions/3/metadata`, `name/versions/latest/metadata`
    VersionMetadata(&'a str, &'a str),
}

fn parse_target(path: &str) -> Target<'_> {
    if let Some(name) = path.strip_suffix("/versions") {
        return Target::Versions(name);
    }
    if let Some(front) = path.strip_suffix("/metadata") {
        if let Some(name) = front.strip_suffix("/versions") {
            return Target::VersionsMetadata(name);
        }
        if let Some((name, version)) = split_version(front) {
            return Target::VersionMetadata(name, version);
        }
    }
    split_version(path).map_or(Target::Newest(path), |(name, version)| Target::Version(name, version))
}

/// Splits `name/versions/3` into the name and the version.
fn split_version(path: &str) -> Option<(&str, &str)> {
    let (front, version) = path.rsplit_once('/')?;
    Some((front.strip_suffix("/versions")?, version))
}

/// The schema of the responses below `artifacts/`. Parts and metadata have different keys, but allow additional ones.
struct ArtifactView;

impl PartialSchema for ArtifactView {
    fn schema() -> RefOr<Schema> {
        let metadata = || Ref::from_schema_name("ArtifactMetadata");
        AnyOfBuilder::new()
            .item(Ref::from_schema_name("Part"))
            .item(Vec::<u64>::schema())
            .item(metadata())
            .item(ArrayBuilder::new().items(metadata()))
            .into()
    }
}

impl ToSchema for ArtifactView {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas::Part::schemas(schemas);
        schemas.push(("Part".into(), schemas::Part::schema()));
        schemas.push(("ArtifactMetadata".into(), ArtifactMetadata::schema()));
    }
}

/// A version without its content.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ArtifactMetadata {
    version: u64,
    /// The URI of an external file, otherwise the path of the version.
    canonical_uri: String,
    /// The custom metadata of the version.
    #[schema(value_type = Object)]
    custom_metadata: JsonMap,
    /// The time of creation, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    create_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<String>,
    /// The size of the stored content in bytes.
    size: u64,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ReadQuery {
    /// A number from 0, or `latest`. Default: `latest`.
    version: Option<String>,
    /// `json`, the default: the artifact as a part, with its bytes in Base64. `media`: only its bytes or its text, as a
    /// stream.
    #[serde(default)]
    #[param(inline)]
    alt: Representation,
}

/// The representation of an artifact in a response.
#[derive(Deserialize, ToSchema, Default)]
#[serde(rename_all = "lowercase")]
enum Representation {
    #[default]
    Json,
    Media,
}

/// Returns an artifact: `NAME` is the newest version, `NAME/versions/N` that version, `NAME/versions` the numbers of
/// all versions. With `/metadata` appended, the last two return metadata instead.
#[utoipa::path(
    get,
    path = "/apps/{app}/users/{user}/sessions/{session}/artifacts/{*path}",
    tag = "artifacts",
    params(ReadQuery),
    responses((
        status = 200,
        description = "The artifact, its versions, or their metadata; with `alt=media` its bytes, of any media type",
        content((ArtifactView = "application/json"), (String = "application/octet-stream"))
    ))
)]
async fn read(
    State(state): State<AppState>,
    Params((app, user, id, path)): Params<(String, String, String, String)>,
    QueryParams(query): QueryParams<ReadQuery>,
    Extension(memory): Extension<BodyMemory>,
) -> Result<Response, ApiError> {
    let key = existing_session(&state, app, user, id).await?;
    let (name, version) = match parse_target(&path) {
        Target::Versions(name) => return Ok(axum::Json(versions(&state, &key, name).await?).into_response()),
        Target::VersionsMetadata(name) => return metadata_of_all(&state, &key, name).await,
        Target::VersionMetadata(name, version) => {
            let version = parse_version(version)?;
            return Ok(axum::Json(metadata(&state, &key, name, version).await?).into_response());
        }
        Target::Version(name, version) => (name, Some(version)),
        Target::Newest(name) => (name, query.version.as_deref()),
    };
    let version = version.map(parse_version).transpose()?.flatten();
    let artifacts = &state.services().artifacts;
    let artifact = artifacts.load_stream(&key, name, version).await?;
    let artifact = artifact.ok_or_else(|| ApiError::artifact_not_found(name, version))?;
    match query.alt {
        Representation::Media => {
            let buffer = artifacts.stream_buffer().map_or(artifact.len, |buffer| artifact.len.min(buffer as u64));
            reserve_response(&memory, buffer)?;
            media(name, artifact)
        }
        Representation::Json => {
            let limit = state.config().body_limit;
            if artifact.len > limit.bytes() as u64 {
                return Err(too_large_for_json(name, artifact.len, limit));
            }
            // The bytes, and their Base64.
            reserve_response(&memory, artifact.len.saturating_mul(7) / 3)?;
            let part = artifact.into_part(name, limit.bytes() as u64).await?;
            Ok(axum::Json(part).into_response())
        }
    }
}

fn too_large_for_json(name: &str, len: u64, limit: ByteSize) -> ApiError {
    let detail =
        format!("`{name}` has {len} bytes, and as JSON at most {limit} are returned; read it with `alt=media`");
    let error = ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "ARTIFACT_TOO_LARGE", detail);
    error.advise(format_args!("raise server.body_limit in hatchery.yaml to allow more"))
}

/// Returns the bytes or the text of an artifact. Browsers download it instead of showing it as a page.
fn media(name: &str, artifact: ArtifactStream) -> Result<Response, ApiError> {
    let ArtifactStream { part, len, bytes, .. } = artifact;
    let (mime_type, len, body) = match part.data {
        PartData::InlineData(blob) => (blob.mime_type, len, Body::from_stream(until_failure(bytes))),
        PartData::Text(text) => ("text/plain; charset=utf-8".to_owned(), text.len() as u64, Body::from(text)),
        _ => {
            let detail = format!("`{name}` has neither bytes nor text; leave out `alt=media` to read it as JSON");
            return Err(ApiError::new(StatusCode::CONFLICT, "NO_MEDIA", detail));
        }
    };
    let mime_type = HeaderValue::try_from(mime_type).ok().filter(|mime_type| !mime_type.is_empty());
    let file_name = name.rsplit(['/', ':']).next().unwrap_or(name);
    let disposition = format!("attachment; filename*=UTF-8''{}", utf8_percent_encode(file_name, NON_ALPHANUMERIC));
    let headers = [
        (header::CONTENT_TYPE, mime_type.unwrap_or(HeaderValue::from_static(BINARY))),
        (header::CONTENT_LENGTH, len.into()),
        (header::CONTENT_DISPOSITION, HeaderValue::try_from(disposition).map_err(|_| ApiError::internal())?),
    ];
    Ok((headers, body).into_response())
}

/// Logs the error that ends a stream. The client gets fewer bytes than `Content-Length` announced.
fn until_failure(bytes: ByteStream<'static>) -> ByteStream<'static> {
    bytes.inspect_err(|error| tracing::error!(%error, "an artifact cannot be read completely")).boxed()
}

async fn versions(state: &AppState, key: &SessionKey, name: &str) -> Result<Vec<u64>, ApiError> {
    let versions = state.services().artifacts.versions(key, name).await?;
    if versions.is_empty() { Err(ApiError::artifact_not_found(name, None)) } else { Ok(versions) }
}

async fn metadata_of_all(state: &AppState, key: &SessionKey, name: &str) -> Result<Response, ApiError> {
    let mut all = Vec::new();
    for version in versions(state, key, name).await? {
        all.push(metadata(state, key, name, Some(version)).await?);
    }
    Ok(axum::Json(all).into_response())
}

/// Returns the metadata of a version; of the newest one if `version` is `None`.
async fn metadata(
    state: &AppState,
    key: &SessionKey,
    name: &str,
    version: Option<u64>,
) -> Result<ArtifactMetadata, ApiError> {
    let number = match version {
        Some(number) => Some(number),
        None => versions(state, key, name).await?.last().copied(),
    };
    let number = number.ok_or_else(|| ApiError::artifact_not_found(name, None))?;
    let artifact = state.services().artifacts.load_stream(key, name, Some(number)).await?;
    let artifact = artifact.ok_or_else(|| ApiError::artifact_not_found(name, version))?;
    let ArtifactStream { part, created: create_time, custom_metadata, len, .. } = artifact;
    let [app, user, id, encoded] = [&*key.app, &*key.user, &*key.id, name].map(encode_segment);
    let route = format!("/apps/{app}/users/{user}/sessions/{id}/artifacts/{encoded}/versions/{number}");
    let path = state.config().path_of(&route);
    let (canonical_uri, mime_type, size) = match part.data {
        PartData::InlineData(blob) => (path, Some(blob.mime_type), len),
        PartData::FileData(file) => (file.file_uri, file.mime_type, 0),
        PartData::Text(text) => (path, None, text.len() as u64),
        _ => (path, None, 0),
    };
    Ok(ArtifactMetadata { version: number, canonical_uri, custom_metadata, create_time, mime_type, size })
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
    let artifacts = &state.services().artifacts;
    let is_there = !artifacts.versions(&key, &name).await?.is_empty();
    artifacts.delete(&key, &name).await?;
    if is_there {
        let (SessionKey { app, user, id }, action) = (&key, format!("delete the artifact `{name}`"));
        tracing::info!(target: "hatchery::audit", %app, %user, session = %id, action, decision = "deleted", "deletion");
    }
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

/// Checks that a session was not deleted while an artifact was saved. Otherwise deletes its artifacts.
async fn check_session_after_save(state: &AppState, key: &SessionKey) -> Result<(), ApiError> {
    if state.runner().delete_orphaned_artifacts(key).await? {
        return Err(StoreError::SessionNotFound(key.clone()).into());
    }
    Ok(())
}

/// Checks that a session exists, and returns its key.
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
        assert_eq!(parse_target("dir/a.txt/versions/metadata"), Target::VersionsMetadata("dir/a.txt"));
        assert_eq!(parse_target("dir/a.txt/versions/3/metadata"), Target::VersionMetadata("dir/a.txt", "3"));
        assert_eq!(parse_target("versions/metadata"), Target::Newest("versions/metadata"));
        assert_eq!(parse_target("a/metadata"), Target::Newest("a/metadata"));
    }
}
