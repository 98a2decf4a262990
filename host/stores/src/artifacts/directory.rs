//! Artifacts in a directory: a folder per artifact with a file per version.
//!
//! ```text
//! <app>/<user>/sessions/<session>/<name>/<version>
//! <app>/<user>/user/<name>/<version>          names that start with `user:`
//! .unfinished/                                files that are being written or deleted
//! .layout                                     the version of this layout
//! ```
//! A file consists of the JSON of the part and its metadata on one line, followed by the raw bytes of its inline data.
//! A version is published atomically, under a number that no other writer gets, by a hard link to the finished file. An
//! artifact is deleted atomically by moving its folder away; the folders above it that are empty then are removed. So
//! several processes may share a directory, and a crash leaves only garbage in `.unfinished`, which the next opening
//! removes once it is old. The file system must support hard links. Saving lists the versions of the artifact. Folders
//! and files are accessible to their owner only.

mod stream;

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use hatchery_core::{
    ArtifactService, ArtifactStream, ArtifactUsage, Blob, ByteStream, JsonMap, NewestVersion, Part, PartData,
    SessionKey, StoreError, Timestamp,
};
use uuid::Uuid;

use super::layout;
use super::name::{ArtifactName, USER_PREFIX, from_file_name, to_file_name, to_owner_name};
use super::stored_part::{NewPart, StoredPart};
use crate::permissions;
use crate::tasks::{file_error, run_blocking};

const UNFINISHED: &str = ".unfinished";

/// Unfinished files of this age are abandoned, since no write or deletion takes that long.
const ABANDONED_AFTER: Duration = Duration::from_secs(60 * 60);

/// An [`ArtifactService`] on a directory.
pub struct DirectoryArtifacts {
    root: PathBuf,
}

impl DirectoryArtifacts {
    /// Opens a directory, creates it and its parents if they are missing, and upgrades its layout.
    ///
    /// # Errors
    /// [`StoreError::Backend`] if it cannot be created or upgraded.
    pub async fn open(root: impl AsRef<Path>) -> Result<Self, StoreError> {
        let root = root.as_ref().to_owned();
        let unfinished = root.join(UNFINISHED);
        let folder = root.clone();
        let open = move || {
            let existed = folder.is_dir();
            permissions::create_dir_all(&unfinished)?;
            if existed {
                permissions::warn_if_readable(&folder);
            }
            remove_abandoned(&unfinished)?;
            layout::upgrade(&folder)
        };
        blocking("open", root.clone(), open).await?;
        Ok(Self { root })
    }

    fn app(&self, session: &SessionKey) -> PathBuf {
        self.root.join(to_owner_name(&session.app))
    }

    /// Returns the folder of the artifacts of a session or, if `is_user_scoped`, of its user.
    fn owner(&self, session: &SessionKey, is_user_scoped: bool) -> PathBuf {
        let user = self.app(session).join(to_owner_name(&session.user));
        if is_user_scoped { user.join("user") } else { user.join("sessions").join(to_owner_name(&session.id)) }
    }

    /// Returns the folder of an artifact.
    fn artifact(&self, session: &SessionKey, name: &str) -> Result<PathBuf, StoreError> {
        let name = ArtifactName::parse(name)?;
        Ok(self.owner(session, name.is_user_scoped).join(to_file_name(name.bare)?))
    }

    /// Returns a unique path on the same file system as the artifacts.
    fn temporary_path(&self) -> PathBuf {
        self.root.join(UNFINISHED).join(Uuid::new_v4().to_string())
    }
}

#[async_trait]
impl ArtifactService for DirectoryArtifacts {
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
        let folder = self.artifact(session, name)?;
        let unfinished = self.temporary_path();
        let (part, custom_metadata) = (part.clone(), custom_metadata.clone());
        blocking("save", folder.clone(), move || {
            let result = write(&unfinished, part, &custom_metadata).and_then(|()| publish(&unfinished, &folder));
            let removed = fs::remove_file(&unfinished);
            let version = result?;
            removed.map(|()| version)
        })
        .await
    }

    async fn load(&self, session: &SessionKey, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError> {
        let folder = self.artifact(session, name)?;
        blocking("load", folder.clone(), move || {
            let version = match version {
                Some(version) => Some(version),
                None => versions_in(&folder)?.last().copied(),
            };
            match version {
                Some(version) => none_if_missing(fs::read(folder.join(version.to_string())))?.map(decode).transpose(),
                None => Ok(None),
            }
        })
        .await
    }

    async fn save_stream_with(
        &self,
        session: &SessionKey,
        name: &str,
        mime_type: &str,
        custom_metadata: &JsonMap,
        bytes: ByteStream<'_>,
    ) -> Result<u64, StoreError> {
        let folder = self.artifact(session, name)?;
        let unfinished = stream::UnfinishedFile(self.temporary_path());
        let blob = Blob { mime_type: mime_type.to_owned(), ..Blob::default() };
        let part = PartData::InlineData(blob).into();
        stream::write(&unfinished, NewPart { part: &part, custom_metadata }, bytes).await?;
        blocking("save", folder.clone(), move || publish(&unfinished.0, &folder)).await
    }

    async fn load_stream(
        &self,
        session: &SessionKey,
        name: &str,
        version: Option<u64>,
    ) -> Result<Option<ArtifactStream>, StoreError> {
        let folder = self.artifact(session, name)?;
        let path = folder.clone();
        let opened = blocking("load", path.clone(), move || {
            let version = match version {
                Some(version) => Some(version),
                None => versions_in(&folder)?.last().copied(),
            };
            let file = version.map(|version| fs::File::open(folder.join(version.to_string())));
            file.map_or(Ok(None), none_if_missing)?.map(stream::read_head).transpose()
        });
        Ok(opened.await?.map(|opened| opened.into_stream(path)))
    }

    fn stream_buffer(&self) -> Option<usize> {
        Some(stream::BUFFER)
    }

    async fn list(&self, session: &SessionKey) -> Result<Vec<String>, StoreError> {
        let (own, users) = (self.owner(session, false), self.owner(session, true));
        blocking("list", own.clone(), move || {
            let mut names = names_in(&own)?;
            names.extend(names_in(&users)?.iter().map(|bare| format!("{USER_PREFIX}{bare}")));
            names.sort();
            Ok(names)
        })
        .await
    }

    async fn newest_versions(&self, session: &SessionKey) -> Result<Vec<NewestVersion>, StoreError> {
        let (own, users) = (self.owner(session, false), self.owner(session, true));
        blocking("list", own.clone(), move || {
            let mut newest = newest_in(&own, "")?;
            newest.extend(newest_in(&users, USER_PREFIX)?);
            newest.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(newest)
        })
        .await
    }

    async fn versions(&self, session: &SessionKey, name: &str) -> Result<Vec<u64>, StoreError> {
        let folder = self.artifact(session, name)?;
        blocking("list the versions of", folder.clone(), move || versions_in(&folder)).await
    }

    async fn delete(&self, session: &SessionKey, name: &str) -> Result<(), StoreError> {
        let folder = self.artifact(session, name)?;
        let app = self.app(session);
        let unfinished = self.temporary_path();
        blocking("delete", folder.clone(), move || match none_if_missing(fs::rename(&folder, &unfinished))? {
            Some(()) => {
                remove_empty_parents(&folder, &app);
                remove_folder(&unfinished)
            }
            None => Ok(()),
        })
        .await
    }

    async fn usage(&self, session: &SessionKey) -> Result<ArtifactUsage, StoreError> {
        let (own, users) = (self.owner(session, false), self.owner(session, true));
        blocking("count", own.clone(), move || {
            let (session_versions, session_bytes) = usage_in(&own)?;
            let (mut user_versions, mut user_bytes) = usage_in(&users)?;
            let sessions = own.parent().unwrap_or(&own);
            for file_name in file_names_in(sessions)? {
                let (versions, bytes) = usage_in(&sessions.join(file_name))?;
                user_versions += versions;
                user_bytes += bytes;
            }
            Ok(ArtifactUsage { session_versions, session_bytes, user_versions, user_bytes })
        })
        .await
    }
}

/// Runs file operations in a blocking task, and adds their purpose to errors.
async fn blocking<T, F>(activity: &'static str, path: PathBuf, operation: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    run_blocking(|| context(activity, &path), operation).await
}

fn failure(activity: &str, path: &Path, error: io::Error) -> StoreError {
    file_error(context(activity, path), error)
}

fn context(activity: &str, path: &Path) -> String {
    format!("cannot {activity} artifacts in {}", path.display())
}

/// Writes a new file and syncs it to disk before it is published.
fn write(path: &Path, mut part: Part, custom_metadata: &JsonMap) -> io::Result<()> {
    let bytes = match &mut part.data {
        PartData::InlineData(blob) => std::mem::take(&mut blob.data),
        _ => Bytes::new(),
    };
    let mut file = permissions::create_file(path)?;
    file.write_all(&encode_head(NewPart { part: &part, custom_metadata })?)?;
    file.write_all(&bytes)?;
    file.sync_all()
}

/// Returns the first line of a file.
fn encode_head(part: NewPart<'_>) -> io::Result<Vec<u8>> {
    let mut head = serde_json::to_vec(&part)?;
    head.push(b'\n');
    Ok(head)
}

/// Decodes a file of [`write()`]. The first line feed ends the JSON, which has none.
fn decode(file: Vec<u8>) -> io::Result<Part> {
    let file = Bytes::from(file);
    let end = file.iter().position(|byte| *byte == b'\n').ok_or_else(no_head)?;
    let StoredPart { mut part, .. } = serde_json::from_slice(file.get(..end).unwrap_or_default())?;
    if let PartData::InlineData(blob) = &mut part.data {
        blob.data = file.slice(end + 1..);
    }
    Ok(part)
}

fn no_head() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the file is not an artifact: its first line does not end")
}

/// Links a finished file into the artifact's folder under the next free number, which it returns.
fn publish(unfinished: &Path, folder: &Path) -> io::Result<u64> {
    loop {
        match permissions::create_dir_all(folder) {
            // It existed, and was deleted before it could be examined.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !is_not_a_folder(folder) => continue,
            // A folder above it was removed, because it was empty.
            Err(error) if error.kind() == ErrorKind::NotFound && unfinished.exists() => continue,
            created => created?,
        }
        let next = match versions_in(folder)?.last() {
            None => 0,
            Some(last) => last.checked_add(1).ok_or_else(|| io::Error::other("no version number is left"))?,
        };
        match fs::hard_link(unfinished, folder.join(next.to_string())) {
            Ok(()) => return Ok(next),
            // Another writer got the number, or deleted the artifact.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == ErrorKind::NotFound && unfinished.exists() => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the version numbers in an artifact's folder in ascending order.
fn versions_in(folder: &Path) -> io::Result<Vec<u64>> {
    let mut versions = Vec::new();
    for file_name in file_names_in(folder)? {
        // `7` is a version, `007` and `+7` are foreign files.
        versions.extend(file_name.parse().ok().filter(|version: &u64| version.to_string() == file_name));
    }
    versions.sort_unstable();
    Ok(versions)
}

/// Returns the unprefixed names of the artifacts in an owner's folder that have a version.
fn names_in(owner: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for file_name in file_names_in(owner)? {
        if let Some(name) = from_file_name(&file_name)
            && owner.join(&file_name).is_dir()
            && !versions_in(&owner.join(&file_name))?.is_empty()
        {
            names.push(name);
        }
    }
    Ok(names)
}

/// Returns the newest versions of the artifacts in an owner's folder, whose names begin with `prefix`.
fn newest_in(owner: &Path, prefix: &str) -> io::Result<Vec<NewestVersion>> {
    let mut newest = Vec::new();
    for bare in names_in(owner)? {
        let folder = owner.join(to_file_name(&bare).map_err(io::Error::other)?);
        let Some(version) = versions_in(&folder)?.last().copied() else { continue };
        // It may have been deleted concurrently.
        let Some(metadata) = none_if_missing(fs::metadata(folder.join(version.to_string())))? else { continue };
        let name = format!("{prefix}{bare}");
        newest.push(NewestVersion { name, version, created: Some(creation_time(&metadata)?) });
    }
    Ok(newest)
}

/// Returns the time at which a version was saved: its file is never written again.
fn creation_time(metadata: &fs::Metadata) -> io::Result<Timestamp> {
    let since = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)))
}

/// Returns the number of versions in an owner's folder and their size, without the line feed in each file.
fn usage_in(owner: &Path) -> io::Result<(u64, u64)> {
    let (mut count, mut bytes) = (0, 0);
    if !owner.is_dir() {
        return Ok((count, bytes));
    }
    for file_name in file_names_in(owner)? {
        let artifact = owner.join(file_name);
        if !artifact.is_dir() {
            continue;
        }
        for version in versions_in(&artifact)? {
            // A version that was deleted concurrently is not counted.
            let Some(metadata) = none_if_missing(fs::metadata(artifact.join(version.to_string())))? else { continue };
            count += 1;
            bytes += metadata.len().saturating_sub(1);
        }
    }
    Ok((count, bytes))
}

/// Returns the names of the files in a folder that are valid UTF-8; empty if the folder does not exist.
fn file_names_in(folder: &Path) -> io::Result<Vec<String>> {
    let Some(entries) = none_if_missing(fs::read_dir(folder))? else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

fn remove_abandoned(unfinished: &Path) -> io::Result<()> {
    let now = SystemTime::now();
    for entry in fs::read_dir(unfinished)? {
        let path = entry?.path();
        // The writer may finish, or another process may remove it first.
        let Some(metadata) = none_if_missing(fs::symlink_metadata(&path))? else { continue };
        if now.duration_since(metadata.modified()?).is_ok_and(|age| age > ABANDONED_AFTER) {
            if metadata.is_dir() {
                remove_folder(&path)?;
            } else {
                none_if_missing(fs::remove_file(&path))?;
            }
        }
    }
    Ok(())
}

/// Removes a folder that was moved away, unless another process has done so. A save that found the folder before it was
/// moved may still link a version into it. There are only as many of these as were running, so the loop ends.
fn remove_folder(folder: &Path) -> io::Result<()> {
    loop {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            removed => return none_if_missing(removed).map(drop),
        }
    }
}

/// Removes the empty folders above a deleted artifact, up to its app. A save that still needs one creates it again.
fn remove_empty_parents(folder: &Path, app: &Path) {
    for parent in folder.ancestors().skip(1).take_while(|parent| *parent != app) {
        // It has other content.
        if fs::remove_dir(parent).is_err() {
            return;
        }
    }
}

fn is_not_a_folder(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_dir())
}

fn none_if_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
