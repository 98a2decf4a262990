//! Tokio tasks: work that survives its caller, and panics of tasks.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use hatchery_core::RunError;
use tokio::runtime::Handle;
use tokio::task::JoinError;

/// Runs `work` to completion even if the caller is dropped: the rest of work that has begun is spawned then.
pub fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, RunError>> + Send + 'static,
) -> impl Future<Output = Result<T, RunError>> + Send {
    Detachable { work: Some(work.boxed()), has_begun: false }
}

/// Work that is spawned if it is dropped before its end.
struct Detachable<T: Send + 'static> {
    /// `None` after the end.
    work: Option<BoxFuture<'static, T>>,
    has_begun: bool,
}

impl<T: Send + 'static> Future for Detachable<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.has_begun = true;
        // Taken, so that work that panics is not spawned.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let result = work.poll_unpin(cx);
        if result.is_pending() {
            self.work = Some(work);
        }
        result
    }
}

impl<T: Send + 'static> Drop for Detachable<T> {
    fn drop(&mut self) {
        // Without a runtime, the process is about to end.
        if let Some(work) = self.work.take().filter(|_| self.has_begun)
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(work);
        }
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
