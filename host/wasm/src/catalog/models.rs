//! Resolves model names to models of components or to other models.

use std::sync::Arc;

use hatchery_core::{Embedder, Model, ModelCapabilities, ModelError, ModelResolver};

use crate::catalog::watch::CatalogHandle;
use crate::contract::component::MODEL_PREFIX;

/// Resolves `component:NAME/model` in the current catalog, and all other names with `fallback`.
pub struct CatalogModels {
    pub catalog: CatalogHandle,
    /// Resolves names of models that are not components'.
    pub fallback: Arc<dyn ModelResolver>,
}

impl ModelResolver for CatalogModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        if name.starts_with(MODEL_PREFIX) { self.catalog.model(name) } else { self.fallback.model(name) }
    }

    fn embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        self.fallback.embedder(name)
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        if name.starts_with(MODEL_PREFIX) {
            self.catalog.model(name).map(|model| model.capabilities()).unwrap_or_default()
        } else {
            self.fallback.capabilities(name)
        }
    }
}
