//! Artifacts in a directory: a folder per artifact, in it a file per version.
//!
//! ```text
//! <app>/<user>/sessions/<session>/<name>/<version>
//! <app>/<user>/user/<name>/<version>          names that start with `user:`
//! .unfinished/                                what is being written or deleted
//! .layout                                     the version of this layout
//! ```
//! A file is the part's JSON on one line, then the bytes of its inline data as they are. A version appears whole, under a number that
//! nobody else got, by linking the finished file to its place; an artifact disappears whole, by moving its folder away. So several
//! processes may share a directory, and a crash leaves nothing but rubbish in `.unfinished`, which the next opening removes when
//! it is old. The file system must know hard links. Saving reads the names of the versions that are there. Folders and files are made
//! for their owner only.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use hatchery_core::{ArtifactService, ArtifactUsage, Part, PartData, SessionKey, StoreError};
use uuid::Uuid;

use super::layout;
use super::name::{Name, USER_PREFIX, from_file_name, to_file_name};
use crate::private;

const UNFINISHED: &str = ".unfinished";

/// No write or deletion takes this long.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// An [`ArtifactService`] on a directory.
pub struct DirectoryArtifacts {
    root: PathBuf,
}

impl DirectoryArtifacts {
    /// Uses a directory, making it and the folders above it when they are missing, and bringing its layout up to date.
    ///
    /// # Errors
    /// [`StoreError::Backend`] when it cannot be made.
    pub async fn open(root: impl AsRef<Path>) -> Result<Self, StoreError> {
        let root = root.as_ref().to_owned();
        let unfinished = root.join(UNFINISHED);
        let folder = root.clone();
        let open = move || {
            let was_there = folder.is_dir();
            private::create_dir_all(&unfinished)?;
            if was_there {
                private::warn_if_readable(&folder);
            }
            remove_abandoned(&unfinished)?;
            layout::upgrade(&folder)
        };
        blocking("open", root.clone(), open).await?;
        Ok(Self { root })
    }

    /// The folder of a session's or, when `is_users`, of its user's artifacts.
    fn owner(&self, session: &SessionKey, is_users: bool) -> Result<PathBuf, StoreError> {
        let user = self.root.join(to_file_name(&session.app)?).join(to_file_name(&session.user)?);
        Ok(if is_users { user.join("user") } else { user.join("sessions").join(to_file_name(&session.id)?) })
    }

    /// The folder of an artifact.
    fn artifact(&self, session: &SessionKey, name: &str) -> Result<PathBuf, StoreError> {
        let name = Name::parse(name)?;
        Ok(self.owner(session, name.is_users)?.join(to_file_name(name.bare)?))
    }

    /// A path that nobody else uses, on the same file system as the artifacts.
    fn unfinished(&self) -> PathBuf {
        self.root.join(UNFINISHED).join(Uuid::new_v4().to_string())
    }
}

#[async_trait]
impl ArtifactService for DirectoryArtifacts {
    async fn save(&self, session: &SessionKey, name: &str, part: &Part) -> Result<u64, StoreError> {
        let folder = self.artifact(session, name)?;
        let unfinished = self.unfinished();
        let part = part.clone();
        blocking("save", folder.clone(), move || {
            let saved = write(&unfinished, part).and_then(|()| publish(&unfinished, &folder));
            let removed = fs::remove_file(&unfinished);
            let version = saved?;
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
                Some(version) => unless_missing(fs::read(folder.join(version.to_string())))?.map(decode).transpose(),
                None => Ok(None),
            }
        })
        .await
    }

    async fn list(&self, session: &SessionKey) -> Result<Vec<String>, StoreError> {
        let (own, users) = (self.owner(session, false)?, self.owner(session, true)?);
        blocking("list", own.clone(), move || {
            let mut names = names_in(&own)?;
            names.extend(names_in(&users)?.iter().map(|bare| format!("{USER_PREFIX}{bare}")));
            names.sort();
            Ok(names)
        })
        .await
    }

    async fn versions(&self, session: &SessionKey, name: &str) -> Result<Vec<u64>, StoreError> {
        let folder = self.artifact(session, name)?;
        blocking("list the versions of", folder.clone(), move || versions_in(&folder)).await
    }

    async fn delete(&self, session: &SessionKey, name: &str) -> Result<(), StoreError> {
        let folder = self.artifact(session, name)?;
        let unfinished = self.unfinished();
        blocking("delete", folder.clone(), move || match unless_missing(fs::rename(&folder, &unfinished))? {
            Some(()) => remove_folder(&unfinished),
            None => Ok(()),
        })
        .await
    }

    async fn usage(&self, session: &SessionKey) -> Result<ArtifactUsage, StoreError> {
        let (own, users) = (self.owner(session, false)?, self.owner(session, true)?);
        blocking("count", own.clone(), move || {
            let (session_versions, session_bytes) = stored_in(&own)?;
            let (mut user_versions, mut user_bytes) = stored_in(&users)?;
            let sessions = own.parent().unwrap_or(&own);
            for file_name in file_names_in(sessions)? {
                let (versions, bytes) = stored_in(&sessions.join(file_name))?;
                user_versions += versions;
                user_bytes += bytes;
            }
            Ok(ArtifactUsage { session_versions, session_bytes, user_versions, user_bytes })
        })
        .await
    }
}

/// Runs file operations where they may block, and says what they were for when they fail.
async fn blocking<T, F>(doing: &'static str, path: PathBuf, operation: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    let done = tokio::task::spawn_blocking(operation).await.map_err(io::Error::other).and_then(|result| result);
    done.map_err(|error| {
        let what = format!("cannot {doing} artifacts in {}", path.display());
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full { what, source: error.into() },
            _ => StoreError::backend(what, error),
        }
    })
}

/// Writes a new file that is on the disk before it gets its name.
fn write(path: &Path, mut part: Part) -> io::Result<()> {
    let bytes = match &mut part.data {
        PartData::InlineData(blob) => std::mem::take(&mut blob.data),
        _ => Bytes::new(),
    };
    let mut file = private::create_file(path)?;
    let mut head = serde_json::to_vec(&part)?;
    head.push(b'\n');
    file.write_all(&head)?;
    file.write_all(&bytes)?;
    file.sync_all()
}

/// Reads what [`write()`] wrote. JSON on one line has no line feed, so the first one ends it.
fn decode(file: Vec<u8>) -> io::Result<Part> {
    let file = Bytes::from(file);
    let end = file.iter().position(|byte| *byte == b'\n').ok_or_else(|| {
        io::Error::new(ErrorKind::InvalidData, "the file is not an artifact: its first line does not end")
    })?;
    let mut part: Part = serde_json::from_slice(file.get(..end).unwrap_or_default())?;
    if let PartData::InlineData(blob) = &mut part.data {
        blob.data = file.slice(end + 1..);
    }
    Ok(part)
}

/// Links a finished file into the artifact's folder under the next free number.
fn publish(unfinished: &Path, folder: &Path) -> io::Result<u64> {
    loop {
        match private::create_dir_all(folder) {
            // It was there, and was deleted before it could be looked at.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !is_other_than_folder(folder) => continue,
            made => made?,
        }
        let next = match versions_in(folder)?.last() {
            None => 0,
            Some(last) => last.checked_add(1).ok_or_else(|| io::Error::other("no version number is left"))?,
        };
        match fs::hard_link(unfinished, folder.join(next.to_string())) {
            Ok(()) => return Ok(next),
            // Somebody else got the number, or deleted the artifact.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == ErrorKind::NotFound && unfinished.exists() => {}
            Err(error) => return Err(error),
        }
    }
}

/// The numbers of the versions in an artifact's folder, ascending.
fn versions_in(folder: &Path) -> io::Result<Vec<u64>> {
    let mut versions = Vec::new();
    for file_name in file_names_in(folder)? {
        // `7` is a version, `007` and `+7` are somebody's files.
        versions.extend(file_name.parse().ok().filter(|version: &u64| version.to_string() == file_name));
    }
    versions.sort_unstable();
    Ok(versions)
}

/// The bare names of the artifacts in an owner's folder that have a version.
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

/// How many versions an owner's folder holds, and how many bytes of parts. The line feed in each file is not of the part.
fn stored_in(owner: &Path) -> io::Result<(u64, u64)> {
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
            // What was deleted meanwhile takes nothing.
            let Some(metadata) = unless_missing(fs::metadata(artifact.join(version.to_string())))? else { continue };
            count += 1;
            bytes += metadata.len().saturating_sub(1);
        }
    }
    Ok((count, bytes))
}

/// The names of the files in a folder that are text; none when there is no such folder.
fn file_names_in(folder: &Path) -> io::Result<Vec<String>> {
    let Some(entries) = unless_missing(fs::read_dir(folder))? else { return Ok(Vec::new()) };
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
        // Whoever wrote it may finish, or another process may remove it first.
        let Some(metadata) = unless_missing(fs::symlink_metadata(&path))? else { continue };
        if now.duration_since(metadata.modified()?).is_ok_and(|age| age > ABANDONED) {
            if metadata.is_dir() {
                remove_folder(&path)?;
            } else {
                unless_missing(fs::remove_file(&path))?;
            }
        }
    }
    Ok(())
}

/// Removes a folder that was moved away, unless somebody else did. A save that had found the folder before it was moved may still link
/// a version into it; there are only as many of them as were under way, so trying again ends.
fn remove_folder(folder: &Path) -> io::Result<()> {
    loop {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            removed => return unless_missing(removed).map(drop),
        }
    }
}

fn is_other_than_folder(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_dir())
}

fn unless_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
