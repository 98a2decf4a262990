//! Checks `hatchery.yaml`: syntax, trust, and whether the apps, components and plugins named in it exist.

use std::path::Path;
use std::sync::Arc;

use hatchery::shell::quote_path;
use hatchery::trust::{LoadedConfig, TrustStatus, UntrustedReason};
use hatchery::{AppSource, CONFIG_FILE, Config, known_apps, unknown_apps, unknown_components};
use hatchery_engine::plugins::ConfiguredPlugins;
use hatchery_server::check_tls;

use super::{Diagnosis, Finding};
use crate::flags::config_flags;

pub(super) fn check(diagnosis: &Diagnosis<'_>) -> Vec<Finding> {
    match (diagnosis.config, diagnosis.loaded_config) {
        (Err(error), _) => {
            let flags = config_flags(error).map(|flags| format!(" ({flags})")).unwrap_or_default();
            vec![Finding::error(format!("{error}{flags}"))]
        }
        (Ok(config), Some(loaded)) if loaded.file.is_file() => check_config(diagnosis, config, loaded),
        (Ok(_), _) => Vec::new(),
    }
}

fn check_config(diagnosis: &Diagnosis<'_>, config: &Config, loaded: &LoadedConfig) -> Vec<Finding> {
    let catalog = &diagnosis.catalog_handle;
    let report = catalog.report();
    let apps = unknown_apps(config, &known_apps(catalog.app_names(), &report));
    let components = unknown_components(config, &report);
    let mut findings: Vec<_> = apps.into_iter().chain(components).map(Finding::warning).collect();
    findings.extend(check_trust(loaded));
    findings.extend(check_keys(config));
    findings.extend(check_certificate(config, loaded));
    findings.extend(check_programs(config, loaded));
    findings.extend(diagnosis.items_error.iter().map(|error| Finding::error(format!("{CONFIG_FILE}: {error}"))));
    // A host does not start without a configured plugin.
    let plugins = ConfiguredPlugins::new(&config.plugins, hatchery::plugins::factories(), Arc::new(catalog.clone()));
    if let Err(error) = plugins {
        findings.push(Finding::error(format!("{CONFIG_FILE}: {error}")));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(format!("{CONFIG_FILE}: valid, and every app, component and plugin in it exists")));
    }
    findings
}

/// Returns an error for each API key that cannot be read, without which a server does not start.
fn check_keys(config: &Config) -> Vec<Finding> {
    let keys = config.server.auth.iter().flat_map(|auth| &auth.keys);
    let problems = keys.filter_map(|key| key.digest().err());
    problems.map(|problem| Finding::error(format!("{CONFIG_FILE}: server.auth: {problem}"))).collect()
}

/// Returns an error if the certificate cannot be used, without which a server does not start. The files of a
/// configuration that is not trusted are not read.
fn check_certificate(config: &Config, loaded: &LoadedConfig) -> Option<Finding> {
    let tls = config.server.tls.as_ref().filter(|_| !matches!(loaded.status, TrustStatus::Untrusted(_)))?;
    let problem = check_tls(tls).err()?;
    Some(Finding::error(format!("{CONFIG_FILE}: server.tls: {problem}")))
}

/// Returns a warning for each MCP server whose program does not exist, unless the server has a `PATH` of its own.
/// Programs of a configuration that is not trusted are not looked for.
fn check_programs(config: &Config, loaded: &LoadedConfig) -> Vec<Finding> {
    if matches!(loaded.status, TrustStatus::Untrusted(_)) {
        return Vec::new();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let exists = |program: &Path| match program.components().nth(1) {
        Some(_) => program.is_file(),
        None => std::env::split_paths(&path).any(|folder| folder.join(program).is_file()),
    };
    let servers = config.mcp.servers.iter().filter(|(_, server)| !server.env.contains_key("PATH"));
    let programs = servers.filter_map(|(name, server)| Some((name, server.command.as_deref()?)));
    let missing = programs.filter(|(_, program)| !exists(program));
    let warning = |(name, program): (&String, &Path)| {
        let problem = format!("the program `{}` was not found; install it, or name its path", program.display());
        Finding::warning(format!("{CONFIG_FILE}: mcp.servers.{name}: {problem}"))
    };
    missing.map(warning).collect()
}

/// Returns an error if the file requests access that is not trusted.
fn check_trust(loaded: &LoadedConfig) -> Option<Finding> {
    let TrustStatus::Untrusted(reason) = &loaded.status else { return None };
    let requested: String = loaded.external.iter().map(|access| format!("\n{access}")).collect();
    let message = format!("{CONFIG_FILE} requests access outside of its folder, but {reason}:{requested}");
    let fix = match reason {
        UntrustedReason::WritableByAll { path } => format!("chmod o-w {}", quote_path(path)),
        UntrustedReason::NoList(error) => return Some(Finding::error(format!("{message}\n{error}"))),
        UntrustedReason::Undecided | UntrustedReason::Changed => {
            format!("hatchery trust {}", quote_path(loaded.folder()))
        }
    };
    Some(Finding::error(message).with_fix(fix))
}
