//! The layout version of a directory of artifacts, and the upgrade from version 1.
//!
//! Version 1 kept capital letters in file names, so users whose ids differ only by case shared a folder on file systems
//! that ignore case. The first opening renames the folders of such names, and then records the version in `.layout`.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use hatchery_core::StoreError;

use super::name::{from_file_name, from_old_file_name, to_file_name, to_owner_name};
use crate::permissions;

/// The file that contains the version.
const FILE_NAME: &str = ".layout";

const VERSION: &str = "2\n";

/// Upgrades a directory to the current layout.
pub(super) fn upgrade(root: &Path) -> io::Result<()> {
    let file = root.join(FILE_NAME);
    if fs::read_to_string(&file).is_ok_and(|version| version == VERSION) {
        return Ok(());
    }
    let owner_name = |name: &str| Ok(to_owner_name(name));
    for app in rename_entries(root, owner_name)? {
        for user in rename_entries(&app, owner_name)? {
            rename_entries(&user.join("user"), to_file_name)?;
            for session in rename_entries(&user.join("sessions"), owner_name)? {
                rename_entries(&session, to_file_name)?;
            }
        }
    }
    match permissions::create_file(&file) {
        Ok(mut file) => io::Write::write_all(&mut file, VERSION.as_bytes()),
        // Another process did the same concurrently, or crashed while it wrote the file.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::write(&file, VERSION),
        Err(error) => Err(error),
    }
}

/// Renames the folders in `folder` to their names as `encode` returns them. Returns all folders with a valid name.
fn rename_entries(folder: &Path, encode: impl Fn(&str) -> Result<String, StoreError>) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(file_name) = entry.file_name().into_string() else { continue };
        if file_name.starts_with('.') || !entry.file_type()?.is_dir() {
            continue;
        }
        if from_file_name(&file_name).is_some() {
            folders.push(entry.path());
            continue;
        }
        // Names that no version has written are foreign.
        let Some(name) = from_old_file_name(&file_name) else { continue };
        let renamed = encode(&name).map_err(io::Error::other).and_then(|new| {
            let path = folder.join(new);
            fs::rename(entry.path(), &path).map(|()| path)
        });
        match renamed {
            Ok(path) => folders.push(path),
            // Another process has renamed it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                let path = entry.path();
                let path = path.display();
                tracing::warn!("cannot rename {path}: {error}; its artifacts are not available until it is renamed");
            }
        }
    }
    Ok(folders)
}
