//! Small files in folders, on disk or in memory.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hatchery_core::sync::MutexExt;
use hatchery_files::{FileAccess, write_atomically};

/// Files by folder and name. Names are checked by the caller.
pub(super) enum Files {
    Memory(Mutex<BTreeMap<(String, String), Vec<u8>>>),
    Disk(PathBuf),
}

impl Files {
    pub(super) fn in_memory() -> Self {
        Self::Memory(Mutex::default())
    }

    pub(super) fn in_folder(folder: PathBuf) -> Self {
        Self::Disk(folder)
    }

    /// Returns the content of a file. `None` if there is none.
    pub(super) fn read(&self, folder: &str, name: &str, max: usize) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Memory(files) => Ok(files.lock_unpoisoned().get(&(folder.to_owned(), name.to_owned())).cloned()),
            Self::Disk(root) => read_file(&root.join(folder).join(name), max),
        }
    }

    /// Writes a file atomically.
    pub(super) fn write(&self, folder: &str, name: &str, content: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(files) => {
                files.lock_unpoisoned().insert((folder.to_owned(), name.to_owned()), content.to_owned());
                Ok(())
            }
            Self::Disk(root) => {
                let folder = root.join(folder);
                create_private_folder(&folder)?;
                write_atomically(&folder.join(name), content, FileAccess::Default)
            }
        }
    }

    /// Deletes a file. Returns false if there is none.
    pub(super) fn remove(&self, folder: &str, name: &str) -> io::Result<bool> {
        match self {
            Self::Memory(files) => Ok(files.lock_unpoisoned().remove(&(folder.to_owned(), name.to_owned())).is_some()),
            Self::Disk(root) => match fs::remove_file(root.join(folder).join(name)) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error),
            },
        }
    }

    /// Returns the names of the files with this suffix, without it.
    pub(super) fn list(&self, folder: &str, suffix: &str) -> io::Result<Vec<String>> {
        match self {
            Self::Memory(files) => {
                let files = files.lock_unpoisoned();
                let names = files.keys().filter(|(in_folder, _)| in_folder == folder).map(|(_, name)| name);
                Ok(names.filter_map(|name| Some(name.strip_suffix(suffix)?.to_owned())).collect())
            }
            Self::Disk(root) => list_folder(&root.join(folder), suffix),
        }
    }
}

/// Reads a regular file of at most `max` bytes. `None` if there is none.
pub(super) fn read_file(path: &Path, max: usize) -> io::Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.is_file() => return Ok(None),
        Ok(_) => {}
    }
    let mut content = Vec::new();
    // One byte more than allowed shows that the file is larger.
    File::open(path)?.take((max as u64).saturating_add(1)).read_to_end(&mut content)?;
    if content.len() > max {
        let message = format!("{} has more than {} MiB", path.display(), max >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(Some(content))
}

/// Returns the names of the files with this suffix, without it. Empty if there is no such folder.
pub(super) fn list_folder(folder: &Path, suffix: &str) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(suffix)).filter(|stem| !stem.starts_with('.'));
        names.extend(stem.map(str::to_owned));
    }
    Ok(names)
}

/// Creates a folder with access for its owner only.
fn create_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
