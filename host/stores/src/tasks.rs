//! Work that survives its caller.

use hatchery_core::StoreError;

/// Runs `work` to completion, also if the caller is dropped meanwhile.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::spawn(work).await.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => Err(StoreError::backend("cannot write to the storage", error)),
    })
}
