//! Artifacts: named, versioned files of a session or, if the name starts with `user:`, of a user.

use std::fmt;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use crate::content::{Blob, Part, PartData};
use crate::error::StoreError;
use crate::id::SessionKey;
use crate::json::{JsonMap, json_len};
use crate::time::Timestamp;
use crate::usage::ArtifactUsage;

/// Bytes of an artifact in chunks, which are not empty. A stream ends after its first error.
pub type ByteStream<'a> = BoxStream<'a, Result<Bytes, StoreError>>;

/// The largest artifact that the host reads into memory as a whole: for a prompt, a tool or a component.
pub const MAX_LOADED_BYTES: u64 = 64 << 20;

/// The largest custom metadata of a version, in bytes of JSON.
pub const MAX_CUSTOM_METADATA_BYTES: usize = 64 << 10;

/// Checks the size of custom metadata.
///
/// # Errors
/// [`StoreError::InvalidRequest`] if it has more than [`MAX_CUSTOM_METADATA_BYTES`].
pub fn check_custom_metadata(name: &str, custom_metadata: &JsonMap) -> Result<(), StoreError> {
    let bytes = json_len(custom_metadata);
    if bytes > MAX_CUSTOM_METADATA_BYTES {
        let message = format!(
            "the custom metadata of `{name}` has {bytes} bytes, and at most {MAX_CUSTOM_METADATA_BYTES} are stored; save it as \
             an artifact of its own"
        );
        return Err(StoreError::InvalidRequest(message));
    }
    Ok(())
}

/// Returns the size in bytes that quotas count for the custom metadata of a version, including its separator.
pub fn custom_metadata_bytes(custom_metadata: &JsonMap) -> u64 {
    const SEPARATORS: usize = "[,]".len();
    if custom_metadata.is_empty() { 0 } else { (json_len(custom_metadata) + SEPARATORS) as u64 }
}

/// The newest version of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewestVersion {
    /// The name of the artifact, with `user:` if it is the user's.
    pub name: String,
    /// The number of the version.
    pub version: u64,
    /// When the version was saved; `None` if the service does not know it.
    pub created: Option<Timestamp>,
}

/// A version of an artifact whose bytes are yet to be read.
pub struct ArtifactStream {
    /// The part, whose inline data has no bytes.
    pub part: Part,
    /// When the version was saved; `None` if the service does not know it.
    pub created: Option<Timestamp>,
    /// The custom metadata of the version.
    pub custom_metadata: JsonMap,
    /// The number of bytes.
    pub len: u64,
    /// The bytes of the inline data; none if the part has other data.
    pub bytes: ByteStream<'static>,
}

impl fmt::Debug for ArtifactStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactStream").field("part", &self.part).field("len", &self.len).finish_non_exhaustive()
    }
}

impl ArtifactStream {
    /// Returns the size in bytes that quotas count for the version.
    pub fn stored_bytes(&self) -> u64 {
        self.part.stored_bytes() + self.len + custom_metadata_bytes(&self.custom_metadata)
    }

    /// Reads all bytes into the part.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] if there are more than `max_bytes`, before one of them is read. Also the
    /// errors of the stream.
    pub async fn into_part(self, name: &str, max_bytes: u64) -> Result<Part, StoreError> {
        let Self { mut part, len, mut bytes, .. } = self;
        if len > max_bytes {
            let message = format!(
                "the artifact `{name}` has {len} bytes, and at most {max_bytes} can be read into memory here; read it as a \
                 stream, or store it in smaller files"
            );
            return Err(StoreError::InvalidRequest(message));
        }
        if let PartData::InlineData(blob) = &mut part.data {
            let first = bytes.try_next().await?.unwrap_or_default();
            blob.data = if first.len() as u64 >= len { first } else { join(first, bytes, len).await? };
        }
        Ok(part)
    }
}

/// Returns the bytes of a stream that begins with `first`.
async fn join(first: Bytes, mut bytes: ByteStream<'static>, len: u64) -> Result<Bytes, StoreError> {
    let mut data = BytesMut::with_capacity(usize::try_from(len).unwrap_or_default());
    data.extend_from_slice(&first);
    while let Some(chunk) = bytes.try_next().await? {
        data.extend_from_slice(&chunk);
    }
    Ok(data.freeze())
}

impl From<Part> for ArtifactStream {
    fn from(mut part: Part) -> Self {
        let bytes = match &mut part.data {
            PartData::InlineData(blob) => std::mem::take(&mut blob.data),
            _ => Bytes::new(),
        };
        let len = bytes.len() as u64;
        let bytes = stream::iter((len > 0).then_some(Ok(bytes))).boxed();
        Self { part, created: None, custom_metadata: JsonMap::new(), len, bytes }
    }
}

/// Stores artifacts. All implementations pass the same contract tests.
///
/// Called from the tasks of runs and of HTTP requests, concurrently. Methods may await, but not block: blocking I/O
/// belongs into `spawn_blocking`. A caller may drop a future at any time, and then a version is either stored
/// completely or not at all.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Mutex;
///
/// use async_trait::async_trait;
/// use hatchery_core::{ArtifactService, Part, SessionKey, StoreError};
///
/// /// Keeps all versions in memory. Unlike a real service, it does not share `user:` artifacts between sessions.
/// #[derive(Default)]
/// struct InMemory(Mutex<BTreeMap<(SessionKey, String), Vec<Part>>>);
///
/// #[async_trait]
/// impl ArtifactService for InMemory {
///     async fn save(&self, session: &SessionKey, name: &str, part: &Part) -> Result<u64, StoreError> {
///         let mut artifacts = self.0.lock().unwrap();
///         let versions = artifacts.entry((session.clone(), name.into())).or_default();
///         versions.push(part.clone());
///         Ok(versions.len() as u64 - 1)
///     }
///
///     async fn load(
///         &self,
///         session: &SessionKey,
///         name: &str,
///         version: Option<u64>,
///     ) -> Result<Option<Part>, StoreError> {
///         let artifacts = self.0.lock().unwrap();
///         let Some(versions) = artifacts.get(&(session.clone(), name.into())) else { return Ok(None) };
///         Ok(match version {
///             Some(version) => versions.get(version as usize).cloned(),
///             None => versions.last().cloned(),
///         })
///     }
///
///     async fn list(&self, session: &SessionKey) -> Result<Vec<String>, StoreError> {
///         let artifacts = self.0.lock().unwrap();
///         Ok(artifacts.keys().filter(|(key, _)| key == session).map(|(_, name)| name.clone()).collect())
///     }
///
///     async fn versions(&self, session: &SessionKey, name: &str) -> Result<Vec<u64>, StoreError> {
///         let artifacts = self.0.lock().unwrap();
///         let count = artifacts.get(&(session.clone(), name.into())).map_or(0, Vec::len);
///         Ok((0..count as u64).collect())
///     }
///
///     async fn delete(&self, session: &SessionKey, name: &str) -> Result<(), StoreError> {
///         self.0.lock().unwrap().remove(&(session.clone(), name.into()));
///         Ok(())
///     }
/// }
///
/// # futures::executor::block_on(async {
/// let (service, session) = (InMemory::default(), SessionKey::new("app", "ada", "s1"));
/// service.save(&session, "a.txt", &Part::text("one")).await.unwrap();
/// assert_eq!(service.save(&session, "a.txt", &Part::text("two")).await.unwrap(), 1);
/// assert_eq!(service.load(&session, "a.txt", None).await.unwrap(), Some(Part::text("two")));
/// assert_eq!(service.usage(&session).await.unwrap().session_versions, 2);
/// # });
/// ```
#[async_trait]
pub trait ArtifactService: Send + Sync {
    /// Saves a new version and returns its number; the first is 0.
    ///
    /// # Errors
    /// [`StoreError::InvalidName`] for an empty name or one that leaves its folder (`..`, a leading `/`).
    async fn save(&self, session: &SessionKey, name: &str, part: &Part) -> Result<u64, StoreError>;

    /// Saves a new version as [`ArtifactService::save`] does, with metadata that the service keeps and does not read.
    /// The default is for services that keep none.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] if the service keeps no metadata, and there is some.
    async fn save_with(
        &self,
        session: &SessionKey,
        name: &str,
        part: &Part,
        custom_metadata: &JsonMap,
    ) -> Result<u64, StoreError> {
        if !custom_metadata.is_empty() {
            let message = "this artifact service keeps no custom metadata; save the artifact without it".to_owned();
            return Err(StoreError::InvalidRequest(message));
        }
        self.save(session, name, part).await
    }

    /// Loads a version; the newest if `version` is `None`. Returns `None` if it does not exist.
    async fn load(&self, session: &SessionKey, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError>;

    /// Saves a new version with the bytes of a stream, as [`ArtifactService::save_stream_with`] does, without metadata.
    ///
    /// # Errors
    /// The errors of [`ArtifactService::save_stream_with`].
    async fn save_stream(
        &self,
        session: &SessionKey,
        name: &str,
        mime_type: &str,
        bytes: ByteStream<'_>,
    ) -> Result<u64, StoreError> {
        self.save_stream_with(session, name, mime_type, &JsonMap::new(), bytes).await
    }

    /// Saves a new version with metadata and the bytes of a stream, and returns its number. Nothing is saved if the
    /// stream fails. The default holds all bytes in memory.
    ///
    /// # Errors
    /// The errors of [`ArtifactService::save_with`] and of the stream.
    async fn save_stream_with(
        &self,
        session: &SessionKey,
        name: &str,
        mime_type: &str,
        custom_metadata: &JsonMap,
        mut bytes: ByteStream<'_>,
    ) -> Result<u64, StoreError> {
        let mut data = BytesMut::new();
        while let Some(chunk) = bytes.try_next().await? {
            data.extend_from_slice(&chunk);
        }
        let blob = Blob { mime_type: mime_type.to_owned(), data: data.freeze(), display_name: None };
        self.save_with(session, name, &PartData::InlineData(blob).into(), custom_metadata).await
    }

    /// Loads a version as [`ArtifactService::load`] does, with its bytes as a stream. The default holds all bytes in
    /// memory.
    async fn load_stream(
        &self,
        session: &SessionKey,
        name: &str,
        version: Option<u64>,
    ) -> Result<Option<ArtifactStream>, StoreError> {
        Ok(self.load(session, name, version).await?.map(ArtifactStream::from))
    }

    /// Loads a version as [`ArtifactService::load`] does, if it is not too large.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] if it has more than `max_bytes`, before they are read.
    async fn load_within(
        &self,
        session: &SessionKey,
        name: &str,
        version: Option<u64>,
        max_bytes: u64,
    ) -> Result<Option<Part>, StoreError> {
        match self.load_stream(session, name, version).await? {
            Some(artifact) => artifact.into_part(name, max_bytes).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the maximum number of bytes that a streamed save or load holds in memory. `None` if the whole artifact
    /// is held, as by the default methods.
    fn stream_buffer(&self) -> Option<usize> {
        None
    }

    /// Returns the names of the artifacts of the session and its user, sorted.
    async fn list(&self, session: &SessionKey) -> Result<Vec<String>, StoreError>;

    /// Returns the newest version of each artifact of the session and its user, sorted by name. The default makes a
    /// request for each of them.
    async fn newest_versions(&self, session: &SessionKey) -> Result<Vec<NewestVersion>, StoreError> {
        let mut newest = Vec::new();
        for name in self.list(session).await? {
            let version = self.versions(session, &name).await?.last().copied();
            newest.extend(version.map(|version| NewestVersion { name, version, created: None }));
        }
        Ok(newest)
    }

    /// Deletes the artifacts of a session, but not its user's artifacts, and returns their names.
    async fn delete_all(&self, session: &SessionKey) -> Result<Vec<String>, StoreError> {
        let mut names = self.list(session).await?;
        names.retain(|name| !name.starts_with("user:"));
        for name in &names {
            self.delete(session, name).await?;
        }
        Ok(names)
    }

    /// Returns the version numbers in ascending order; empty if the artifact does not exist.
    async fn versions(&self, session: &SessionKey, name: &str) -> Result<Vec<u64>, StoreError>;

    /// Deletes all versions. Succeeds if there are none.
    async fn delete(&self, session: &SessionKey, name: &str) -> Result<(), StoreError>;

    /// Returns the storage used by the artifacts of the session and of its user. The default reads every version that
    /// the session sees, and does not count the versions of the user's other sessions: implementations should keep
    /// running totals.
    async fn usage(&self, session: &SessionKey) -> Result<ArtifactUsage, StoreError> {
        let mut usage = ArtifactUsage::default();
        for name in self.list(session).await? {
            for version in self.versions(session, &name).await? {
                let Some(artifact) = self.load_stream(session, &name, Some(version)).await? else { continue };
                let bytes = artifact.stored_bytes();
                if !name.starts_with("user:") {
                    usage.session_versions += 1;
                    usage.session_bytes += bytes;
                }
                usage.user_versions += 1;
                usage.user_bytes += bytes;
            }
        }
        Ok(usage)
    }
}
