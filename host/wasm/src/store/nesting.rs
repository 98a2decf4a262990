//! How deep tools call tools. It follows the chain of calls from store to store, as a value of the task that runs a call.

use std::future::Future;

use tokio::task_local;

use crate::limits::{Limit, LimitHit, Limits};

task_local! {
    static CURRENT: Nesting;
}

/// The tools that wait for a call, counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nesting(u32);

impl Nesting {
    /// That of the task which is running.
    pub(super) fn current() -> Self {
        CURRENT.try_with(|nesting| *nesting).unwrap_or(Self(0))
    }

    /// One deeper.
    ///
    /// # Errors
    /// When that is too deep for the component that calls.
    pub(crate) fn deeper(self, limits: &Limits) -> Result<Self, LimitHit> {
        if self.0 >= limits.depth {
            return Err(limits.hit(Limit::Depth));
        }
        Ok(Self(self.0 + 1))
    }

    /// Runs a call at this depth.
    pub(crate) fn scope<F: Future>(self, call: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, call)
    }
}
