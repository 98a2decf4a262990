//! Log lines for the settings of `hatchery.yaml`, and settings for apps and components that do not exist.

use hatchery_core::DEFAULT_CODE_EXECUTOR;

use crate::config::{AppConfig, Config, FILE_NAME};
use crate::source::CatalogReport;

/// Logs the plugins of every run and the settings of apps.
pub(super) fn log_settings(config: &Config, plugins: &[String]) {
    if !plugins.is_empty() {
        tracing::info!(plugins = plugins.join(", "), "plugins of every run");
    }
    if config.app_defaults != AppConfig::default() {
        tracing::info!(settings = %config.app_defaults, "default settings of all apps");
    }
    for (app, settings) in config.apps.iter().filter(|(_, settings)| **settings != AppConfig::default()) {
        tracing::info!(app, %settings, "settings of an app");
    }
}

/// Returns a warning for each app that has settings and is not in `apps`.
pub fn unknown_apps(config: &Config, apps: &[String]) -> Vec<String> {
    let unknown = config.apps.keys().filter(|name| !apps.contains(name));
    let known = if apps.is_empty() { "none".to_owned() } else { apps.join(", ") };
    unknown
        .map(|name| format!("{FILE_NAME} has settings for the app `{name}`, which does not exist; available: {known}"))
        .collect()
}

/// Returns the names of the loaded apps and of YAML apps that cannot be loaded.
pub fn known_apps(loaded: Vec<String>, report: &CatalogReport) -> Vec<String> {
    let failed = report.files.iter().filter(|file| file.reason.is_some()).map(|file| file.name.clone());
    let mut known: Vec<String> = loaded.into_iter().chain(failed).collect();
    known.sort();
    known.dedup();
    known
}

pub(super) fn warn_of_unknown_apps(config: &Config, apps: Vec<String>, report: &CatalogReport) {
    for warning in unknown_apps(config, &known_apps(apps, report)) {
        tracing::warn!("{warning}");
    }
}

pub(super) fn warn_of_unknown_components(config: &Config, report: &CatalogReport) {
    for warning in unknown_components(config, report) {
        tracing::warn!("{warning}");
    }
}

/// Returns a warning for each component that has settings and no file. A file that cannot be loaded counts.
pub fn unknown_components(config: &Config, report: &CatalogReport) -> Vec<String> {
    let exists = |name: &str| {
        // The component that is installed with the host is in no report.
        name == DEFAULT_CODE_EXECUTOR
            || report.components.iter().any(|component| component.name == name)
            || report.files.iter().any(|file| file.name == name)
    };
    let known = report.components.iter().map(|component| component.name.as_str()).collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "none" } else { &known };
    let unknown = config.components.keys().filter(|name| !exists(name));
    unknown
        .map(|name| {
            format!("{FILE_NAME} has settings for the component `{name}`, which does not exist; available: {known}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::source::{ComponentReport, FileReport};

    #[test]
    fn settings_of_unknown_apps_are_found() {
        let config = Config::parse("apps: {dice: {}, dcie: {}}", Path::new("hatchery.yaml")).unwrap();
        let warning = "hatchery.yaml has settings for the app `dcie`, which does not exist; available: dice, trip";
        assert_eq!(unknown_apps(&config, &["dice".into(), "trip".into()]), [warning]);
        assert!(unknown_apps(&config, &[])[1].ends_with("; available: none"));
    }

    #[test]
    fn settings_of_unknown_components_are_found() {
        let yaml = "components: {dice: {}, broken: {}, dcie: {}, sandbox: {}}";
        let config = Config::parse(yaml, Path::new("hatchery.yaml")).unwrap();
        let report = CatalogReport {
            components: vec![ComponentReport { name: "dice".into(), ..ComponentReport::default() }],
            files: vec![FileReport { name: "broken".into(), ..FileReport::default() }],
            ..CatalogReport::default()
        };
        let warning = "hatchery.yaml has settings for the component `dcie`, which does not exist; available: dice";
        assert_eq!(unknown_components(&config, &report), [warning]);
    }
}
