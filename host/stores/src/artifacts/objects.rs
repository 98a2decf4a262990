//! Artifacts in an object store: Amazon S3, Google Cloud Storage, Azure Blob Storage, and servers that are compatible
//! with one of them.
//!
//! ```text
//! <prefix>/<app>/<user>/sessions/<session>/<name>/<version>.json   an id, and the part without the bytes of inline data, with its metadata
//! <prefix>/<app>/<user>/sessions/<session>/<name>/<id>             these bytes, with their media type
//! <prefix>/<app>/<user>/user/<name>/…                              names that start with `user:`
//! ```
//! A version is published by the creation of its small object, which fails if another writer has the number, after its
//! bytes are stored. It is deleted in the reverse order. So several hosts may share a bucket. A crash leaves only
//! unreferenced bytes, which a later deletion of the artifact removes once they are old. The store must support
//! conditional creation and list new objects immediately. Saving lists the versions of the artifact.

mod failure;
mod location;
mod transfer;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use hatchery_core::{
    ArtifactService, ArtifactStream, ArtifactUsage, Blob, ByteStream, JsonMap, NewestVersion, Part, PartData,
    SessionKey, StoreError, Timestamp,
};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use self::location::Location;
use super::name::{ArtifactName, USER_PREFIX, from_file_name, to_file_name, to_owner_name};
use super::stored_part::{NewPart, StoredPart};
use crate::tasks::run_to_completion;

/// Bytes without a version are abandoned at this age, since no save takes that long.
const ABANDONED_AFTER: Duration = Duration::from_secs(60 * 60);

/// Number of concurrent requests of a deletion.
const PARALLEL_REQUESTS: usize = 8;

/// The limit of S3, Google Cloud Storage and Azure.
const MAX_KEY_BYTES: usize = 1024;

/// The length of an id in its text form.
const ID_BYTES: usize = 36;

/// The bytes of a version's object that are not part of the artifact.
const ENVELOPE_BYTES: u64 = (r#"{"id":"","part":}"#.len() + ID_BYTES) as u64;

/// An [`ArtifactService`] in an object store.
#[derive(Clone)]
pub struct ObjectArtifacts {
    store: Arc<dyn ObjectStore>,
    location: Location,
}

/// The object of a version.
#[derive(Serialize)]
struct NewVersion<'a> {
    id: &'a str,
    part: NewPart<'a>,
}

#[derive(Deserialize)]
struct Version {
    id: String,
    part: StoredPart,
    /// When its object was created.
    #[serde(skip)]
    created: Timestamp,
}

impl ObjectArtifacts {
    /// Opens `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`; the prefix is optional. Credentials
    /// and endpoint come from the variables `AWS_…`, `GOOGLE_…` and `AZURE_…`, usually [`std::env::vars`].
    ///
    /// # Errors
    /// [`StoreError::InvalidName`] for any other URI; [`StoreError::InvalidRequest`] if a variable is not usable;
    /// [`StoreError::Backend`] if the bucket does not exist or may not be listed, or the store cannot be reached.
    pub async fn open(uri: &str, variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, StoreError> {
        let location = Location::parse(uri)?;
        let store = location.connect(variables)?;
        let artifacts = Self { store, location };
        artifacts.check().await?;
        Ok(artifacts)
    }

    /// Uses a store of the caller, with all keys below `prefix`.
    ///
    /// # Errors
    /// [`StoreError::InvalidName`] if the prefix has an empty segment, `.` or `..`.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<Self, StoreError> {
        let location = Location::for_custom_store(&store.to_string(), prefix)?;
        Ok(Self { store, location })
    }

    /// Checks that the bucket exists and may be listed.
    async fn check(&self) -> Result<(), StoreError> {
        let nothing = self.location.prefix().clone().join(".check");
        let Err(error) = self.store.list(Some(&nothing)).try_next().await else { return Ok(()) };
        // A failed list has no kind. The same store refuses to read an object with one.
        let error = match self.store.get(&nothing).await {
            Err(kind @ (Error::NotFound { .. } | Error::PermissionDenied { .. } | Error::Unauthenticated { .. })) => {
                kind
            }
            _ => error,
        };
        Err(self.failure("open", error))
    }

    /// Returns the prefix of the artifacts of the user of a session.
    fn user(&self, session: &SessionKey) -> String {
        let prefix = self.location.prefix();
        let separator = if prefix.is_root() { "" } else { "/" };
        format!("{prefix}{separator}{}/{}", to_owner_name(&session.app), to_owner_name(&session.user))
    }

    /// Returns the prefix of the artifacts of a session or, if `is_user_scoped`, of its user.
    fn owner(&self, session: &SessionKey, is_user_scoped: bool) -> Result<Path, StoreError> {
        let user = self.user(session);
        let owner = if is_user_scoped {
            format!("{user}/user")
        } else {
            format!("{user}/sessions/{}", to_owner_name(&session.id))
        };
        self.path(&owner)
    }

    /// Returns the prefix of an artifact.
    fn artifact(&self, session: &SessionKey, name: &str) -> Result<Path, StoreError> {
        let ArtifactName { full, bare, is_user_scoped } = ArtifactName::parse(name)?;
        let folder = self.path(&format!("{}/{}", self.owner(session, is_user_scoped)?, to_file_name(bare)?))?;
        if folder.as_ref().len() + 1 + ID_BYTES > MAX_KEY_BYTES {
            let reason = "too long: with the prefix, the app, the user and the session, it needs a key of more than 1024 \
                          bytes";
            return Err(StoreError::InvalidName { name: full.to_owned(), reason });
        }
        Ok(folder)
    }

    /// Parses a key whose segments are encoded.
    fn path(&self, key: &str) -> Result<Path, StoreError> {
        Path::parse(key).map_err(|error| self.failure("find", error.into()))
    }

    fn failure(&self, activity: &str, error: Error) -> StoreError {
        failure::describe(&self.location, activity, error)
    }

    async fn objects(&self, prefix: &Path, activity: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.store.list(Some(prefix)).try_collect().await.map_err(|error| self.failure(activity, error))
    }

    /// Returns the version numbers of an artifact in ascending order.
    async fn numbers(&self, artifact: &Path, activity: &str) -> Result<Vec<u64>, StoreError> {
        let objects = self.objects(artifact, activity).await?;
        let mut versions: Vec<u64> = objects.iter().filter_map(|object| version_number(&object.location)).collect();
        versions.sort_unstable();
        Ok(versions)
    }

    /// Returns the content of an object, and when it was created; `None` if it does not exist.
    async fn read(&self, path: &Path, activity: &str) -> Result<Option<(Bytes, Timestamp)>, StoreError> {
        let content = match self.store.get(path).await {
            Ok(object) => {
                let created = creation_time(&object.meta);
                object.bytes().await.map(|bytes| (bytes, created))
            }
            Err(error) => Err(error),
        };
        match content {
            Ok(content) => Ok(Some(content)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failure(activity, error)),
        }
    }

    async fn read_version(&self, path: &Path, activity: &str) -> Result<Option<Version>, StoreError> {
        let Some((json, created)) = self.read(path, activity).await? else { return Ok(None) };
        let version = serde_json::from_slice(&json);
        version.map(|version| Some(Version { created, ..version })).map_err(|error| {
            StoreError::backend(
                format!("cannot {activity} artifacts: {path} in {} is not a version", self.location),
                error,
            )
        })
    }

    async fn remove(&self, path: &Path) -> Result<(), StoreError> {
        match self.store.delete(path).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failure("delete", error)),
        }
    }

    /// Creates the object of a version under the next free number, which it returns.
    async fn publish(&self, artifact: &Path, id: &str, json: &PutPayload) -> Result<u64, StoreError> {
        let mut lowest = 0;
        loop {
            let after_last = match self.numbers(artifact, "save").await?.last() {
                None => 0,
                Some(last) => last.checked_add(1).ok_or_else(|| self.no_number_left())?,
            };
            let next = after_last.max(lowest);
            let path = version_path(artifact, next);
            match self.store.put_opts(&path, json.clone(), PutMode::Create.into()).await {
                Ok(_) => return Ok(next),
                Err(Error::AlreadyExists { .. }) => match self.read_version(&path, "save").await? {
                    // A repeated request had been carried out.
                    Some(version) if version.id == id => return Ok(next),
                    Some(_) => lowest = next.checked_add(1).ok_or_else(|| self.no_number_left())?,
                    // It was deleted concurrently.
                    None => lowest = 0,
                },
                Err(error) => return Err(self.failure("save", error)),
            }
        }
    }

    /// Publishes a version whose bytes are stored. Returns its number.
    async fn publish_part(&self, artifact: &Path, id: &str, part: NewPart<'_>) -> Result<u64, StoreError> {
        let json = serde_json::to_vec(&NewVersion { id, part })
            .map_err(|error| StoreError::backend(format!("cannot save artifacts in {}", self.location), error))?;
        self.publish(artifact, id, &json.into()).await
    }

    /// Finds a version of an artifact; the newest if `version` is `None`.
    async fn find(&self, artifact: &Path, version: Option<u64>) -> Result<Option<Version>, StoreError> {
        let number = match version {
            Some(number) => number,
            None => match self.numbers(artifact, "load").await?.last() {
                Some(last) => *last,
                None => return Ok(None),
            },
        };
        self.read_version(&version_path(artifact, number), "load").await
    }

    fn no_number_left(&self) -> StoreError {
        StoreError::backend(format!("cannot save artifacts in {}", self.location), "no version number is left")
    }

    /// Deletes a version and then its bytes. Returns its id; `None` if it does not exist, or its object is damaged:
    /// then nothing refers to its bytes.
    async fn delete_version(&self, artifact: &Path, number: u64) -> Result<Option<String>, StoreError> {
        let path = version_path(artifact, number);
        let object = self.read(&path, "delete").await?;
        self.remove(&path).await?;
        let version = object.and_then(|(json, _)| serde_json::from_slice::<Version>(&json).ok());
        let Some(Version { id, part, .. }) = version else { return Ok(None) };
        if matches!(part.part.data, PartData::InlineData(_)) {
            self.remove(&data_path(artifact, &id)).await?;
        }
        Ok(Some(id))
    }
}

#[async_trait]
impl ArtifactService for ObjectArtifacts {
    async fn save(&self, session: &SessionKey, name: &str, part: &Part) -> Result<u64, StoreError> {
        self.save_with(session, name, part, &JsonMap::new()).await
    }

    async fn save_with(
        &self,
        session: &SessionKey,
        name: &str,
        part: &Part,
        custom_metadata: &JsonMap,
    ) -> Result<u64, StoreError> {
        let artifact = self.artifact(session, name)?;
        let id = Uuid::new_v4().to_string();
        let mut part = part.clone();
        if let PartData::InlineData(blob) = &mut part.data {
            let options = PutOptions { attributes: media_type(&blob.mime_type), ..PutOptions::default() };
            let data = std::mem::take(&mut blob.data);
            let stored = self.store.put_opts(&data_path(&artifact, &id), data.into(), options).await;
            stored.map_err(|error| self.failure("save", error))?;
        }
        self.publish_part(&artifact, &id, NewPart { part: &part, custom_metadata }).await
    }

    async fn load(&self, session: &SessionKey, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError> {
        let artifact = self.artifact(session, name)?;
        let Some(Version { id, part, .. }) = self.find(&artifact, version).await? else { return Ok(None) };
        let mut part = part.part;
        if let PartData::InlineData(blob) = &mut part.data {
            // `None` if the version was deleted meanwhile.
            let Some((data, _)) = self.read(&data_path(&artifact, &id), "load").await? else { return Ok(None) };
            blob.data = data;
        }
        Ok(Some(part))
    }

    async fn save_stream_with(
        &self,
        session: &SessionKey,
        name: &str,
        mime_type: &str,
        custom_metadata: &JsonMap,
        bytes: ByteStream<'_>,
    ) -> Result<u64, StoreError> {
        let artifact = self.artifact(session, name)?;
        let id = Uuid::new_v4().to_string();
        let path = data_path(&artifact, &id);
        let received = self.receive(&path, mime_type, bytes).await?;
        let (service, mime_type, custom_metadata) = (self.clone(), mime_type.to_owned(), custom_metadata.clone());
        // Pieces without an object would stay in the store, and an object without a version too.
        run_to_completion(async move {
            service.finish(&path, &mime_type, received).await?;
            let blob = Blob { mime_type, ..Blob::default() };
            let (part, custom_metadata) = (&PartData::InlineData(blob).into(), &custom_metadata);
            service.publish_part(&artifact, &id, NewPart { part, custom_metadata }).await
        })
        .await
    }

    async fn load_stream(
        &self,
        session: &SessionKey,
        name: &str,
        version: Option<u64>,
    ) -> Result<Option<ArtifactStream>, StoreError> {
        let artifact = self.artifact(session, name)?;
        let Some(Version { id, part, created }) = self.find(&artifact, version).await? else { return Ok(None) };
        let (StoredPart { part, custom_metadata }, created) = (part, Some(created));
        if !matches!(part.data, PartData::InlineData(_)) {
            return Ok(Some(ArtifactStream { created, custom_metadata, ..part.into() }));
        }
        let download = self.download(data_path(&artifact, &id)).await?;
        // `None` if the version was deleted meanwhile.
        Ok(download.map(|(len, bytes)| ArtifactStream { part, created, custom_metadata, len, bytes }))
    }

    fn stream_buffer(&self) -> Option<usize> {
        Some(transfer::BUFFER)
    }

    async fn list(&self, session: &SessionKey) -> Result<Vec<String>, StoreError> {
        let (own, users) = (self.owner(session, false)?, self.owner(session, true)?);
        let (own_objects, users_objects) = tokio::try_join!(self.objects(&own, "list"), self.objects(&users, "list"))?;
        let mut names = names_of(&own_objects, &own);
        names.extend(names_of(&users_objects, &users).iter().map(|bare| format!("{USER_PREFIX}{bare}")));
        names.sort();
        names.dedup();
        Ok(names)
    }

    async fn newest_versions(&self, session: &SessionKey) -> Result<Vec<NewestVersion>, StoreError> {
        let (own, users) = (self.owner(session, false)?, self.owner(session, true)?);
        let (own_objects, users_objects) = tokio::try_join!(self.objects(&own, "list"), self.objects(&users, "list"))?;
        let mut newest = newest_of(&own_objects, &own, "");
        newest.extend(newest_of(&users_objects, &users, USER_PREFIX));
        newest.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(newest)
    }

    async fn versions(&self, session: &SessionKey, name: &str) -> Result<Vec<u64>, StoreError> {
        self.numbers(&self.artifact(session, name)?, "list the versions of").await
    }

    async fn delete(&self, session: &SessionKey, name: &str) -> Result<(), StoreError> {
        let artifact = self.artifact(session, name)?;
        let objects = self.objects(&artifact, "delete").await?;
        let numbers: Vec<u64> = objects.iter().filter_map(|object| version_number(&object.location)).collect();
        let deleted: HashSet<String> = stream::iter(numbers)
            .map(|number| self.delete_version(&artifact, number))
            .buffer_unordered(PARALLEL_REQUESTS)
            .try_filter_map(|id| async move { Ok(id) })
            .try_collect()
            .await?;
        for object in objects {
            let is_deleted = object.location.filename().is_none_or(|id| deleted.contains(id));
            if version_number(&object.location).is_none() && !is_deleted && is_old(&object) {
                self.remove(&object.location).await?;
            }
        }
        Ok(())
    }

    async fn usage(&self, session: &SessionKey) -> Result<ArtifactUsage, StoreError> {
        let own = self.owner(session, false)?;
        let user = self.path(&self.user(session))?;
        let mut usage = ArtifactUsage::default();
        for object in self.objects(&user, "count").await? {
            let is_version = version_number(&object.location).is_some();
            let bytes = if is_version { object.size.saturating_sub(ENVELOPE_BYTES) } else { object.size };
            usage.user_versions += u64::from(is_version);
            usage.user_bytes += bytes;
            if object.location.prefix_matches(&own) {
                usage.session_versions += u64::from(is_version);
                usage.session_bytes += bytes;
            }
        }
        Ok(usage)
    }
}

fn version_path(artifact: &Path, number: u64) -> Path {
    artifact.clone().join(format!("{number}.json"))
}

fn data_path(artifact: &Path, id: &str) -> Path {
    artifact.clone().join(id)
}

/// Returns the number of a version's object; `None` for other objects. `7.json` is a version, `007.json` is not.
fn version_number(path: &Path) -> Option<u64> {
    let number = path.filename()?.strip_suffix(".json")?;
    number.parse().ok().filter(|parsed: &u64| parsed.to_string() == number)
}

/// Returns the unprefixed names of the artifacts that have a version, once per version.
fn names_of(objects: &[ObjectMeta], owner: &Path) -> Vec<String> {
    objects.iter().filter_map(|object| version_of(object, owner).map(|(bare, _)| bare)).collect()
}

/// Returns the unprefixed name and the number of a version; `None` for other objects.
fn version_of(object: &ObjectMeta, owner: &Path) -> Option<(String, u64)> {
    let number = version_number(&object.location)?;
    let mut segments = object.location.prefix_match(owner)?;
    Some((from_file_name(segments.next()?.as_ref())?, number))
}

/// Returns the newest versions of the artifacts of an owner, whose names begin with `prefix`.
fn newest_of(objects: &[ObjectMeta], owner: &Path, prefix: &str) -> Vec<NewestVersion> {
    let mut newest = BTreeMap::new();
    for object in objects {
        let Some((bare, version)) = version_of(object, owner) else { continue };
        let known = newest.entry(bare).or_insert((version, object));
        if version > known.0 {
            *known = (version, object);
        }
    }
    let newest = newest.into_iter().map(|(bare, (version, object))| NewestVersion {
        name: format!("{prefix}{bare}"),
        version,
        created: Some(creation_time(object)),
    });
    newest.collect()
}

/// Returns the time at which a version was saved: its object is never written again.
fn creation_time(object: &ObjectMeta) -> Timestamp {
    Timestamp::from_micros(object.last_modified.timestamp_micros())
}

/// Returns the attributes of an object of this media type; empty if the media type cannot be the value of a header.
fn media_type(mime_type: &str) -> Attributes {
    let is_header = !mime_type.is_empty() && mime_type.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    is_header.then(|| (Attribute::ContentType, mime_type.to_owned())).into_iter().collect()
}

fn is_old(object: &ObjectMeta) -> bool {
    let age = SystemTime::now().duration_since(object.last_modified.into());
    age.is_ok_and(|age| age > ABANDONED_AFTER)
}
