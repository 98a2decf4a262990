//! How deep tools call tools. It follows the chain of calls from store to store, as a value of the task that runs a call.

use std::future::Future;

use tokio::task_local;

/// Most tools in a chain in which each is called by the one before.
const MOST: u32 = 8;

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

    /// One deeper, for a call of `tool`.
    ///
    /// # Errors
    /// When that is too deep; in words for a model.
    pub(crate) fn deeper(self, tool: &str) -> Result<Self, String> {
        if self.0 == MOST {
            let most = format!("tools that call tools may be nested {MOST} deep");
            return Err(format!("tool `{tool}` is not called: {most}; call it from further outside"));
        }
        Ok(Self(self.0 + 1))
    }

    /// Runs a call at this depth.
    pub(crate) fn scope<F: Future>(self, call: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, call)
    }
}
