//! How deep tools call tools. It follows the chain of calls from store to store, as a value of the task that runs a call.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task_local;

use crate::runtime::limits::{Limit, LimitHit, Limits};

/// Most calls of tools and runs of agents at one time that code has begun on behalf of one call from outside.
pub(crate) const MOST_AT_ONCE: usize = 64;

task_local! {
    static CURRENT: Nesting;
}

/// The tools that wait for a call, counted.
#[derive(Debug, Clone)]
pub(crate) struct Nesting {
    depth: u32,
    /// Free places of calls that run at one time in this tree of calls, so that none of them can take all of the engine's.
    places: Arc<Semaphore>,
}

impl Nesting {
    /// That of the task which is running.
    pub(crate) fn current() -> Self {
        CURRENT
            .try_with(Clone::clone)
            .unwrap_or_else(|_| Self { depth: 0, places: Arc::new(Semaphore::new(MOST_AT_ONCE)) })
    }

    /// One deeper.
    ///
    /// # Errors
    /// When that is too deep for the component that calls.
    pub(crate) fn deeper(self, limits: &Limits) -> Result<Self, LimitHit> {
        if self.depth >= limits.depth {
            return Err(limits.hit(Limit::Depth));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    /// A place for one more call, until it is dropped; nothing when too many run at one time. It never waits: those that run may wait for
    /// this one.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Runs a call at this depth.
    pub(crate) fn scope<F: Future>(self, call: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_tree_share_their_places() {
        let outer = Nesting::current();
        let inner = outer.clone().deeper(&Limits::default()).unwrap();
        let places: Vec<_> =
            (0..MOST_AT_ONCE).map(|turn| if turn % 2 == 0 { &outer } else { &inner }.place()).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(outer.place().is_none() && inner.place().is_none());
        drop(places);
        assert!(inner.place().is_some());
    }
}
