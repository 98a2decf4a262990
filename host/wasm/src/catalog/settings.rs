//! What the operator says of components in `hatchery.yaml`: of one (`components.NAME`), of all (`limits`), of what all share (`engine`), and
//! of how they change (`hot_reload`).

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::JsonMap;
use serde::Deserialize;

use crate::policy::{Access, ClockGrant, Grants, PathConflict, RandomGrant, check_folders_of};
use crate::runtime::compile::CompileLimits;
use crate::runtime::engine::EngineOptions;
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
    pub warm: Option<Warm>,
    /// What it gets instead of the network, in tests.
    pub recorded: Option<RecordedHttp>,
    /// Whether what it offers is for YAML agents and its own agents only, whatever other components are granted.
    pub private: bool,
    /// Why it is not loaded at all, if its settings are not trusted.
    pub refusal: Option<String>,
}

/// How instances are kept between calls: `components.NAME.warm` in `hatchery.yaml`, for guests whose start is dear, such as those with an
/// interpreter in them.
///
/// What a call leaves in the guest's memory, the next one finds, be it another user's. That is why nothing is kept unless somebody who
/// knows the guest says so. What the host holds for a call (session, state, settings, budgets) never reaches the next. An instance serves
/// one call at a time; a call that finds all of them busy gets a new one, so that keeping never makes anything slower. Agents' runs and
/// models' answers always have an instance of their own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Warm {
    /// Most instances that wait for a call. Each keeps its memory, which can be as much as `limits.memory`.
    pub size: NonZeroU32,
    /// Most calls of one instance. Up to an eighth less, so that they do not all end together.
    pub max_calls: NonZeroU32,
    /// How long an instance waits for a call before it goes.
    #[serde(deserialize_with = "units::time")]
    pub idle: Duration,
}

impl Default for Warm {
    fn default() -> Self {
        Self {
            size: NonZeroU32::MIN.saturating_add(3),
            max_calls: NonZeroU32::MIN.saturating_add(999),
            idle: Duration::from_secs(300),
        }
    }
}

/// What all components share: `engine` in `hatchery.yaml`. Read at the start only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSettings {
    /// Most instances of all components at one time, those that wait for a call included.
    pub instances: NonZeroU32,
    /// How long a call waits when all are in use before it fails with `COMPONENT_BUSY`.
    #[serde(deserialize_with = "units::time")]
    pub busy_wait: Duration,
    /// Most calls that wait at one time; a further one fails at once.
    pub busy_queue: u32,
    /// Most memory of all instances at one time, bytes; half of the memory that there is when it is left out.
    #[serde(deserialize_with = "units::size")]
    pub memory: Option<u64>,
    /// Most memory of all instances that work for one run, bytes; a quarter of `memory`, at most 1 GiB, when it is left out.
    #[serde(deserialize_with = "units::size")]
    pub run_memory: Option<u64>,
    /// What compiling a component may use.
    pub compile: CompileLimits,
}

impl EngineSettings {
    /// The options of an engine.
    pub fn options(&self) -> EngineOptions {
        let default = EngineOptions::default();
        let memory = self.memory.unwrap_or(default.memory);
        EngineOptions {
            instances: self.instances.get(),
            busy_wait: self.busy_wait,
            busy_queue: self.busy_queue,
            memory,
            run_memory: self.run_memory.unwrap_or_else(|| EngineOptions::share_of_run(memory)),
            ..default
        }
    }
}

impl Default for EngineSettings {
    fn default() -> Self {
        let EngineOptions { instances, busy_wait, busy_queue, .. } = EngineOptions::default();
        let instances = NonZeroU32::new(instances).unwrap_or(NonZeroU32::MIN);
        Self { instances, busy_wait, busy_queue, memory: None, run_memory: None, compile: CompileLimits::default() }
    }
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
