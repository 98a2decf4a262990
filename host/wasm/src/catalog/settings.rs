//! Settings of all components in `hatchery.yaml`, and of hot reload (`hot_reload`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::contract::component::ComponentSettings;
use crate::policy::{Access, ClockGrant, PathConflict, RandomGrant, check_folders_of};
use crate::runtime::http::RecordedHttp;
use crate::runtime::limits::{Limits, units};

/// Hot reload: `hot_reload` in `hatchery.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HotReload {
    /// Maximum time that runs may continue with a replaced revision. Then they end with `COMPONENT_REPLACED`.
    #[serde(deserialize_with = "units::deserialize_duration")]
    pub drain_timeout: Duration,
    /// Number of revisions of each component to store for `hatchery rollback`, including the one that serves. 0 stores
    /// none.
    pub keep: usize,
}

impl Default for HotReload {
    fn default() -> Self {
        Self { drain_timeout: Duration::from_secs(600), keep: 3 }
    }
}

/// Settings of all components.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Limits of components that are not in `components`.
    pub limits: Limits,
    pub components: BTreeMap<String, ComponentSettings>,
    /// Makes calls deterministic, in tests.
    pub deterministic: Option<DeterministicMode>,
}

/// Deterministic mode for tests of components: the wall clock is frozen, random numbers restart in each call (unless
/// grants override that), and recorded responses replace the network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeterministicMode {
    pub http: RecordedHttp,
}

impl DeterministicMode {
    /// 2026-01-01T00:00:00Z, as time since 1970.
    const TIME: Duration = Duration::from_secs(1_767_225_600);

    /// Seed of the random numbers.
    const SEED: u64 = 1;

    fn reconfigure(&self, settings: &mut ComponentSettings) {
        let grants = Arc::make_mut(&mut settings.grants);
        if grants.clock == ClockGrant::Real {
            grants.clock = ClockGrant::Frozen(Self::TIME);
        }
        if grants.random == RandomGrant::Real {
            grants.random = RandomGrant::Seeded(Self::SEED);
        }
        // A pooled instance would continue the random numbers of its previous call.
        settings.warm = None;
        settings.recorded = Some(self.http.clone());
    }
}

impl Settings {
    /// Returns the settings of one component.
    pub fn for_component(&self, component: &str) -> ComponentSettings {
        let own = self.components.get(component).cloned();
        let mut settings =
            own.unwrap_or_else(|| ComponentSettings { limits: self.limits.clone(), ..ComponentSettings::default() });
        let private = self.components.iter().filter(|(name, other)| other.private && *name != component);
        let private: BTreeSet<String> = private.map(|(name, _)| name.clone()).collect();
        if !private.is_empty() {
            Arc::make_mut(&mut settings.grants).private_components = private;
        }
        if let Some(deterministic) = &self.deterministic {
            deterministic.reconfigure(&mut settings);
        }
        settings
    }

    /// Returns the limits of all components, and the default limits.
    pub fn limits(&self) -> impl Iterator<Item = &Limits> {
        self.components.values().map(|settings| &settings.limits).chain([&self.limits])
    }

    /// Checks that no folder that a component may write contains a folder or secret of `component`, or the other way
    /// round.
    ///
    /// # Errors
    /// Returns the first conflict.
    pub(crate) fn check_folders(&self, component: &str) -> Result<(), PathConflict> {
        check_folders_of(component, self.components.iter().map(|(name, settings)| (name.as_str(), &*settings.grants)))
    }

    /// Returns the folders that components may write. Nothing inside of them is loaded.
    pub fn writable_folders(&self) -> Vec<PathBuf> {
        let files = self.components.values().flat_map(|settings| &settings.grants.files);
        let writable = files.filter(|folder| folder.access == Access::Write);
        writable.filter_map(|folder| folder.host.canonicalize().ok()).collect()
    }
}
