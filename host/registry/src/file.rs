//! Files of a folder: read up to a limit, written in one step.

use std::io;
use std::path::Path;

use tokio::fs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::component::MAX_BYTES;
use crate::error::RegistryError;

/// The bytes of a file, `None` when there is none.
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
        // It may have grown.
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).await.map_err(failed)?;
    }
    let size = size.max(bytes.len() as u64);
    if size > MAX_BYTES {
        return Err(RegistryError::TooLarge { what: path.display().to_string(), size, most: MAX_BYTES });
    }
    Ok(Some(bytes))
}

/// The same for a text.
pub(crate) async fn read_text(path: &Path) -> Result<Option<String>, RegistryError> {
    let not_utf8 =
        |error| RegistryError::Read { path: path.into(), source: io::Error::new(io::ErrorKind::InvalidData, error) };
    read(path).await?.map(|bytes| String::from_utf8(bytes).map_err(not_utf8)).transpose()
}

/// Puts a whole file in its place; whoever reads it meanwhile has the old one or the new one.
pub(crate) async fn write(path: &Path, bytes: &[u8]) -> Result<(), RegistryError> {
    let written = async {
        // Hidden, so that a host that watches the folder does not load it half-written.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let staged = path.with_file_name(format!(".{name}.{}", std::process::id()));
        let result = async {
            let mut file = fs::File::create(&staged).await?;
            file.write_all(bytes).await?;
            file.sync_all().await?;
            fs::rename(&staged, path).await
        }
        .await;
        if result.is_err() {
            // What is left of it is of no use; that it cannot be deleted either says nothing new.
            let _ = fs::remove_file(&staged).await;
        }
        result
    };
    written.await.map_err(|source| RegistryError::Write { path: path.into(), source })
}

/// Deletes a file that may not be there.
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
    async fn a_written_file_is_whole_and_alone() {
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
    async fn what_cannot_be_written_is_named_and_leaves_nothing() {
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
        assert!(error.contains("x.wasm has 268435457 bytes, and a component may have 268435456"), "{error}");
    }
}
