//! Work that survives its caller, and file operations on threads for blocking work.

use std::io::{self, ErrorKind};

use hatchery_core::StoreError;

/// Runs `work` to completion, even if the caller is dropped.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::spawn(work).await.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => Err(StoreError::backend("cannot write to the storage", error)),
    })
}

/// Runs file operations on a thread for blocking work. `context` describes them in errors, as in
/// [`StoreError::backend`].
pub(crate) async fn run_blocking<T: Send + 'static>(
    context: impl FnOnce() -> String,
    operation: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    let result = tokio::task::spawn_blocking(operation).await.map_err(io::Error::other).and_then(|result| result);
    result.map_err(|error| file_error(context(), error))
}

/// Converts the error of a file operation to [`StoreError::Full`] if there is no space left, else to
/// [`StoreError::Backend`].
pub(crate) fn file_error(context: String, error: io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full { context, source: error.into() },
        _ => StoreError::backend(context, error),
    }
}
