//! `hatchery.yaml`: whether it can be read, and whether what it has settings for is there.

use std::sync::Arc;

use hatchery::shell::quoted_path;
use hatchery::trust::{LoadedConfig, TrustStatus, UntrustedReason};
use hatchery::{AppSource, CONFIG_FILE, Config, known_apps, unknown_apps, unknown_components};
use hatchery_engine::plugins::ConfiguredPlugins;

use super::{Finding, Visit};

pub(super) fn findings(visit: &Visit<'_>) -> Vec<Finding> {
    match visit.config {
        Err(error) => vec![Finding::broken(error.to_string())],
        Ok(_) if !visit.loaded.is_some_and(|loaded| loaded.file.is_file()) => Vec::new(),
        Ok(config) => of(visit, config),
    }
}

/// What the file asks for and is not given.
fn untrusted(loaded: &LoadedConfig) -> Option<Finding> {
    let TrustStatus::Untrusted(reason) = &loaded.status else { return None };
    let requested: String = loaded.external.iter().map(|access| format!("\n{access}")).collect();
    let message = format!("{CONFIG_FILE} requests access outside of its folder, but {reason}:{requested}");
    let fix = match reason {
        UntrustedReason::WritableByAll { path } => format!("chmod o-w {}", quoted_path(path)),
        UntrustedReason::NoList(error) => return Some(Finding::broken(format!("{message}\n{error}"))),
        UntrustedReason::Undecided | UntrustedReason::Changed => {
            format!("hatchery trust {}", quoted_path(loaded.folder()))
        }
    };
    Some(Finding::broken(message).fixed_by(fix))
}

fn of(visit: &Visit<'_>, config: &Config) -> Vec<Finding> {
    let report = visit.handle.report();
    let apps = unknown_apps(config, &known_apps(visit.handle.app_names(), &report));
    let components = unknown_components(config, &report);
    let mut findings: Vec<_> = apps.into_iter().chain(components).map(Finding::doubtful).collect();
    findings.extend(visit.loaded.and_then(untrusted));
    // A host that does not find a plugin does not start.
    if let Err(error) =
        ConfiguredPlugins::new(&config.plugins, hatchery::plugins::registered(), Arc::new(visit.handle.clone()))
    {
        findings.push(Finding::broken(format!("{CONFIG_FILE}: {error}")));
    }
    if findings.is_empty() {
        findings.push(Finding::good(format!("{CONFIG_FILE}: everything that it has settings for exists")));
    }
    findings
}
