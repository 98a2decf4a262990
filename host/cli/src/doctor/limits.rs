//! Limits that are tight: what a component needs only to start, beside what it may use.
//!
//! Each component describes itself once more with half of each limit. What it then exceeds would leave too little for its work.

use std::fmt;

use hatchery_wasm::{
    CacheState, Component, ComponentSettings, FileState, FileStatus, Limits, LoadError, LoadOptions, inspect,
    requirements,
};

use super::{Finding, Visit};

pub(super) async fn findings(visit: &Visit<'_>) -> Vec<Finding> {
    let mut findings: Vec<_> = visit.catalog.files.iter().filter_map(too_low(visit)).collect();
    if !matches!(visit.options.cache.state(), CacheState::Open { .. }) {
        let untried = "how tight limits are was not tried: without kept code, each try compiles a component again";
        findings.push(Finding::doubtful(untried));
        return findings;
    }
    for status in visit.catalog.files.iter().filter(|status| status.state == FileState::Loaded) {
        let Some(component) = visit.catalog.components.get(&status.name) else { continue };
        let Ok(bytes) = std::fs::read(&status.path) else { continue };
        if status.path.extension().is_some_and(|extension| extension == "wasm") {
            findings.extend(tight(&visit.options, component, &bytes).await);
        }
    }
    findings
}

/// What helps a component whose memories begin larger than they may ever be. That it is rejected is said of its file.
fn too_low<'a>(visit: &'a Visit<'_>) -> impl Fn(&FileStatus) -> Option<Finding> + 'a {
    |status| {
        let FileState::Rejected { .. } = &status.state else { return None };
        let bytes = std::fs::read(&status.path).ok().filter(|bytes| bytes.starts_with(b"\0asm"))?;
        let (needed, most) = (requirements::initial_memory(&bytes)?, limits_of(&visit.options, &status.name).memory);
        (needed > most).then(|| {
            let (name, memory) = (&status.name, Size(needed.saturating_mul(2)));
            let said =
                format!("`{name}` begins with {} of memory, and `limits.memory` is {}", Size(needed), Size(most));
            Finding::broken(said).fixed_by(lines(name, "memory", &memory))
        })
    }
}

/// Limits of which a component needs more than half to describe itself.
async fn tight(options: &LoadOptions, component: &Component, bytes: &[u8]) -> Vec<Finding> {
    let (name, most) = (component.name(), component.limits());
    let mut findings = Vec::new();
    for tried in Tried::ALL {
        let mut options = options.clone();
        let settings = ComponentSettings { limits: tried.halved(most), ..options.settings.of(name) };
        options.settings.components.insert(name.to_owned(), settings);
        options.load_policy = None;
        if let Err(LoadError::Describe { .. }) = inspect(&options, name, bytes.to_vec()).await {
            let (key, value) = (tried.key(), tried.value(most));
            let said = format!("`{name}` needs more than half of `limits.{key}`, {value}, only to describe itself");
            findings.push(Finding::doubtful(said).fixed_by(lines(name, key, &tried.doubled(most))));
        }
    }
    findings
}

fn limits_of<'a>(options: &'a LoadOptions, component: &str) -> &'a Limits {
    let settings = &options.settings;
    settings.components.get(component).map_or(&settings.limits, |own| &own.limits)
}

/// What to add to `hatchery.yaml`.
fn lines(component: &str, key: &str, value: &dyn fmt::Display) -> String {
    format!("components:\n  {component}:\n    limits:\n      {key}: {value}")
}

/// A limit that describing can exceed.
#[derive(Clone, Copy)]
enum Tried {
    Memory,
    Tables,
    Instances,
    Cpu,
    Log,
}

impl Tried {
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

    fn halved(self, limits: &Limits) -> Limits {
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

    fn value(self, limits: &Limits) -> String {
        match self {
            Self::Memory => Size(limits.memory).to_string(),
            Self::Tables => limits.tables.to_string(),
            Self::Instances => limits.instances.to_string(),
            Self::Cpu => format!("{:?}", limits.cpu),
            Self::Log => Size(limits.log).to_string(),
        }
    }

    fn doubled(self, limits: &Limits) -> String {
        match self {
            Self::Memory => Size(limits.memory.saturating_mul(2)).to_string(),
            Self::Tables => limits.tables.saturating_mul(2).to_string(),
            Self::Instances => limits.instances.saturating_mul(2).to_string(),
            Self::Cpu => format!("{}ms", limits.cpu.as_millis().saturating_mul(2)),
            Self::Log => Size(limits.log.saturating_mul(2)).to_string(),
        }
    }
}

/// Bytes, as hatchery.yaml takes them: in the largest unit that divides them.
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
    fn limits_are_halved_one_at_a_time_and_doubled_as_the_file_takes_them() {
        let limits = Limits { memory: 3 << 20, cpu: Duration::from_millis(300), log: 1000, ..Limits::default() };
        let halved = Tried::Memory.halved(&limits);
        assert_eq!(halved, Limits { memory: 3 << 19, ..limits.clone() });
        let doubled = Tried::ALL.map(|tried| format!("{}: {}", tried.key(), tried.doubled(&limits)));
        assert_eq!(doubled, ["memory: 6MiB", "tables: 200000", "instances: 60", "cpu: 600ms", "log: 2000"]);
        assert_eq!(Tried::Memory.value(&halved), "1536KiB");
    }
}
