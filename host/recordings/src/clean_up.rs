//! Removal of temporary files of processes that were killed while they wrote a recording.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::FILE_NAME;
use crate::location::RecordingRoot;

/// Age from which temporary files are removed. Until then they help to examine a killed process; later they only keep
/// forgotten prompts and answers.
const MIN_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Removes the temporary files of recordings that no process writes any more. Failures are only logged.
pub(crate) fn remove_temporary_files(root: RecordingRoot) {
    let mut folders = vec![root.folder];
    while let Some(folder) = folders.pop() {
        match hatchery_files::remove_abandoned(&folder, FILE_NAME, MIN_AGE) {
            Ok(removed) => removed.iter().for_each(|file| {
                tracing::info!(
                    "{}: this part of a recording, which a killed process has left, was removed",
                    file.display()
                );
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!("{}: cannot be searched for temporary files of recordings: {error}", folder.display());
            }
        }
        if root.is_recursive {
            folders.extend(subfolders(&folder));
        }
    }
}

/// Returns the folders in a folder, without links, which could lead out of it.
fn subfolders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}
