//! `hatchery.yaml`: whether it can be read, and whether what it has settings for is there.

use hatchery::shell::quoted_path;
use hatchery::trust::{Distrust, Standing};
use hatchery::{AppSource, Config, LoadedConfig, config};
use hatchery_engine::plugins::ConfiguredPlugins;

use super::{Finding, Visit};
use crate::host::current;
use crate::settings;

pub(super) fn findings(visit: &Visit<'_>) -> Vec<Finding> {
    match visit.config {
        Err(error) => vec![Finding::broken(error.to_string())],
        Ok(_) if !visit.loaded.is_some_and(|loaded| loaded.file.is_file()) => Vec::new(),
        Ok(config) => of(visit, config),
    }
}

/// What the file asks for and is not given.
fn untrusted(loaded: &LoadedConfig) -> Option<Finding> {
    let Standing::Untrusted(distrust) = &loaded.standing else { return None };
    let rights: String = loaded.rights.iter().map(|right| format!("\n{right}")).collect();
    let message =
        format!("{} asks for rights that reach outside of the folder, and {distrust}:{rights}", config::FILE_NAME);
    let fix = match distrust {
        Distrust::WritableByAll { path } => format!("chmod o-w {}", quoted_path(path)),
        Distrust::NoList(reason) => return Some(Finding::broken(format!("{message}\n{reason}"))),
        Distrust::Undecided | Distrust::Changed => format!("hatchery trust {}", quoted_path(loaded.folder())),
    };
    Some(Finding::broken(message).fixed_by(fix))
}

fn of(visit: &Visit<'_>, config: &Config) -> Vec<Finding> {
    let report = visit.handle.report();
    let apps = settings::unknown_apps(config, &settings::apps_of(visit.handle.app_names(), &report));
    let components = settings::unknown_components(config, &report);
    let mut findings: Vec<_> = apps.into_iter().chain(components).map(Finding::doubtful).collect();
    findings.extend(visit.loaded.and_then(untrusted));
    // A host that does not find a plugin does not start.
    if let Err(error) = ConfiguredPlugins::new(&config.plugins, current(visit.handle.clone())) {
        findings.push(Finding::broken(format!("{}: {error}", config::FILE_NAME)));
    }
    if findings.is_empty() {
        findings.push(Finding::good(format!("{}: all that it has settings for is there", config::FILE_NAME)));
    }
    findings
}
