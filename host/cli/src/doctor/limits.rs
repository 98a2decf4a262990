//! Checks whether limits are tight: loads each component again with half of each limit. A component that fails then
//! uses more than half of the limit before it does any work.

use std::fmt;

use hatchery_wasm::{
    CacheState, Component, ComponentSettings, FileState, FileStatus, Limits, LoadError, LoadOptions, inspect,
    requirements,
};

use super::{Diagnosis, Finding};

pub(super) async fn check(diagnosis: &Diagnosis<'_>) -> Vec<Finding> {
    let mut findings: Vec<_> = diagnosis.catalog.files.iter().filter_map(check_initial_memory(diagnosis)).collect();
    if !matches!(diagnosis.options.cache.state(), CacheState::Open { .. }) {
        let message = "limits were not tested: without a code cache each test would compile the components again";
        findings.push(Finding::warning(message));
        return findings;
    }
    for status in diagnosis.catalog.files.iter().filter(|status| status.state == FileState::Loaded) {
        let Some(component) = diagnosis.catalog.components.get(&status.name) else { continue };
        let Ok(bytes) = std::fs::read(&status.path) else { continue };
        if status.path.extension().is_some_and(|extension| extension == "wasm") {
            findings.extend(check_half_limits(&diagnosis.options, component, &bytes).await);
        }
    }
    findings
}

/// Returns an error if the initial memory of a component exceeds its limit, with the lines that raise the limit.
fn check_initial_memory<'a>(diagnosis: &'a Diagnosis<'_>) -> impl Fn(&FileStatus) -> Option<Finding> + 'a {
    |status| {
        let FileState::Rejected { .. } = &status.state else { return None };
        let bytes = std::fs::read(&status.path).ok().filter(|bytes| bytes.starts_with(b"\0asm"))?;
        let initial = requirements::initial_memory(&bytes)?;
        let max = limits_of(&diagnosis.options, &status.name).memory;
        (initial > max).then(|| {
            let (name, doubled) = (&status.name, Size(initial.saturating_mul(2)));
            let message =
                format!("`{name}` has {} of initial memory, more than `limits.memory`, {}", Size(initial), Size(max));
            Finding::error(message).with_fix(limit_yaml(name, "memory", &doubled))
        })
    }
}

/// Returns a warning for each limit that is used by more than half when the component is loaded.
async fn check_half_limits(options: &LoadOptions, component: &Component, bytes: &[u8]) -> Vec<Finding> {
    let (name, limits) = (component.name(), component.limits());
    let mut findings = Vec::new();
    for limit in TestedLimit::ALL {
        let mut options = options.clone();
        let settings = ComponentSettings { limits: limit.halve(limits), ..options.settings.for_component(name) };
        options.settings.components.insert(name.to_owned(), settings);
        options.load_policy = None;
        if let Err(LoadError::Describe { .. }) = inspect(&options, name, bytes.to_vec()).await {
            let (key, value) = (limit.key(), limit.format(limits));
            let message = format!("`{name}` uses more than half of `limits.{key}`, {value}, when it is loaded");
            findings.push(Finding::warning(message).with_fix(limit_yaml(name, key, &limit.format_doubled(limits))));
        }
    }
    findings
}

fn limits_of<'a>(options: &'a LoadOptions, component: &str) -> &'a Limits {
    let settings = &options.settings;
    settings.components.get(component).map_or(&settings.limits, |settings| &settings.limits)
}

/// Returns the lines for `hatchery.yaml` that set a limit.
fn limit_yaml(component: &str, key: &str, value: &dyn fmt::Display) -> String {
    format!("components:\n  {component}:\n    limits:\n      {key}: {value}")
}

/// A limit that loading a component can exceed.
#[derive(Clone, Copy)]
enum TestedLimit {
    Memory,
    Tables,
    Instances,
    Cpu,
    Log,
}

impl TestedLimit {
    const ALL: [Self; 5] = [Self::Memory, Self::Tables, Self::Instances, Self::Cpu, Self::Log];

    fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tables => "tables",
            Self::Instances => "instances",
            Self::Cpu => "cpu",
            Self::Log => "log",
        }
    }

    fn halve(self, limits: &Limits) -> Limits {
        let mut limits = limits.clone();
        match self {
            Self::Memory => limits.memory /= 2,
            Self::Tables => limits.tables /= 2,
            Self::Instances => limits.instances /= 2,
            Self::Cpu => limits.cpu /= 2,
            Self::Log => limits.log /= 2,
        }
        limits
    }

    fn format(self, limits: &Limits) -> String {
        match self {
            Self::Memory => Size(limits.memory).to_string(),
            Self::Tables => limits.tables.to_string(),
            Self::Instances => limits.instances.to_string(),
            Self::Cpu => format!("{:?}", limits.cpu),
            Self::Log => Size(limits.log).to_string(),
        }
    }

    fn format_doubled(self, limits: &Limits) -> String {
        match self {
            Self::Memory => Size(limits.memory.saturating_mul(2)).to_string(),
            Self::Tables => limits.tables.saturating_mul(2).to_string(),
            Self::Instances => limits.instances.saturating_mul(2).to_string(),
            Self::Cpu => format!("{}ms", limits.cpu.as_millis().saturating_mul(2)),
            Self::Log => Size(limits.log.saturating_mul(2)).to_string(),
        }
    }
}

/// A size in bytes. Formatted as in hatchery.yaml, in the largest unit without a remainder.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match units.iter().find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size)) {
            Some((unit, size)) => write!(f, "{}{unit}", self.0 / size),
            None => self.0.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn limits_are_halved_one_at_a_time_and_doubled_in_the_syntax_of_the_file() {
        let limits = Limits { memory: 3 << 20, cpu: Duration::from_millis(300), log: 1000, ..Limits::default() };
        let halved = TestedLimit::Memory.halve(&limits);
        assert_eq!(halved, Limits { memory: 3 << 19, ..limits.clone() });
        let doubled = TestedLimit::ALL.map(|limit| format!("{}: {}", limit.key(), limit.format_doubled(&limits)));
        assert_eq!(doubled, ["memory: 6MiB", "tables: 200000", "instances: 60", "cpu: 600ms", "log: 2000"]);
        assert_eq!(TestedLimit::Memory.format(&halved), "1536KiB");
    }
}
