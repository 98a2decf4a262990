//! Access to a catalog that changes while the process runs.

use std::sync::Arc;

use hatchery_core::ItemResolver;

/// The content of a catalog at one point in time.
#[derive(Clone)]
pub struct CatalogSnapshot {
    /// Changes with the content. Items that were resolved in one generation can be reused until the next.
    pub generation: u64,
    /// Finds items by name.
    pub resolver: Arc<dyn ItemResolver>,
}

impl CatalogSnapshot {
    /// Returns a catalog that never changes.
    pub fn fixed(resolver: impl ItemResolver + 'static) -> Self {
        Self { generation: 0, resolver: Arc::new(resolver) }
    }
}

/// A catalog of items by name that can change at any time, for example because files are loaded.
pub trait CatalogSource: Send + Sync {
    /// Returns the current content. Called at the start of each run, so it must be cheap and must not block.
    fn snapshot(&self) -> CatalogSnapshot;
}

impl CatalogSource for CatalogSnapshot {
    fn snapshot(&self) -> CatalogSnapshot {
        self.clone()
    }
}
