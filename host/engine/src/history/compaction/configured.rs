//! Compaction as an operator chooses it, by the summarizer that is loaded.

use std::sync::Mutex;

use hatchery_core::ItemResolver;
use hatchery_core::sync::MutexExt;

use super::{CompactionConfig, CompactionError, CompactionSettings, SummarizerRef};
use crate::plugins::config::Loaded;

/// [`CompactionSettings`] that are looked up anew when what is loaded has changed. Once the summarizer has been a component's, no model
/// takes its place: without it sessions are not compacted until it is back. Runs go on, since nothing depends on summaries.
pub struct ConfiguredCompaction {
    /// Where the settings are: `app_defaults.compaction`.
    key: String,
    settings: CompactionSettings,
    found: Mutex<Found>,
}

/// What the settings came to.
#[derive(Default)]
struct Found {
    /// In what was loaded under this number.
    generation: Option<u64>,
    /// Nothing when the summarizer cannot be used.
    config: Option<CompactionConfig>,
    /// True once the summarizer has been a component's.
    is_of_component: bool,
}

impl ConfiguredCompaction {
    /// What these settings mean with what is loaded now; `key` is where they are, for the log.
    pub fn new(key: impl Into<String>, settings: CompactionSettings, loaded: Loaded) -> Self {
        let new = Self { key: key.into(), settings, found: Mutex::default() };
        new.with(loaded);
        new
    }

    /// What the settings mean with what is loaded; nothing when the summarizer cannot be used, of which the log is told once.
    pub fn with(&self, (generation, lookup): Loaded) -> Option<CompactionConfig> {
        let mut found = self.found.lock_unpoisoned();
        if found.generation != Some(generation) {
            let resolved = self.resolve(lookup.as_ref(), found.is_of_component);
            let was_missing = found.generation.is_some() && found.config.is_none();
            match &resolved {
                Err(error) if !was_missing => {
                    tracing::warn!("{}: {error}; sessions are not compacted before it is back", self.key);
                }
                Ok(_) if was_missing => tracing::info!("{}: the summarizer is there again", self.key),
                Ok(_) | Err(_) => {}
            }
            found.generation = Some(generation);
            found.config = resolved.ok();
            found.is_of_component |=
                found.config.as_ref().is_some_and(|config| matches!(config.summarizer, SummarizerRef::Custom(_)));
        }
        found.config.clone()
    }

    fn resolve(&self, lookup: &dyn ItemResolver, is_of_component: bool) -> Result<CompactionConfig, CompactionError> {
        if is_of_component && let Some(name) = &self.settings.summarizer {
            lookup.summarizer(name)?;
        }
        self.settings.resolve(lookup)
    }
}
