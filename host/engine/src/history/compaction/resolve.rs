//! Resolution of compaction settings against the components that are loaded.

use std::sync::Mutex;

use hatchery_core::ItemResolver;
use hatchery_core::sync::MutexExt;

use super::{CompactionConfig, CompactionError, CompactionSettings, SummarizerRef};
use crate::catalog_source::CatalogSnapshot;

/// [`CompactionSettings`] that are resolved again after components have been loaded or unloaded. Once the name has
/// referred to a component's summarizer, it is never used as the name of a model. While that component is missing,
/// sessions are not compacted; runs continue.
pub struct ConfiguredCompaction {
    /// The key in the configuration, such as `app_defaults.compaction`.
    key: String,
    settings: CompactionSettings,
    resolved: Mutex<Resolution>,
}

#[derive(Default)]
struct Resolution {
    /// The generation of the catalog; `None` before the first resolution.
    generation: Option<u64>,
    /// `None` if the summarizer cannot be used.
    config: Option<CompactionConfig>,
    /// True once the name has referred to a component's summarizer.
    requires_component: bool,
}

impl ConfiguredCompaction {
    /// Resolves settings. `key` is their key in the configuration, for the log.
    pub fn new(key: impl Into<String>, settings: CompactionSettings, catalog: CatalogSnapshot) -> Self {
        let configured = Self { key: key.into(), settings, resolved: Mutex::default() };
        configured.resolve(catalog);
        configured
    }

    /// Returns the resolved settings, or `None` if the summarizer cannot be used. Logs a warning when it becomes
    /// unavailable.
    pub fn resolve(&self, catalog: CatalogSnapshot) -> Option<CompactionConfig> {
        let CatalogSnapshot { generation, resolver } = catalog;
        let mut resolved = self.resolved.lock_unpoisoned();
        if resolved.generation != Some(generation) {
            let result = self.resolve_with(resolver.as_ref(), resolved.requires_component);
            let was_unavailable = resolved.generation.is_some() && resolved.config.is_none();
            match &result {
                Err(error) if !was_unavailable => {
                    tracing::warn!("{}: {error}; sessions are not compacted until it is available", self.key);
                }
                Ok(_) if was_unavailable => tracing::info!("{}: the summarizer is available again", self.key),
                Ok(_) | Err(_) => {}
            }
            resolved.generation = Some(generation);
            resolved.config = result.ok();
            resolved.requires_component |=
                resolved.config.as_ref().is_some_and(|config| matches!(config.summarizer, SummarizerRef::Custom(_)));
        }
        resolved.config.clone()
    }

    fn resolve_with(
        &self,
        resolver: &dyn ItemResolver,
        requires_component: bool,
    ) -> Result<CompactionConfig, CompactionError> {
        if requires_component && let Some(name) = &self.settings.summarizer {
            resolver.summarizer(name)?;
        }
        self.settings.resolve(resolver)
    }
}
