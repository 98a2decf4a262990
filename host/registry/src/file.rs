//! File access: reads with a size limit, atomic writes, locks of folders.

use std::io;
use std::path::{Path, PathBuf};

use tokio::fs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::component::MAX_BYTES;
use crate::error::RegistryError;

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

/// Writes a file atomically: concurrent readers see the old content or the new one.
pub(crate) async fn write(path: &Path, bytes: &[u8]) -> Result<(), RegistryError> {
    let write = async {
        let (temporary, mut file) = create_temporary(path).await?;
        let result = async {
            file.write_all(bytes).await?;
            file.sync_all().await?;
            fs::rename(&temporary, path).await
        }
        .await;
        if result.is_err() {
            // The original error is more useful than the error of the removal.
            let _ = fs::remove_file(&temporary).await;
        }
        result
    };
    write.await.map_err(|source| RegistryError::Write { path: path.into(), source })
}

/// Creates a hidden file beside another one, so that a host that watches the folder does not load it. Containers that share
/// the folder may have processes with the same id, so an existing file may belong to another process.
async fn create_temporary(path: &Path) -> io::Result<(PathBuf, fs::File)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut number = 0_u32;
    loop {
        let temporary = path.with_file_name(format!(".{name}.{}.{number}", std::process::id()));
        match fs::File::create_new(&temporary).await {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            created => return created.map(|file| (temporary, file)),
        }
    }
}

/// Locks a folder until the result is dropped, and waits for other processes that lock it. `None` if the folder cannot be
/// locked.
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
            write(&path, text.as_bytes()).await.unwrap();
            assert_eq!(read_text(&path).await.unwrap().as_deref(), Some(text));
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        remove(&path).await.unwrap();
        remove(&path).await.unwrap();
        assert!(read(&path).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_temporary_file_of_another_process_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wasm");
        // Two processes of this id write in different containers.
        let (other, _file) = create_temporary(&path).await.unwrap();
        std::fs::write(&other, "half").unwrap();
        write(&path, b"whole").await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "half");
    }

    #[tokio::test]
    async fn a_failed_write_names_the_file_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wasm");
        std::fs::create_dir(&path).unwrap();
        let error = write(&path, b"x").await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: cannot be written: ", path.display())), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let error = write(&folder.path().join("none/x"), b"x").await.unwrap_err().to_string();
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
