//! Directory scan: finds components and YAML files in the served folder, at any depth.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use hatchery_engine::yaml::ROOT_FILE;
use hatchery_files::FileStamp;

/// The names of folders of build tools, which are skipped.
pub const IGNORED_FOLDERS: [&str; 4] = ["target", "node_modules", "venv", "__pycache__"];

/// The kind of a served file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// `*.wasm`.
    Component,
    /// `root_agent.yaml`.
    RootAgent,
    /// Any other YAML file: an agent or a script that other files may refer to.
    Yaml,
}

/// Identifies a version of a file without reading it: its size, and the times at which it was modified and changed. The
/// signature of a component is included, because a different signature may change whether the component is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileVersion {
    file: FileStamp,
    signature: Option<FileStamp>,
}

impl FileVersion {
    /// Returns the current version of a file. `None` if it does not exist.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let signature = path.extension().filter(|extension| *extension == "wasm");
        let signature = signature.and_then(|_| stamp(&path.with_extension("wasm.minisig")));
        Some(Self { file: stamp(path)?, signature })
    }
}

/// Returns the stamp of a file. `None` if there is none, or if it is a folder.
fn stamp(path: &Path) -> Option<FileStamp> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|metadata| FileStamp::new(&metadata))
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) files: BTreeMap<PathBuf, (FileKind, FileVersion)>,
    /// The folders that were read, `directory` among them.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// Folders that could not be read, with the reasons. Files in them may still exist even if they were not found.
    pub(crate) unreadable: BTreeMap<PathBuf, String>,
}

impl Scan {
    /// Returns the result of a scan in which nothing could be read.
    pub(crate) fn failed(directory: &Path) -> Self {
        let reason = "scanning it panicked".to_owned();
        Self { unreadable: BTreeMap::from([(directory.to_path_buf(), reason)]), ..Self::default() }
    }

    /// Returns true if the file is known not to exist any more.
    pub(crate) fn is_missing(&self, path: &Path) -> bool {
        !self.files.contains_key(path) && !self.unreadable.keys().any(|folder| path.starts_with(folder))
    }
}

/// Returns true if `path` is inside of a folder below `directory` that is never scanned: a hidden one, or one of a
/// build tool.
pub(crate) fn is_ignored(directory: &Path, path: &Path) -> bool {
    let below = path.strip_prefix(directory).unwrap_or(path);
    below.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        name.starts_with('.') || IGNORED_FOLDERS.contains(&name.as_ref())
    })
}

/// Scans `directory`. Skips hidden folders, folders of build tools, and folders that components may write: a component
/// that may write files must not be able to add agents.
pub(crate) fn scan(directory: &Path, writable_folders: &[PathBuf]) -> Scan {
    let is_writable = |path: &Path| {
        !writable_folders.is_empty()
            && path.canonicalize().is_ok_and(|path| writable_folders.iter().any(|it| path.starts_with(it)))
    };
    let mut scan = Scan::default();
    let mut pending = vec![directory.to_path_buf()];
    while let Some(folder) = pending.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                scan.unreadable.insert(folder, error.to_string());
                continue;
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    scan.unreadable.insert(folder.clone(), error.to_string());
                    continue;
                }
            };
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') {
                continue;
            }
            if path.is_dir() {
                if !IGNORED_FOLDERS.contains(&name.as_ref()) && !is_link(&path) && !is_writable(&path) {
                    pending.push(path);
                }
            } else if let (Some(kind), Some(version)) = (kind_of(&name), FileVersion::read(&path)) {
                // A link to a file that a component may write would turn that file into an agent or a component.
                if !(is_link(&path) && is_writable(&path)) {
                    scan.files.insert(path, (kind, version));
                }
            }
        }
        scan.folders.insert(folder);
    }
    scan
}

/// Returns true for a symbolic link. A linked folder could lead back up.
fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink())
}

fn kind_of(name: &str) -> Option<FileKind> {
    if name == ROOT_FILE {
        return Some(FileKind::RootAgent);
    }
    match name.rsplit_once('.')?.1 {
        "wasm" => Some(FileKind::Component),
        "yaml" | "yml" => Some(FileKind::Yaml),
        _ => None,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::time::{Duration, Instant, SystemTime};

    use super::*;

    #[test]
    fn a_replacement_of_the_same_size_and_modification_time_is_another_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copied.wasm");
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            FileVersion::read(&path)
        };
        let version = write("one");
        // The time of a change may be as coarse as the clock of the kernel.
        let begun = Instant::now();
        while write("two") == version {
            assert!(begun.elapsed() < Duration::from_secs(10), "the change was not noticed");
        }
    }
}
