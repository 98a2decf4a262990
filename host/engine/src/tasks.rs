//! Tokio tasks: work that survives its caller, and panics of tasks.

use std::task::Poll;

use futures::poll;
use hatchery_core::RunError;
use tokio::task::JoinError;

/// Runs `work` to completion even if the caller is dropped: polls it once inline, then spawns the rest.
pub async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, RunError>> + Send + 'static,
) -> Result<T, RunError> {
    let mut work = Box::pin(work);
    match poll!(&mut work) {
        Poll::Ready(result) => result,
        // The work has begun and may be half done from here on.
        Poll::Pending => propagate_panic(tokio::spawn(work).await),
    }
}

/// Returns the result of a task. A panic of the task is resumed in the caller's task, where the runner turns it into an
/// error.
pub(crate) fn propagate_panic<T>(output: Result<Result<T, RunError>, JoinError>) -> Result<T, RunError> {
    match output {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(RunError::Cancelled),
        },
    }
}
