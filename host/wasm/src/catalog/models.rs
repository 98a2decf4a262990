//! Models of components among all other models.

use std::sync::Arc;

use hatchery_core::{Model, ModelError, ModelResolver};

use crate::catalog::watch::CatalogHandle;
use crate::contract::component::MODEL_PREFIX;

/// Finds `component:NAME/model` in the catalog that serves at that moment, and every other name in another registry.
pub struct CatalogModels {
    /// What is loaded.
    pub catalog: CatalogHandle,
    /// Where the other models are.
    pub rest: Arc<dyn ModelResolver>,
}

impl ModelResolver for CatalogModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        if name.starts_with(MODEL_PREFIX) { self.catalog.model(name) } else { self.rest.model(name) }
    }
}
