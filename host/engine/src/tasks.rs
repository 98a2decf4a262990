//! Work in tasks of its own.

use std::task::Poll;

use futures::poll;
use hatchery_core::RunError;
use tokio::task::JoinError;

/// Does work that, once begun, is finished also when nobody waits for it any more.
pub async fn finished<T: Send + 'static>(
    work: impl Future<Output = Result<T, RunError>> + Send + 'static,
) -> Result<T, RunError> {
    let mut work = Box::pin(work);
    match poll!(&mut work) {
        Poll::Ready(result) => result,
        // From here on it may be half done, so it must not depend on whoever waits for it.
        Poll::Pending => joined(tokio::spawn(work).await),
    }
}

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
