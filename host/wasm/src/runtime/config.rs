//! Settings of the runtime in `hatchery.yaml`: `instances`, which all components share, and the instance pool of one
//! component.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;

use crate::runtime::engine::EngineOptions;
use crate::runtime::limits::units;

/// Limits that all components share: `instances` in `hatchery.yaml`. Read at the start only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InstanceSettings {
    /// Maximum number of instances of all components at one time, pooled ones included.
    pub max: NonZeroU32,
    /// Maximum time that a call waits for a free instance, or for memory, before it fails with `COMPONENT_BUSY`.
    #[serde(deserialize_with = "units::deserialize_duration")]
    pub queue_timeout: Duration,
    /// Maximum number of calls that wait at one time; a further call fails immediately.
    pub max_queued: u32,
    /// Maximum memory in bytes of all instances. `None` is half of the memory of the machine or container.
    #[serde(deserialize_with = "units::deserialize_optional_memory")]
    pub memory: Option<u64>,
    /// Maximum memory in bytes of all instances of one run. `None` is a quarter of `memory`, at most 1 GiB.
    #[serde(deserialize_with = "units::deserialize_optional_memory")]
    pub run_memory: Option<u64>,
}

impl InstanceSettings {
    /// Returns the options of an engine with these settings.
    pub fn options(&self) -> EngineOptions {
        let default = EngineOptions::default();
        let memory = self.memory.unwrap_or(default.memory);
        EngineOptions {
            instances: self.max.get(),
            queue_timeout: self.queue_timeout,
            max_queued: self.max_queued,
            memory,
            run_memory: self.run_memory.unwrap_or_else(|| EngineOptions::default_run_memory(memory)),
            ..default
        }
    }
}

impl Default for InstanceSettings {
    fn default() -> Self {
        let EngineOptions { instances, queue_timeout, max_queued, .. } = EngineOptions::default();
        let max = NonZeroU32::new(instances).unwrap_or(NonZeroU32::MIN);
        Self { max, queue_timeout, max_queued, memory: None, run_memory: None }
    }
}

/// The instance pool of a component: `components.NAME.warm` in `hatchery.yaml`, for guests that are expensive to start,
/// such as those that contain an interpreter.
///
/// A later call finds the memory as an earlier one left it, even if the earlier call belonged to another user. That is
/// why no instance is pooled unless an operator who knows the guest configures it. Data of a call in the host (session,
/// state, settings, budgets) never reaches the next one. An instance serves one call at a time. A call that finds all
/// of them busy gets a new one, so pooling never makes a call slower. Agents' runs and models' answers always have an
/// instance of their own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InstancePoolConfig {
    /// Maximum number of idle instances. Each keeps its memory, which can be as much as `limits.memory`.
    pub size: NonZeroU32,
    /// Maximum number of calls of one instance. Up to an eighth less, so that they do not all retire together.
    pub max_calls: NonZeroU32,
    /// Idle time after which an instance is dropped.
    #[serde(deserialize_with = "units::deserialize_duration")]
    pub idle: Duration,
}

impl Default for InstancePoolConfig {
    fn default() -> Self {
        Self {
            size: NonZeroU32::MIN.saturating_add(3),
            max_calls: NonZeroU32::MIN.saturating_add(999),
            idle: Duration::from_secs(300),
        }
    }
}
