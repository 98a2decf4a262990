//! Service URIs. The part after the scheme is a path without percent-encoding; relative paths start at the current
//! directory.

use std::path::PathBuf;
use std::sync::Arc;

use hatchery_core::{ArtifactService, MemoryService, SessionService, StoreError};

use crate::{
    DirectoryArtifacts, Durability, KeywordMemory, MemoryArtifacts, MemorySessions, SimilaritySearch, SqliteMemory,
    SqliteSessions,
};

/// The schemes of session and memory services.
pub const SESSION_SCHEMES: [&str; 6] = ["memory", "sqlite", "postgres", "postgresql", "firestore", "agentengine"];

/// The schemes of artifact services.
pub const ARTIFACT_SCHEMES: [&str; 5] = ["memory", "file", "s3", "gs", "az"];

pub(crate) const SESSION_URIS: &str = "a session service is one of `memory:`, `sqlite:///absolute/path.db`, \
     `sqlite:relative/path.db`, `postgres://user@host/database`, `firestore://project/database` and \
     `agentengine://project/location/engine`";
pub(crate) const ARTIFACT_URIS: &str = "an artifact service is one of `memory:`, `file:///absolute/folder`, `file:relative/folder`, \
     `s3://bucket/prefix`, `gs://bucket/prefix` and `az://container/prefix`";
pub(crate) const MEMORY_URIS: &str = "a memory service is one of `memory:`, `sqlite:///absolute/path.db`, \
     `sqlite:relative/path.db`, `postgres://user@host/database`, `firestore://project/database` and \
     `agentengine://project/location/engine`";

/// Opens the session service of a URI: `memory:`, `sqlite:///absolute/path.db` or `sqlite:relative/path.db`; with the
/// feature `postgres` also `postgres://user@host/database`. `firestore:` and `agentengine:` need a client with access
/// tokens, so they are not opened here.
///
/// # Errors
/// [`StoreError::InvalidName`], which lists the valid forms, for any other URI; [`StoreError::Backend`] and
/// [`StoreError::InvalidRequest`] if the database cannot be used; [`StoreError::InvalidRequest`], which names the
/// constructor, for a service that needs a client.
pub async fn open_sessions(uri: &str) -> Result<Arc<dyn SessionService>, StoreError> {
    open_sessions_with(uri, Durability::default()).await
}

/// Opens the session service of a URI with this durability, which applies to SQLite only.
///
/// # Errors
/// As [`open_sessions`].
pub async fn open_sessions_with(uri: &str, durability: Durability) -> Result<Arc<dyn SessionService>, StoreError> {
    match split(uri) {
        ("memory", "") => Ok(Arc::new(MemorySessions::new())),
        ("sqlite", rest) => Ok(Arc::new(SqliteSessions::open_with(path(uri, rest, SESSION_URIS)?, durability).await?)),
        ("postgres" | "postgresql", rest) if rest.starts_with("//") => postgres_sessions(uri).await,
        ("firestore", _) => Err(needs_client("FirestoreSessionService")),
        ("agentengine", _) => Err(needs_tokens("AgentEngineSessions")),
        _ => Err(invalid(uri, SESSION_URIS)),
    }
}

/// Opens the artifact service of a URI: `memory:`, `file:///absolute/folder` or `file:relative/folder`; with the
/// feature `object-store` also `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`, with the settings
/// in the environment.
///
/// # Errors
/// [`StoreError::InvalidName`], which lists the valid forms, for any other URI; [`StoreError::Backend`] if the folder
/// cannot be created, or the bucket cannot be listed; [`StoreError::InvalidRequest`] for an object store without the
/// feature, or with settings that are not usable.
pub async fn open_artifacts(uri: &str) -> Result<Arc<dyn ArtifactService>, StoreError> {
    match split(uri) {
        ("memory", "") => Ok(Arc::new(MemoryArtifacts::new())),
        ("file", rest) => Ok(Arc::new(DirectoryArtifacts::open(path(uri, rest, ARTIFACT_URIS)?).await?)),
        ("s3" | "gs" | "az", rest) if rest.starts_with("//") => open_objects(uri).await,
        _ => Err(invalid(uri, ARTIFACT_URIS)),
    }
}

#[cfg(feature = "object-store")]
async fn open_objects(uri: &str) -> Result<Arc<dyn ArtifactService>, StoreError> {
    let variables = std::env::vars_os();
    let variables = variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Ok(Arc::new(crate::ObjectArtifacts::open(uri, variables).await?))
}

#[cfg(not(feature = "object-store"))]
async fn open_objects(uri: &str) -> Result<Arc<dyn ArtifactService>, StoreError> {
    let (scheme, _) = split(uri);
    Err(StoreError::InvalidRequest(format!(
        "artifacts in `{scheme}:` need the cargo feature `object-store`, which this program was built without; build it \
         with `--features object-store`, or use `file:`"
    )))
}

/// Opens the memory service of a URI: `memory:`, `sqlite:///absolute/path.db` or `sqlite:relative/path.db`; with the
/// feature `postgres` also `postgres://user@host/database`. `firestore:` and `agentengine:` need a client with access
/// tokens, so they are not opened here.
///
/// # Errors
/// [`StoreError::InvalidName`], which lists the valid forms, for any other URI; [`StoreError::Backend`] and
/// [`StoreError::InvalidRequest`] if the database cannot be used; [`StoreError::InvalidRequest`], which names the
/// constructor, for a service that needs a client.
pub async fn open_memory(uri: &str) -> Result<Arc<dyn MemoryService>, StoreError> {
    open_memory_with(uri, Durability::default(), None).await
}

/// Opens the memory service of a URI with this durability, which applies to SQLite only, and a search by meaning.
///
/// # Errors
/// As [`open_memory`], and [`StoreError::InvalidRequest`] if the service has no search by meaning, as PostgreSQL
/// without the extension `vector`.
pub async fn open_memory_with(
    uri: &str,
    durability: Durability,
    similarity: Option<SimilaritySearch>,
) -> Result<Arc<dyn MemoryService>, StoreError> {
    match (split(uri), similarity) {
        (("memory", ""), None) => Ok(Arc::new(KeywordMemory::new())),
        (("memory", ""), Some(similarity)) => Ok(Arc::new(KeywordMemory::new().with_similarity(similarity))),
        (("sqlite", rest), similarity) => {
            let memory = SqliteMemory::open_with(path(uri, rest, MEMORY_URIS)?, durability).await?;
            Ok(Arc::new(match similarity {
                Some(similarity) => memory.with_similarity(similarity),
                None => memory,
            }))
        }
        (("postgres" | "postgresql", rest), similarity) if rest.starts_with("//") => postgres_memory(uri, similarity).await,
        (_, Some(_)) => Err(StoreError::InvalidRequest(
            "this memory service compares no embeddings: use one in SQLite (`sqlite:`), in PostgreSQL (`postgres:`) or in \
             memory (`memory:`)"
                .into(),
        )),
        (("firestore", _), None) => Err(needs_client("FirestoreMemoryService")),
        (("agentengine", _), None) => Err(needs_tokens("AgentEngineMemory")),
        (_, None) => Err(invalid(uri, MEMORY_URIS)),
    }
}

#[cfg(feature = "postgres")]
async fn postgres_sessions(uri: &str) -> Result<Arc<dyn SessionService>, StoreError> {
    Ok(Arc::new(crate::PostgresSessions::open(uri).await?))
}

#[cfg(feature = "postgres")]
async fn postgres_memory(
    uri: &str,
    similarity: Option<SimilaritySearch>,
) -> Result<Arc<dyn MemoryService>, StoreError> {
    let memory = crate::PostgresMemory::open(uri).await?;
    Ok(Arc::new(match similarity {
        Some(similarity) => memory.with_similarity(similarity).await?,
        None => memory,
    }))
}

#[cfg(not(feature = "postgres"))]
async fn postgres_sessions(_: &str) -> Result<Arc<dyn SessionService>, StoreError> {
    Err(needs_postgres())
}

#[cfg(not(feature = "postgres"))]
async fn postgres_memory(_: &str, _: Option<SimilaritySearch>) -> Result<Arc<dyn MemoryService>, StoreError> {
    Err(needs_postgres())
}

#[cfg(not(feature = "postgres"))]
fn needs_postgres() -> StoreError {
    StoreError::InvalidRequest(
        "`postgres:` needs the cargo feature `postgres`, which this program was built without; build it with \
         `--features postgres`, or use `sqlite:`"
            .into(),
    )
}

/// Returns the path of a URI with this scheme. `None` for other URIs.
pub(crate) fn local_path(uri: &str, scheme: &str) -> Option<PathBuf> {
    match split(uri) {
        (found, rest) if found == scheme => path(uri, rest, "").ok(),
        _ => None,
    }
}

/// Returns the error of a service that needs credentials, which this crate does not look for.
fn needs_client(service: &str) -> StoreError {
    StoreError::InvalidRequest(format!(
        "a Firestore service needs a client with access tokens: create it with `{service}::new`, or open the URI with the \
         crate `hatchery`"
    ))
}

/// As [`needs_client`], for Vertex AI Agent Engine.
fn needs_tokens(service: &str) -> StoreError {
    StoreError::InvalidRequest(format!(
        "Agent Engine needs access tokens: create the service with `{service}::open`, or open the URI with the crate \
         `hatchery`"
    ))
}

/// Splits a URI into scheme and rest. A URI without a colon is a scheme.
fn split(uri: &str) -> (&str, &str) {
    uri.split_once(':').unwrap_or((uri, ""))
}

/// Returns the path in `///absolute` or `relative`. Two slashes are rejected, because a host name would follow; and so
/// is `:memory:`, SQLite's name for a database that connections do not share.
fn path(uri: &str, rest: &str, valid: &'static str) -> Result<PathBuf, StoreError> {
    let path = match rest.strip_prefix("//") {
        Some(path) if path.len() > 1 && path.starts_with('/') => path,
        None if !rest.is_empty() && rest != ":memory:" => rest,
        _ => return Err(invalid(uri, valid)),
    };
    Ok(PathBuf::from(path))
}

/// Returns the error that lists the valid forms. Repeats only the scheme of an unknown URI, because the rest may
/// contain a password.
pub(crate) fn invalid(uri: &str, valid: &'static str) -> StoreError {
    let name = match split(uri) {
        ("memory" | "sqlite" | "file", _) => uri.to_owned(),
        (_, "") => uri.to_owned(),
        (scheme, _) => format!("{scheme}:…"),
    };
    StoreError::InvalidName { name, reason: valid }
}
