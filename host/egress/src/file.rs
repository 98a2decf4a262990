//! Local files instead of documents of other hosts.

use std::io;
use std::path::Path;

use thiserror::Error;
use tokio::io::AsyncReadExt;

/// The reason why a file was not read.
#[derive(Debug, Error)]
pub enum FileError {
    /// It is larger than the limit. The rest was not read.
    #[error("it is larger than {0} bytes")]
    TooLarge(usize),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads a file of at most `limit` bytes.
///
/// # Errors
/// If it is larger, is no file, or cannot be read.
pub async fn read_file(path: &Path, limit: usize) -> Result<Vec<u8>, FileError> {
    // Opening a pipe would wait for its other end.
    if !tokio::fs::metadata(path).await?.is_file() {
        return Err(io::Error::other("it is no file").into());
    }
    let file = tokio::fs::File::open(path).await?;
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    file.take(limit as u64 + 1).read_to_end(&mut bytes).await?;
    if bytes.len() > limit { Err(FileError::TooLarge(limit)) } else { Ok(bytes) }
}
