//! The host: a served folder, native agents and their services, ready to run.

mod builder;
mod catalog_events;
mod connections;
mod error;
mod live_config;
mod native;
mod reload;
mod sections;
mod settings;
mod stop;

use std::path::PathBuf;
use std::sync::Arc;

use hatchery_a2a::A2aAgents;
use hatchery_core::{Content, RunConfig, Services};
use hatchery_engine::{App, CatalogSource, Run, RunRequest, Runner};
use hatchery_eval::Evaluations;
use hatchery_mcp::McpServers;
use hatchery_openapi::Apis;
use hatchery_telemetry::{HostEvents, TraceStore};
use hatchery_wasm::CatalogHandle;
use tokio::sync::watch;

pub use builder::{HostBuilder, NAMES_FILE, add_configured_items, protected_paths, user_code_cache};
pub use error::HostError;
pub use live_config::{ApplyConfig, ConfigChange, ConfigSubscriber};
pub use settings::{known_apps, unknown_apps, unknown_components};

use live_config::{LiveConfig, Trigger};

use crate::config::Config;
use crate::services::Scripts;
use crate::source::AppSource;

/// Agents from a folder and from Rust code, with the services that they run on.
///
/// Runs of one session wait for each other; runs of different sessions are independent. A host that watches its folder
/// applies changes of files while it runs. Active runs finish with the code that they have started with.
pub struct Host {
    live: Arc<LiveConfig>,
    /// The configuration file, for error messages.
    file: PathBuf,
    apps: Arc<dyn AppSource>,
    runner: Runner,
    evaluations: Evaluations,
    traces: TraceStore,
    host_events: HostEvents,
    catalog_source: Arc<dyn CatalogSource>,
    /// The components and YAML agents of the folder. `None` if there is no folder.
    catalog: Option<CatalogHandle>,
}

impl Host {
    /// Opens a folder as `hatchery run` does: with the services, plugins, grants and limits of its `hatchery.yaml`, and
    /// with data in the folder `.hatchery`. Access outside of the folder must be trusted, see [`trust`](crate::trust).
    /// Waits until all components are loaded. Files that cannot be loaded are not errors but part of
    /// [`AppSource::report`].
    pub async fn open(folder: impl Into<PathBuf>) -> Result<Self, HostError> {
        Self::builder().folder(folder).open().await
    }

    /// Returns a builder for a host with native agents, other services or other settings.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    /// Sends a text to an app and starts its run. The session is created if it does not exist.
    ///
    /// # Errors
    /// If there is no such app, an id is invalid, or a plugin is missing.
    pub async fn run(&self, app: &str, user: &str, session: &str, message: &str) -> Result<Run, HostError> {
        let config = RunConfig { auto_create_session: true, ..RunConfig::default() };
        let request = RunRequest { config, ..RunRequest::new(user, session, Content::user(message)) };
        self.run_request(app, request).await
    }

    /// Starts a run of an app, with all options.
    ///
    /// # Errors
    /// If there is no such app, or the request is invalid.
    pub async fn run_request(&self, app: &str, request: RunRequest) -> Result<Run, HostError> {
        Ok(self.runner.run(self.app(app)?, request).await?)
    }

    /// Returns the app with this name.
    ///
    /// # Errors
    /// If there is no such app. The error names the existing apps.
    pub fn app(&self, name: &str) -> Result<Arc<App>, HostError> {
        self.apps.app(name).ok_or_else(|| HostError::AppNotFound { name: name.into(), known: self.apps.app_names() })
    }

    /// Returns the source of all apps, for example for a server.
    pub fn apps(&self) -> &Arc<dyn AppSource> {
        &self.apps
    }

    /// Returns the runner of all apps. A clone of it shares sessions and plugins.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Returns the evaluation of the apps, with sets and results in the data folder.
    pub fn evaluations(&self) -> &Evaluations {
        &self.evaluations
    }

    /// Returns the log of the host's events: changes of files and components, ends of runs, failed calls of components.
    pub fn host_events(&self) -> &HostEvents {
        &self.host_events
    }

    /// Returns the spans of runs, if they are [traced](HostBuilder::trace).
    pub fn traces(&self) -> &TraceStore {
        &self.traces
    }

    /// Returns the session, artifact, memory and model services.
    pub fn services(&self) -> &Services {
        self.runner.services()
    }

    /// Returns the settings in force, with the overrides of the builder.
    pub fn config(&self) -> Arc<Config> {
        self.live.config()
    }

    /// Reads the configuration file again and applies it without a restart, as a host that watches its folder does by
    /// itself. Returns false if it cannot be used: the previous one stays in force, and the log has the reason.
    pub async fn reload_config(&self) -> bool {
        self.live.reload(Trigger::Request).await
    }

    /// Returns a function that acts as [`Host::reload_config`] and does not borrow the host.
    pub fn config_reloader(&self) -> impl AsyncFn() -> bool + use<> {
        let live = Arc::downgrade(&self.live);
        async move || match live.upgrade() {
            Some(live) => live.reload(Trigger::Request).await,
            None => false,
        }
    }

    /// Adds a part of the program that was made from the configuration `used` and follows its changes.
    ///
    /// # Errors
    /// If the configuration has changed in between, and the part refuses the new one.
    pub async fn follow_config(&self, subscriber: Arc<dyn ConfigSubscriber>, used: &Config) -> Result<(), String> {
        self.live.subscribe(subscriber, used).await
    }

    /// Returns the names of the configured plugins, in order.
    pub fn plugin_names(&self) -> Vec<String> {
        self.live.parts.plugins.names()
    }

    /// Returns the folders of scripts for scripted models.
    pub fn scripts(&self) -> &Scripts {
        &self.live.parts.scripts
    }

    /// Returns the MCP servers of the configuration.
    pub fn mcp_servers(&self) -> &McpServers {
        &self.live.parts.connections.mcp_servers
    }

    /// Returns the configured agents of other hosts.
    pub fn a2a_agents(&self) -> &A2aAgents {
        &self.live.parts.connections.a2a_agents
    }

    /// Returns the HTTP APIs of the configuration whose operations are tools.
    pub fn openapi(&self) -> &Apis {
        &self.live.parts.connections.openapi
    }

    pub(crate) fn live(&self) -> &LiveConfig {
        &self.live
    }

    pub(crate) fn catalog_source(&self) -> &Arc<dyn CatalogSource> {
        &self.catalog_source
    }

    pub(crate) fn catalog_handle(&self) -> Option<&CatalogHandle> {
        self.catalog.as_ref()
    }

    /// Returns true while components are being loaded for the first time.
    pub fn is_loading(&self) -> bool {
        self.catalog.as_ref().is_some_and(|catalog| catalog.current().loading().next().is_some())
    }

    /// Returns a future that completes when all components are loaded or rejected. It does not borrow the host.
    pub fn wait_until_loaded(&self) -> impl Future<Output = ()> + Send + 'static {
        let catalog = self.catalog.clone();
        async move {
            if let Some(catalog) = catalog {
                catalog.wait_until_loaded().await;
            }
        }
    }

    /// Waits until all components are loaded or rejected.
    ///
    /// # Errors
    /// If a configured plugin does not exist.
    pub async fn finish_loading(&self) -> Result<(), HostError> {
        self.wait_until_loaded().await;
        // A plugin that is missing is the problem below.
        let _ = self.runner.refresh_plugins();
        match self.live.parts.plugins.problem() {
            Some(source) => Err(HostError::Plugin { file: self.file.clone(), source }),
            None => Ok(()),
        }
    }

    /// Logs the plugins and the settings of apps, and warns of settings for apps and components that do not exist.
    pub fn log_settings(&self) {
        let (config, report) = (self.config(), self.apps.report());
        settings::log_settings(&config, &self.plugin_names());
        settings::warn_of_unknown_apps(&config, self.apps.app_names(), &report);
        settings::warn_of_unknown_components(&config, &report);
    }
}

/// Logs each new catalog generation. Then refreshes cached references, so that replaced revisions can be dropped.
async fn follow_changes(mut generation: watch::Receiver<u64>, apps: Arc<dyn AppSource>, runner: Runner) {
    generation.mark_unchanged();
    while generation.changed().await.is_ok() {
        let generation = *generation.borrow_and_update();
        let names = apps.app_names();
        tracing::info!(generation, apps = names.join(", "), "catalog updated");
        names.iter().for_each(|app| drop(apps.app(app)));
        // A missing plugin has been logged.
        let _ = runner.refresh_plugins();
    }
}

#[cfg(test)]
mod tests;
