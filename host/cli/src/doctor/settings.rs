//! `hatchery.yaml`: whether it can be read, and whether what it has settings for is there.

use hatchery_engine::plugins::ConfiguredPlugins;
use hatchery_server::{AppSource, Config, config};

use super::{Finding, Visit};
use crate::host::current;
use crate::settings;

pub(super) fn findings(visit: &Visit<'_>) -> Vec<Finding> {
    match visit.config {
        Err(error) => vec![Finding::broken(error.to_string())],
        Ok(_) if !visit.folder.join(config::FILE_NAME).is_file() => Vec::new(),
        Ok(config) => of(visit, config),
    }
}

fn of(visit: &Visit<'_>, config: &Config) -> Vec<Finding> {
    let report = visit.handle.report();
    let apps = settings::unknown_apps(config, &settings::apps_of(visit.handle.app_names(), &report));
    let components = settings::unknown_components(config, &report);
    let mut findings: Vec<_> = apps.into_iter().chain(components).map(Finding::doubtful).collect();
    // A host that does not find a plugin does not start.
    if let Err(error) = ConfiguredPlugins::new(&config.plugins, current(visit.handle.clone())) {
        findings.push(Finding::broken(format!("{}: {error}", config::FILE_NAME)));
    }
    if findings.is_empty() {
        findings.push(Finding::good(format!("{}: all that it has settings for is there", config::FILE_NAME)));
    }
    findings
}
