//! What is said about `hatchery.yaml`: what it chooses, settings for what there is not, and changes: those of components
//! take effect at once, others at the next start.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use hatchery::services::Scripts;
use hatchery::trust::HostPaths;
use hatchery::{AppConfig, AppSource, CatalogReport, Config, ConfigSource, catalog, config};
use hatchery_wasm::CatalogHandle;

use crate::audit::changes;

/// How often the file is looked at. A look costs microseconds.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Logs which plugins runs pass, and which settings apps have.
pub fn log_choices(config: &Config, plugins: &[String]) {
    if !plugins.is_empty() {
        tracing::info!(plugins = plugins.join(", "), "every run passes these plugins");
    }
    if config.app_defaults != AppConfig::default() {
        tracing::info!(settings = %config.app_defaults, "all apps have settings");
    }
    for (app, settings) in config.apps.iter().filter(|(_, settings)| **settings != AppConfig::default()) {
        tracing::info!(app, %settings, "an app has settings of its own");
    }
}

/// What is wrong with the settings of apps when these are all that there are, a sentence for each.
pub fn unknown_apps(config: &Config, apps: &[String]) -> Vec<String> {
    let unknown = config.apps.keys().filter(|name| !apps.contains(name));
    let known = if apps.is_empty() { "none".to_owned() } else { apps.join(", ") };
    let say = |name| {
        format!("{} has settings for the app `{name}`, but no app has this name; there is {known}", config::FILE_NAME)
    };
    unknown.map(say).collect()
}

/// The apps that are loaded and those of YAML files that cannot be: these are there, too.
pub fn apps_of(loaded: Vec<String>, report: &CatalogReport) -> Vec<String> {
    let broken = report.files.iter().filter(|file| file.reason.is_some()).map(|file| file.name.clone());
    let mut known: Vec<String> = loaded.into_iter().chain(broken).collect();
    known.sort();
    known.dedup();
    known
}

/// Logs a warning for each app that has settings but is not there.
pub fn warn_of_unknown_apps(config: &Config, apps: Vec<String>, report: &CatalogReport) {
    for warning in unknown_apps(config, &apps_of(apps, report)) {
        tracing::warn!("{warning}");
    }
}

/// Logs a warning for each component that has settings but is not there.
pub fn warn_of_unknown_components(config: &Config, report: &CatalogReport) {
    for warning in unknown_components(config, report) {
        tracing::warn!("{warning}");
    }
}

/// What is wrong with the settings of components, a sentence for each. A component whose file cannot be loaded is there, too.
pub fn unknown_components(config: &Config, report: &CatalogReport) -> Vec<String> {
    let is_there = |name: &str| {
        report.components.iter().any(|component| component.name == name)
            || report.files.iter().any(|file| file.name == name)
    };
    let known = report.components.iter().map(|component| component.name.as_str()).collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "none" } else { &known };
    let say = |name| {
        format!("{} has settings for `{name}`, but no component has this name; there is {known}", config::FILE_NAME)
    };
    config.components.keys().filter(|name| !is_there(name)).map(say).collect()
}

/// Takes over changes of the configuration of a folder that is served.
pub struct Follower {
    /// Where the configuration is.
    pub source: ConfigSource,
    /// What the host was started with.
    pub opened: Config,
    /// What serves.
    pub catalog: CatalogHandle,
    /// Where scripts of models are.
    pub scripts: Scripts,
    /// What belongs to the host alone.
    pub paths: HostPaths,
}

impl Follower {
    /// Follows the file and the list of trusted folders since they were looked at: what the file says of components takes effect, the rest
    /// is said to need a restart. A file that is wrong changes nothing; what nobody trusts any more is withdrawn. Never ends.
    pub async fn follow(self, mut watched: Watched) {
        let mut interval = tokio::time::interval(LOOK_EVERY);
        let mut in_force = self.opened.clone();
        loop {
            interval.tick().await;
            if watched.has_changed()
                && let Some(config) = self.take_over().await
            {
                in_force = self.put_in_force(&in_force, config).await;
            }
        }
    }

    /// The configuration as it is now, without what is not trusted. `None` if it cannot be used.
    async fn take_over(&self) -> Option<Config> {
        let loaded = match self.source.load() {
            Ok(loaded) => loaded,
            Err(error) => {
                tracing::warn!("{error}; the settings of before stay in force");
                return None;
            }
        };
        if let Err(error) = self.paths.check(&loaded.config, &loaded.file) {
            tracing::warn!("{error}; the settings of before stay in force");
            return None;
        }
        if !loaded.file.exists() {
            tracing::warn!("{} is gone: components have no grants, and the limits of the host", loaded.file.display());
        }
        changes::record_trust(&loaded);
        if let Some(explanation) = loaded.explanation() {
            tracing::warn!("{explanation}");
        }
        Some(loaded.config)
    }

    /// Gives the configuration that is in force from now on.
    async fn put_in_force(&self, before: &Config, config: Config) -> Config {
        let later = need_restart(&self.opened, &config);
        if !later.is_empty() {
            let file = self.source.file();
            tracing::warn!(
                "{} has changed: restart the server, it still runs with the old {}",
                file.display(),
                later.join(", ")
            );
        }
        changes::record_grants(before, &config);
        self.scripts.update(&config);
        let settings = catalog::settings(&config);
        if let Some(warning) = self.catalog.pool_overflow(&settings) {
            tracing::warn!("{warning}");
        }
        self.catalog.configure(settings).await;
        warn_of_unknown_components(&config, &self.catalog.report());
        tracing::info!("{}: limits and settings of components are in force", config::FILE_NAME);
        config
    }
}

/// The sections that are read at the start only and say something else now.
fn need_restart(opened: &Config, now: &Config) -> Vec<&'static str> {
    let sections = [
        ("`session_service`", opened.session_service != now.session_service),
        ("`artifact_service`", opened.artifact_service != now.artifact_service),
        ("`memory_service`", opened.memory_service != now.memory_service),
        ("`models`", opened.models != now.models),
        ("`plugins`", opened.plugins != now.plugins),
        ("`app_defaults`", opened.app_defaults != now.app_defaults),
        ("`apps`", opened.apps != now.apps),
        ("`quotas`", opened.quotas != now.quotas),
        ("`durability`", opened.durability != now.durability),
        ("`instances`", opened.instances != now.instances),
        ("`compile`", opened.compile != now.compile),
        ("`hot_reload`", opened.hot_reload != now.hot_reload),
        ("`registry`", opened.registry != now.registry),
        ("`server`", opened.server != now.server),
        (
            "`signed_as`, `signed_by` and `sha256` of `components`",
            opened.expected_identities() != now.expected_identities(),
        ),
        ("`audit`", opened.audit != now.audit),
    ];
    sections.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// Files, and what they were when somebody last looked.
pub struct Watched {
    paths: Vec<PathBuf>,
    seen: Vec<Stamp>,
    /// True when `seen` is yet to be read.
    is_new: bool,
}

/// When a file was written, and its size; nothing while there is none.
type Stamp = Option<(Option<SystemTime>, u64)>;

impl Watched {
    /// A configuration, and the list that says whether it is trusted, as they are now.
    pub fn new(source: &ConfigSource) -> Self {
        let list = source.store().map(|store| store.file().to_owned());
        let paths: Vec<_> = std::iter::once(source.file()).chain(list).collect();
        Self { seen: stamps(&paths), paths, is_new: false }
    }

    /// True when they are other ones than before, or came, or went, and have been so for two looks: somebody may still be writing.
    fn has_changed(&mut self) -> bool {
        let now = stamps(&self.paths);
        if self.seen != now {
            self.seen = now;
            self.is_new = true;
            return false;
        }
        std::mem::take(&mut self.is_new)
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let stamp =
        |path: &PathBuf| std::fs::metadata(path).ok().map(|metadata| (metadata.modified().ok(), metadata.len()));
    paths.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hatchery::{ComponentReport, FileReport};

    use super::*;

    #[test]
    fn a_change_of_the_file_is_seen_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = Watched::new(&ConfigSource::of_folder(folder.path()));
        assert!(!file.has_changed());
        std::fs::write(folder.path().join("hatchery.yaml"), "# one").unwrap();
        assert!(!file.has_changed(), "it may still be written");
        assert!(file.has_changed());
        assert!(!file.has_changed());
        std::fs::write(folder.path().join("hatchery.yaml"), "# another one").unwrap();
        assert!(!file.has_changed());
        assert!(file.has_changed());
        std::fs::remove_file(folder.path().join("hatchery.yaml")).unwrap();
        assert!(!file.has_changed());
        assert!(file.has_changed());
    }

    #[test]
    fn what_needs_a_restart_is_named() {
        let config = |yaml: &str| Config::parse(yaml, Path::new("hatchery.yaml")).unwrap();
        let opened = config("plugins: [logging]\ncomponents: {a: {limits: {log: 1}}}");
        assert!(need_restart(&opened, &config("plugins: [logging]\nlimits: {log: 2}")).is_empty());
        let changed = config("server: {max_connections: 3}\napps: {dice: {resumable: true}}");
        assert_eq!(need_restart(&opened, &changed), ["`plugins`", "`apps`", "`server`"]);
        let bound = config("plugins: [logging]\ncomponents: {a: {signed_as: b}}");
        assert_eq!(need_restart(&opened, &bound), ["`signed_as`, `signed_by` and `sha256` of `components`"]);
        let changed = config("plugins: [logging]\nquotas: {user_sessions: 3}\ndurability: power");
        assert_eq!(need_restart(&opened, &changed), ["`quotas`", "`durability`"]);
    }

    #[test]
    fn settings_of_apps_that_are_not_there_are_found() {
        let config = Config::parse("apps: {dice: {}, dcie: {}}", Path::new("hatchery.yaml")).unwrap();
        let warning = "hatchery.yaml has settings for the app `dcie`, but no app has this name; there is dice, trip";
        assert_eq!(unknown_apps(&config, &["dice".into(), "trip".into()]), [warning]);
        assert!(unknown_apps(&config, &[])[1].ends_with("; there is none"));
    }

    #[test]
    fn settings_of_components_that_are_not_there_are_found() {
        let yaml = "components: {dice: {}, broken: {}, dcie: {}}";
        let config = Config::parse(yaml, Path::new("hatchery.yaml")).unwrap();
        let report = CatalogReport {
            components: vec![ComponentReport { name: "dice".into(), ..ComponentReport::default() }],
            files: vec![FileReport { name: "broken".into(), ..FileReport::default() }],
            ..CatalogReport::default()
        };
        let warning = "hatchery.yaml has settings for `dcie`, but no component has this name; there is dice";
        assert_eq!(unknown_components(&config, &report), [warning]);
    }
}
