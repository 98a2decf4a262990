//! Lists the files of a folder.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::Path;
use std::time::UNIX_EPOCH;

use hatchery_core::{matches_wildcard, pluralize};

use super::FolderSource;
use super::index::FileState;

fn state(metadata: &Metadata) -> FileState {
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified = modified.and_then(|time| i64::try_from(time.as_micros()).ok()).unwrap_or_default();
    FileState { modified, size: i64::try_from(metadata.len()).unwrap_or(i64::MAX), version: None }
}

/// Returns the files of a source by their paths below its folder.
///
/// # Errors
/// If a folder cannot be read, a link leads to it, or there are too many files.
pub(super) fn walk(source: &FolderSource) -> Result<BTreeMap<String, FileState>, String> {
    if let Some(link) = link_to(source) {
        let (folder, link) = (source.folder.display(), link.display());
        return Err(format!(
            "the folder {folder} is not searched, because {link} is a link; name a folder without links"
        ));
    }
    let mut files = BTreeMap::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let path = source.folder.join(&folder);
        let failed = |error: std::io::Error| format!("the folder {} cannot be read: {error}", path.display());
        for entry in std::fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') {
                continue;
            }
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            // Does not follow links.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(path);
            } else if metadata.is_file() && is_included(source, &path, &metadata) {
                files.insert(path, state(&metadata));
                if files.len() > source.max_files {
                    return Err(too_many(&source.folder, source.max_files));
                }
            }
        }
    }
    Ok(files)
}

/// Returns the first link on the way from the root to the folder of a source.
fn link_to(source: &FolderSource) -> Option<&Path> {
    let root = source.root.as_deref()?;
    let below = source.folder.ancestors().take_while(|folder| *folder != root && folder.starts_with(root));
    below.filter(|folder| folder.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink())).last()
}

fn is_included(source: &FolderSource, path: &str, metadata: &Metadata) -> bool {
    metadata.len() <= source.max_file && source.include.iter().any(|pattern| matches_wildcard(pattern, path))
}

fn too_many(folder: &Path, max: usize) -> String {
    let files = pluralize(max, "file", "files");
    format!("the folder {} has more than {files} to search; choose fewer by `include`", folder.display())
}
