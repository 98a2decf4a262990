//! File access: reads with a size limit, atomic writes, locks of folders.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::Duration;

use hatchery_files::{FileAccess, remove_abandoned, write_atomically};
use tokio::fs;
use tokio::io::AsyncReadExt;

use crate::component::MAX_BYTES;
use crate::error::RegistryError;

/// Age from which temporary files of killed pulls are removed. Where there are no locks of files, a younger one may
/// still be written.
const MIN_AGE: Duration = Duration::from_secs(60 * 60);

/// Reads a file. Returns `None` if it does not exist.
pub(crate) async fn read(path: &Path) -> Result<Option<Vec<u8>>, RegistryError> {
    let failed = |source| RegistryError::Read { path: path.into(), source };
    let file = match fs::File::open(path).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let size = file.metadata().await.map_err(failed)?.len();
    let mut bytes = Vec::new();
    if size <= MAX_BYTES {
        // The file may have grown since.
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).await.map_err(failed)?;
    }
    let size = size.max(bytes.len() as u64);
    if size > MAX_BYTES {
        return Err(RegistryError::TooLarge { origin: path.display().to_string(), size, max: MAX_BYTES });
    }
    Ok(Some(bytes))
}

/// Reads a file as UTF-8. Returns `None` if it does not exist.
pub(crate) async fn read_text(path: &Path) -> Result<Option<String>, RegistryError> {
    let not_utf8 =
        |error| RegistryError::Read { path: path.into(), source: io::Error::new(io::ErrorKind::InvalidData, error) };
    read(path).await?.map(|bytes| String::from_utf8(bytes).map_err(not_utf8)).transpose()
}

/// Writes a file atomically: concurrent readers see the old content or the new one. Removes the temporary files that
/// killed writers of it have left.
pub(crate) async fn write(path: &Path, bytes: Vec<u8>) -> Result<(), RegistryError> {
    let target = path.to_owned();
    let write = move || {
        if let (Some(folder), Some(name)) = (target.parent(), target.file_name().and_then(OsStr::to_str)) {
            // A file that cannot be removed only takes space.
            let _ = remove_abandoned(folder, name, MIN_AGE);
        }
        write_atomically(&target, &bytes, FileAccess::Default)
    };
    let written = tokio::task::spawn_blocking(write).await.map_err(io::Error::other).and_then(|written| written);
    written.map_err(|source| RegistryError::Write { path: path.into(), source })
}

/// Locks a folder until the result is dropped, and waits for other processes that lock it. `None` if the folder cannot
/// be locked.
pub(crate) async fn lock(folder: &Path) -> Option<std::fs::File> {
    let folder = folder.to_owned();
    let lock = move || {
        let folder = std::fs::File::open(folder)?;
        folder.lock()?;
        Ok::<_, io::Error>(folder)
    };
    tokio::task::spawn_blocking(lock).await.ok()?.ok()
}

/// Deletes a file if it exists.
pub(crate) async fn remove(path: &Path) -> Result<(), RegistryError> {
    match fs::remove_file(path).await {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(RegistryError::Write { path: path.into(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_write_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wasm");
        for text in ["one", "two"] {
            write(&path, text.into()).await.unwrap();
            assert_eq!(read_text(&path).await.unwrap().as_deref(), Some(text));
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        remove(&path).await.unwrap();
        remove(&path).await.unwrap();
        assert!(read(&path).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_write_removes_what_killed_writers_have_left() {
        let folder = tempfile::tempdir().unwrap();
        let [old, young] = [0, 1].map(|number| folder.path().join(format!(".x.wasm.1-{number}.tmp")));
        std::fs::write(&old, "half").unwrap();
        std::fs::write(&young, "half").unwrap();
        let long_ago = std::time::SystemTime::now() - MIN_AGE - Duration::from_secs(1);
        std::fs::File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
        write(&folder.path().join("x.wasm"), b"whole".to_vec()).await.unwrap();
        assert!(!old.exists() && young.exists(), "another process may still write the younger one");
    }

    #[tokio::test]
    async fn a_failed_write_names_the_file_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wasm");
        std::fs::create_dir(&path).unwrap();
        let error = write(&path, b"x".to_vec()).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: cannot be written: ", path.display())), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let error = write(&folder.path().join("none/x"), b"x".to_vec()).await.unwrap_err().to_string();
        assert!(error.contains("none/x: cannot be written"), "{error}");
    }

    #[tokio::test]
    async fn a_file_that_is_too_large_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wasm");
        std::fs::File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        let error = read(&path).await.unwrap_err().to_string();
        assert!(error.contains("x.wasm has 268435457 bytes, but a component can have at most 268435456"), "{error}");
    }
}
