//! Hot reload of the configuration: settings of components take effect at once, all others at the next start.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use hatchery_wasm::CatalogHandle;

use super::connections::Connections;
use super::native::ConfigState;
use super::settings::warn_of_unknown_components;
use crate::audit;
use crate::catalog::{component_settings, invalid_config_report};
use crate::config::{Config, FILE_NAME, ServerAuthConfig, ServerConfig};
use crate::services::Scripts;
use crate::source::AppSource;
use crate::trust::{ConfigSource, ProtectedPaths};

/// Interval at which the files are checked. A check costs microseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Watches the configuration of a served folder and applies its changes.
pub(super) struct ConfigWatcher {
    pub(super) source: ConfigSource,
    /// The configuration that the host was started with.
    pub(super) initial: Config,
    pub(super) catalog: CatalogHandle,
    pub(super) scripts: Scripts,
    pub(super) paths: ProtectedPaths,
    pub(super) connections: Connections,
    /// Reports a file that cannot be used.
    pub(super) state: ConfigState,
}

impl ConfigWatcher {
    /// Watches the configuration file and the list of trusted folders. Applies settings of components and warns that
    /// other changes need a restart. An invalid file is reported and ignored. Access that is no longer trusted is
    /// withdrawn. Never returns.
    pub(super) async fn run(self, mut files: FileStamps) {
        let mut interval = tokio::time::interval(POLL_INTERVAL);
        let mut active = self.initial.clone();
        loop {
            interval.tick().await;
            if files.has_changed()
                && let Some(config) = self.load()
            {
                self.apply(&active, &config).await;
                active = config;
            }
        }
    }

    /// Returns the trusted part of the current configuration. `None` if it cannot be used.
    fn load(&self) -> Option<Config> {
        let checked = self.source.load().and_then(|loaded| {
            self.paths.check(&loaded.config, &loaded.file)?;
            Ok(loaded)
        });
        let loaded = match checked {
            Ok(loaded) => loaded,
            Err(error) => {
                let reason = format!("{error}; the previous settings remain in force");
                tracing::warn!("{reason}");
                self.state.set(Some(invalid_config_report(&self.source.file(), &reason, self.source.folder())));
                return None;
            }
        };
        self.state.set(None);
        if !loaded.file.exists() {
            tracing::warn!("{} was removed: components have no grants and the default limits", loaded.file.display());
        }
        audit::record_trust(&loaded);
        if let Some(explanation) = loaded.explanation() {
            tracing::warn!("{explanation}");
        }
        Some(loaded.config)
    }

    async fn apply(&self, before: &Config, config: &Config) {
        let sections = sections_with_restart(&self.initial, config);
        if !sections.is_empty() {
            let file = self.source.file();
            tracing::warn!("{} has changed: restart the server to apply {}", file.display(), sections.join(", "));
        }
        if before.server.auth != config.server.auth {
            let file = self.source.file();
            tracing::warn!("{} has changed: send SIGHUP to the server to apply `server.auth`", file.display());
        }
        self.connections.withdraw_removed(&self.initial, config).await;
        audit::record_grants(before, config);
        self.scripts.update(config);
        let settings = component_settings(config);
        if let Some(warning) = self.catalog.pool_overflow(&settings) {
            tracing::warn!("{warning}");
        }
        self.catalog.configure(settings).await;
        warn_of_unknown_components(config, &self.catalog.report());
        tracing::info!("{FILE_NAME}: component settings and limits are applied");
    }
}

/// Returns the sections that differ and only take effect at the next start.
fn sections_with_restart(initial: &Config, now: &Config) -> Vec<&'static str> {
    let sections = [
        ("`session_service`", initial.session_service != now.session_service),
        ("`artifact_service`", initial.artifact_service != now.artifact_service),
        ("`memory_service`", initial.memory_service != now.memory_service),
        ("`memory`", initial.memory != now.memory),
        ("`models`", initial.models != now.models),
        ("`plugins`", initial.plugins != now.plugins),
        ("`app_defaults`", initial.app_defaults != now.app_defaults),
        ("`apps`", initial.apps != now.apps),
        ("`quotas`", initial.quotas != now.quotas),
        ("`durability`", initial.durability != now.durability),
        ("`encryption`", initial.encryption != now.encryption),
        ("`retention`", initial.retention != now.retention),
        ("`prices`", initial.prices != now.prices),
        ("`instances`", initial.instances != now.instances),
        ("`compile`", initial.compile != now.compile),
        ("`hot_reload`", initial.hot_reload != now.hot_reload),
        ("`mcp`", initial.mcp != now.mcp),
        ("`a2a`", initial.a2a != now.a2a),
        ("`code_executors`", initial.code_executors != now.code_executors),
        ("`openapi`", initial.openapi != now.openapi),
        ("`integrations`", initial.integrations != now.integrations),
        ("`retrieval`", initial.retrieval != now.retrieval),
        ("`registry`", initial.registry != now.registry),
        ("`server`", without_auth(&initial.server) != without_auth(&now.server)),
        (
            "`signed_as`, `signed_by` and `sha256` of `components`",
            initial.expected_identities() != now.expected_identities(),
        ),
        ("`audit`", initial.audit != now.audit),
    ];
    sections.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// Returns the settings of the server but its clients, which can be replaced without a restart.
fn without_auth(server: &ServerConfig) -> ServerConfig {
    // Authentication itself is for as long as the process lives.
    let auth = server.auth.as_ref().map(|_| ServerAuthConfig::default());
    ServerConfig { auth, ..server.clone() }
}

/// Detects changes of files by their size and modification time.
pub(super) struct FileStamps {
    paths: Vec<PathBuf>,
    stamps: Vec<FileStamp>,
    /// True if a change was seen and the files may still be being written.
    is_changing: bool,
}

/// Modification time and size. `None` if the file does not exist.
type FileStamp = Option<(Option<SystemTime>, u64)>;

impl FileStamps {
    /// Records the current state of a configuration file and of the list of trusted folders.
    pub(super) fn new(source: &ConfigSource) -> Self {
        let list = source.store().map(|store| store.file().to_owned());
        let paths: Vec<_> = std::iter::once(source.file()).chain(list).collect();
        Self { stamps: stamps(&paths), paths, is_changing: false }
    }

    /// Returns true if a file has changed, was created or removed, and the change is at least one call old.
    fn has_changed(&mut self) -> bool {
        let now = stamps(&self.paths);
        if self.stamps != now {
            self.stamps = now;
            self.is_changing = true;
            return false;
        }
        std::mem::take(&mut self.is_changing)
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<FileStamp> {
    let stamp =
        |path: &PathBuf| std::fs::metadata(path).ok().map(|metadata| (metadata.modified().ok(), metadata.len()));
    paths.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_change_of_the_file_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = FileStamps::new(&ConfigSource::new(folder.path()));
        assert!(!file.has_changed());
        std::fs::write(folder.path().join("hatchery.yaml"), "# one").unwrap();
        assert!(!file.has_changed(), "it may still be being written");
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
    fn sections_that_need_a_restart_are_named() {
        let config = |yaml: &str| Config::parse(yaml, Path::new("hatchery.yaml")).unwrap();
        let initial = config("plugins: [logging]\ncomponents: {a: {limits: {log: 1}}}");
        assert!(sections_with_restart(&initial, &config("plugins: [logging]\nlimits: {log: 2}")).is_empty());
        let changed = config("server: {max_connections: 3}\napps: {dice: {resumable: true}}");
        assert_eq!(sections_with_restart(&initial, &changed), ["`plugins`", "`apps`", "`server`"]);
        let served = config("plugins: [logging]\nmcp: {servers: {files: {command: npx}}}");
        assert_eq!(sections_with_restart(&initial, &served), ["`mcp`"]);
        let bound = config("plugins: [logging]\ncomponents: {a: {signed_as: b}}");
        assert_eq!(sections_with_restart(&initial, &bound), ["`signed_as`, `signed_by` and `sha256` of `components`"]);
        let auth = |keys: &str| config(&format!("plugins: [logging]\nserver: {{auth: {{keys: [{keys}]}}}}"));
        let (one, two) = (auth("{name: a, from: A}"), auth("{name: a, from: A}, {name: b, from: B}"));
        assert!(sections_with_restart(&one, &two).is_empty(), "clients are replaced by a signal");
        assert_eq!(sections_with_restart(&initial, &one), ["`server`"]);
        let changed = config("plugins: [logging]\nquotas: {user_sessions: 3}\ndurability: power");
        assert_eq!(sections_with_restart(&initial, &changed), ["`quotas`", "`durability`"]);
    }
}
