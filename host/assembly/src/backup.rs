//! Backups: copies of everything that a host has stored, which are data folders themselves.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hatchery_core::StoreError;
pub use hatchery_stores::backup::Backup as Outcome;
use hatchery_stores::backup::{back_up_artifacts, back_up_database, copy_folder};
use hatchery_stores::permissions;
use thiserror::Error;

use crate::config::{Config, path_of_uri, without_credentials};
use crate::host_key;
use crate::services::{self, ARTIFACTS_FOLDER, MEMORY_FILE, SESSIONS_FILE};
use crate::storage::{EVALUATIONS_FOLDER, Storage};

/// A part of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupItem {
    /// The key of the service in `hatchery.yaml`, or the name of the part.
    pub name: &'static str,
    /// Location of the data, without credentials.
    pub source: String,
    /// The outcome of the copy.
    pub outcome: Outcome,
}

/// Reasons why there is no backup.
#[derive(Debug, Error)]
pub enum BackupError {
    #[error("{} exists and is not empty; name a new folder", .0.display())]
    TargetInUse(PathBuf),
    /// The target is in a folder that would be copied into it.
    #[error("{} is in {}, which the backup copies; name a folder outside of it", target.display(), folder.display())]
    TargetInSource { target: PathBuf, folder: PathBuf },
    /// The target cannot be created, or a file cannot be copied.
    #[error("cannot write the backup to {}: {source}", folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    /// A service cannot be copied.
    #[error("{key}: {source}")]
    Service { key: &'static str, source: StoreError },
}

/// Copies everything that hosts with this configuration have stored on this machine to the new folder `target`, with
/// the names of a data folder. Hosts may be running. Sessions are copied before the artifacts that they refer to.
///
/// # Errors
/// If the target is not empty, or something cannot be read or written. The target is incomplete then.
pub async fn back_up(config: &Config, storage: &Storage, target: &Path) -> Result<Vec<BackupItem>, BackupError> {
    let failed = |source| BackupError::Folder { folder: target.to_owned(), source };
    if fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(BackupError::TargetInUse(target.to_owned()));
    }
    let [sessions, artifacts, memory] = services::uris(config, storage);
    let evaluations = match storage {
        Storage::Directory(data) => Some(data.join(EVALUATIONS_FOLDER)),
        Storage::InMemory => None,
    };
    for folder in path_of_uri(&artifacts).into_iter().chain(evaluations) {
        if is_inside(target, &folder) {
            return Err(BackupError::TargetInSource { target: target.to_owned(), folder });
        }
    }
    permissions::create_dir_all(target).map_err(failed)?;
    let failure = |key| move |source| BackupError::Service { key, source };
    let item = |name, uri: &str, outcome| BackupItem { name, source: without_credentials(uri), outcome };
    let mut items = Vec::new();
    let copied = back_up_database(&sessions, &target.join(SESSIONS_FILE)).await;
    items.push(item("session_service", &sessions, copied.map_err(failure("session_service"))?));
    let copied = back_up_artifacts(&artifacts, &target.join(ARTIFACTS_FOLDER)).await;
    items.push(item("artifact_service", &artifacts, copied.map_err(failure("artifact_service"))?));
    let copied = back_up_database(&memory, &target.join(MEMORY_FILE)).await;
    items.push(item("memory_service", &memory, copied.map_err(failure("memory_service"))?));
    if let Storage::Directory(data) = storage {
        items.push(copy("evaluations", &data.join(EVALUATIONS_FOLDER), target).map_err(failed)?);
        items.push(copy("host key", &data.join(host_key::FILE_NAME), target).map_err(failed)?);
    }
    Ok(items)
}

/// Returns true if a path, which need not exist, is in a folder or is the folder.
fn is_inside(path: &Path, folder: &Path) -> bool {
    let (Ok(path), Ok(folder)) = (std::path::absolute(path), folder.canonicalize()) else { return false };
    path.ancestors().filter_map(|ancestor| ancestor.canonicalize().ok()).any(|ancestor| ancestor == folder)
}

/// Copies a file or a folder of the data folder into `target`, under its name.
fn copy(name: &'static str, source: &Path, target: &Path) -> io::Result<BackupItem> {
    let to = target.join(source.file_name().unwrap_or(OsStr::new(name)));
    let outcome = if source.is_dir() {
        copy_folder(source, &to)?;
        Outcome::Copied
    } else if source.is_file() {
        io::copy(&mut fs::File::open(source)?, &mut permissions::create_file(&to)?)?;
        Outcome::Copied
    } else {
        Outcome::Empty
    };
    Ok(BackupItem { name, source: source.display().to_string(), outcome })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_target_in_a_folder_that_is_copied_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        for copied in [ARTIFACTS_FOLDER, EVALUATIONS_FOLDER] {
            let copied = data.join(copied);
            fs::create_dir_all(&copied).unwrap();
            let target = copied.join("backups/today");
            let error = back_up(&Config::default(), &Storage::Directory(data.clone()), &target).await.unwrap_err();
            let expected = format!(
                "{} is in {}, which the backup copies; name a folder outside of it",
                target.display(),
                copied.display()
            );
            assert_eq!(error.to_string(), expected);
            assert_eq!(fs::read_dir(&copied).unwrap().count(), 0);
        }
    }
}
