//! Ends of tasks.

use hatchery_core::RunError;
use tokio::task::JoinError;

/// What a task gave. A panic in it goes on in the task that waits for it, where the runner turns it into an error.
pub(crate) fn joined<T>(ended: Result<Result<T, RunError>, JoinError>) -> Result<T, RunError> {
    match ended {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(RunError::Cancelled),
        },
    }
}
