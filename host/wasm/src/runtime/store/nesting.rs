//! Depth and concurrency of tool calls that tools make. Both follow the chain of calls from store to store, as the
//! scope value of the tasks that run a call.

use std::future::Future;
use std::sync::Arc;

use hatchery_engine::tasks::{scope_value, with_scope_value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::runtime::limits::{Limit, LimitExceeded, Limits};

/// Maximum number of tool calls and agent runs at one time that guests have started on behalf of one call from outside.
pub(crate) const MAX_CONCURRENT_CALLS: usize = 64;

/// The position of a call in its tree of calls.
#[derive(Debug, Clone)]
pub(crate) struct Nesting {
    depth: u32,
    /// Bounds the calls of this tree that run at one time, so that one tree cannot take all instances of the engine.
    permits: Arc<Semaphore>,
    /// The key of the run whose code calls a model. `None` for other calls, which know their run.
    run: Option<usize>,
}

impl Nesting {
    /// Returns the nesting of the current task, or of a new tree outside of any call.
    pub(crate) fn current() -> Self {
        scope_value().unwrap_or_else(|| Self {
            depth: 0,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS)),
            run: None,
        })
    }

    /// Returns the key of the run whose code calls a model in the current task. `None` for other callers.
    pub(crate) fn calling_run() -> Option<usize> {
        scope_value::<Self>().and_then(|nesting| nesting.run)
    }

    /// Returns the nesting of a model call by the code of a run.
    pub(crate) fn for_model_call(self, run: Option<usize>) -> Self {
        Self { run, ..self }
    }

    /// Returns the nesting of a call made by this one.
    ///
    /// # Errors
    /// If that is deeper than `limits.depth` of the calling component.
    pub(crate) fn nested(self, limits: &Limits) -> Result<Self, LimitExceeded> {
        if self.depth >= limits.depth {
            return Err(limits.exceeded(Limit::Depth));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    /// Takes a permit for one more call; `None` if too many run. It never waits, since the running ones may wait for
    /// this call.
    pub(crate) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// Runs `call` at this depth, with the agents and runs that it starts.
    pub(crate) fn scope<F: Future>(self, call: F) -> impl Future<Output = F::Output> {
        with_scope_value(self, call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_tree_share_their_permits() {
        let outer = Nesting::current();
        let inner = outer.clone().nested(&Limits::default()).unwrap();
        let permits: Vec<_> =
            (0..MAX_CONCURRENT_CALLS).map(|index| if index % 2 == 0 { &outer } else { &inner }.try_acquire()).collect();
        assert!(permits.iter().all(Option::is_some));
        assert!(outer.try_acquire().is_none() && inner.try_acquire().is_none());
        drop(permits);
        assert!(inner.try_acquire().is_some());
    }
}
