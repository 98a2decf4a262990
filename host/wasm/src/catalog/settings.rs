//! What the operator says of components in `hatchery.yaml`: of one (`components.NAME`), of all (`limits`), and
//! of how they change (`hot_reload`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::JsonMap;
use serde::Deserialize;

use crate::policy::{Access, ClockGrant, Grants, PathConflict, RandomGrant, check_folders_of};
use crate::runtime::config::InstancePoolConfig;
use crate::runtime::http::RecordedHttp;
use crate::runtime::limits::{Limits, units};

/// What a component is given beside its code.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ComponentSettings {
    /// What its calls may use.
    pub limits: Limits,
    /// What it may do.
    pub grants: Arc<Grants>,
    /// What it reads through the `config` interface.
    pub config: JsonMap,
    /// How its instances are kept between calls; `None` gives each call a fresh one.
    pub warm: Option<InstancePoolConfig>,
    /// What it gets instead of the network, in tests.
    pub recorded: Option<RecordedHttp>,
    /// Whether what it offers is for YAML agents and its own agents only, whatever other components are granted.
    pub private: bool,
    /// Why it is not loaded at all, if its settings are not trusted.
    pub refusal: Option<String>,
}

/// How components are replaced: `hot_reload` in `hatchery.yaml`. Read at the start only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HotReload {
    /// How long runs may go on with a revision that was replaced. Then they end with `COMPONENT_REPLACED`.
    #[serde(deserialize_with = "units::time")]
    pub drain_timeout: Duration,
    /// How many revisions of each component are kept for `hatchery rollback`, the one that serves included; 0 keeps none.
    pub keep: usize,
}

impl Default for HotReload {
    fn default() -> Self {
        Self { drain_timeout: Duration::from_secs(600), keep: 3 }
    }
}

/// What all components are given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Limits of components without settings of their own.
    pub limits: Limits,
    /// Settings by component name.
    pub components: BTreeMap<String, ComponentSettings>,
    /// What is the same each time, in tests.
    pub deterministic: Option<DeterministicMode>,
}

/// What makes tests of components go the same each time: the time of day stands still and chance begins anew in each call, unless grants
/// say otherwise, and recorded responses stand in for the network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeterministicMode {
    /// The responses.
    pub http: RecordedHttp,
}

impl DeterministicMode {
    /// 2026-01-01, midnight (UTC), since 1970.
    const TIME: Duration = Duration::from_secs(1_767_225_600);

    /// Where random numbers begin.
    const SEED: u64 = 1;

    fn reconfigure(&self, settings: &mut ComponentSettings) {
        let grants = Arc::make_mut(&mut settings.grants);
        if grants.clock == ClockGrant::Real {
            grants.clock = ClockGrant::Frozen(Self::TIME);
        }
        if grants.random == RandomGrant::Real {
            grants.random = RandomGrant::Seeded(Self::SEED);
        }
        // A kept instance would go on with the numbers where the call before left off.
        settings.warm = None;
        settings.recorded = Some(self.http.clone());
    }
}

impl Settings {
    /// Those of one component.
    pub fn of(&self, component: &str) -> ComponentSettings {
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

    /// All limits that there are.
    pub fn limits(&self) -> impl Iterator<Item = &Limits> {
        self.components.values().map(|settings| &settings.limits).chain([&self.limits])
    }

    /// Checks that no folder that a component may write contains a folder or secret of `component`, or the other way round.
    ///
    /// # Errors
    /// The first conflict.
    pub(crate) fn check_folders(&self, component: &str) -> Result<(), PathConflict> {
        check_folders_of(component, self.components.iter().map(|(name, settings)| (name.as_str(), &*settings.grants)))
    }

    /// Folders that components may write. What they put there is theirs: nothing of it is loaded.
    pub fn written(&self) -> Vec<PathBuf> {
        let files = self.components.values().flat_map(|settings| &settings.grants.files);
        let written = files.filter(|folder| folder.access == Access::Write);
        written.filter_map(|folder| folder.host.canonicalize().ok()).collect()
    }
}
