//! Tokio tasks: task-local values that the tasks of a run share, work that survives its caller, and panics of tasks.

use std::any::Any;
use std::sync::Arc;
use std::task::Poll;

use futures::poll;
use hatchery_core::RunError;
use tokio::task::JoinError;
use tokio::task_local;
use tracing::Instrument;

task_local! {
    /// `None` in a task whose caller has no value.
    static SCOPE: Option<Arc<dyn Any + Send + Sync>>;
}

/// Returns the value of the innermost [`with_scope_value`] around the current task. `None` if there is none, or it has
/// another type.
pub fn scope_value<T: Any + Clone>() -> Option<T> {
    SCOPE.try_with(|value| value.as_ref()?.downcast_ref::<T>().cloned()).ok().flatten()
}

/// Runs `work` with a value that the tasks of the runs and calls that it starts inherit.
pub fn with_scope_value<F: Future>(value: impl Any + Send + Sync, work: F) -> impl Future<Output = F::Output> {
    SCOPE.scope(Some(Arc::new(value)), work)
}

/// Prepares a part of a run for a separate task, which gets the scope value and the tracing span of the current task.
pub fn in_current_scope<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let value = SCOPE.try_with(Clone::clone).ok().flatten();
    SCOPE.scope(value, work).in_current_span()
}

/// Runs `work` to completion even if the caller is dropped: polls it once inline, then spawns the rest.
pub fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, RunError>> + Send + 'static,
) -> impl Future<Output = Result<T, RunError>> + Send {
    // Boxed here, because an asynchronous function would hold it and be copied with it.
    let mut work = Box::pin(work);
    async move {
        match poll!(&mut work) {
            Poll::Ready(result) => result,
            // The work has begun and may be half done from here on.
            Poll::Pending => propagate_panic(tokio::spawn(in_current_scope(work)).await),
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
