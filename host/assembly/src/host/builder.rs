//! The builder of a host.

mod paths;
mod start;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use hatchery_core::{Agent, ArtifactService, EventSigner, MemoryService, Model, Plugin, SessionService, SpanExporter};
use hatchery_engine::{App, Extensions, StaticCatalog};
use hatchery_models::ModelProvider;
#[cfg(feature = "firestore")]
use hatchery_stores::firestore::{
    FirestoreClient, FirestoreMemoryService, FirestoreProperties, FirestoreSessionService,
};
use hatchery_wasm::{DeterministicMode, Progress, Worker};

pub use paths::{protected_paths, user_code_cache};
pub use start::add_configured_items;

use super::reload::FileStamps;
use crate::config::Config;
use crate::services::{ServiceOverrides, ServiceSource};
use crate::storage::Storage;
use crate::trust::{ConfigSource, LoadedConfig, TrustStore};

/// The file in the data folder with the owners of names.
pub const NAMES_FILE: &str = "names.json";

/// Options of a [`Host`](crate::Host). Everything is optional: without a folder the host has native agents only.
#[derive(Default)]
pub struct HostBuilder {
    source: Option<ConfigSource>,
    config: Option<Config>,
    loaded: Option<(LoadedConfig, Option<FileStamps>)>,
    storage: Option<Storage>,
    code_cache: CodeCacheFolder,
    names_file: Option<PathBuf>,
    code_sandbox: Option<PathBuf>,
    services: ServiceOverrides,
    models: BTreeMap<String, Arc<dyn Model>>,
    providers: Vec<Box<dyn ModelProvider>>,
    agents: Vec<Agent>,
    apps: Vec<App>,
    plugins: Vec<Arc<dyn Plugin>>,
    extensions: Option<Extensions>,
    items: Option<StaticCatalog>,
    signer: Option<EventSigner>,
    watch: bool,
    worker: Option<Worker>,
    progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    deterministic_mode: Option<DeterministicMode>,
    /// True once the mode is in use.
    is_deterministic: bool,
    is_reproducible: bool,
    is_traced: bool,
    exporters: Vec<Arc<dyn SpanExporter>>,
}

/// The cache of compiled code.
#[derive(Default)]
enum CodeCacheFolder {
    #[default]
    OfUser,
    Folder(Option<PathBuf>),
}

impl HostBuilder {
    /// Loads components and YAML agents from a folder, with its `hatchery.yaml`.
    #[must_use]
    pub fn folder(self, folder: impl Into<PathBuf>) -> Self {
        self.config_source(
            ConfigSource::new(folder).with_trust_store(TrustStore::for_user(|name| std::env::var_os(name))),
        )
    }

    /// Loads a folder, with another configuration file or another list of trusted folders.
    #[must_use]
    pub fn config_source(self, source: ConfigSource) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Uses these settings instead of a `hatchery.yaml`. They are trusted.
    #[must_use]
    pub fn config(self, config: Config) -> Self {
        Self { config: Some(config), ..self }
    }

    /// Sets the storage of services without a URI. Default: the folder `.hatchery` in the served folder, or
    /// memory if there is no folder.
    #[must_use]
    pub fn storage(self, storage: Storage) -> Self {
        Self { storage: Some(storage), ..self }
    }

    /// Sets the folder for compiled code; `None` disables the cache. Default: `hatchery/code` in the user's cache
    /// folder. Only the operator may have write access to it, because the host executes its content.
    #[must_use]
    pub fn code_cache(self, folder: Option<PathBuf>) -> Self {
        Self { code_cache: CodeCacheFolder::Folder(folder), ..self }
    }

    /// Sets the file that records which component owns which name. A later component with the same names does not take
    /// them over at the next start. Only a host that watches its folder writes it. Default: in the data folder; nowhere
    /// if data is kept in memory.
    #[must_use]
    pub fn names_file(self, file: Option<PathBuf>) -> Self {
        Self { names_file: file, ..self }
    }

    /// Sets the component of the default code executor, `sandbox`. Default: `components/sandbox.wasm` in the user's
    /// data folder of Hatchery, next to the program, or in `share/hatchery` of its installation.
    #[must_use]
    pub fn code_sandbox(self, file: impl Into<PathBuf>) -> Self {
        Self { code_sandbox: Some(file.into()), ..self }
    }

    /// Sets the session service, by URI or as an object. Default: as configured.
    #[must_use]
    pub fn session_service(mut self, service: impl Into<ServiceSource<dyn SessionService>>) -> Self {
        self.services.sessions = Some(service.into());
        self
    }

    /// Sets the artifact service, by URI or as an object. Default: as configured.
    #[must_use]
    pub fn artifact_service(mut self, service: impl Into<ServiceSource<dyn ArtifactService>>) -> Self {
        self.services.artifacts = Some(service.into());
        self
    }

    /// Sets the memory service, by URI or as an object. Default: as configured.
    #[must_use]
    pub fn memory_service(mut self, service: impl Into<ServiceSource<dyn MemoryService>>) -> Self {
        self.services.memory = Some(service.into());
        self
    }

    /// Keeps sessions and memory in the Firestore database of this client.
    #[cfg(feature = "firestore")]
    #[must_use]
    pub fn firestore(self, client: &FirestoreClient, properties: &FirestoreProperties) -> Self {
        let sessions = FirestoreSessionService::with_properties(client.clone(), properties);
        let memory = FirestoreMemoryService::with_properties(client.clone(), properties);
        self.session_service(Arc::new(sessions) as Arc<dyn SessionService>)
            .memory_service(Arc::new(memory) as Arc<dyn MemoryService>)
    }

    /// Adds a model under a name. It takes precedence over hosted and component models.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        self.models.insert(name.into(), model);
        self
    }

    /// Adds a provider of models. It takes precedence over the built-in providers.
    #[must_use]
    pub fn model_provider(mut self, provider: Box<dyn ModelProvider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Adds a native agent as an app with the agent's name.
    #[must_use]
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Adds a native app. An app of the folder with the same name is reported as a conflict and does not serve.
    #[must_use]
    pub fn app(mut self, app: App) -> Self {
        self.apps.push(app);
        self
    }

    /// Adds a plugin of every run. Native plugins run in the order in which they are added, before configured ones.
    #[must_use]
    pub fn plugin(mut self, plugin: Arc<dyn Plugin>) -> Self {
        self.plugins.push(plugin);
        self
    }

    /// Sets the factories of tools, toolsets, agent classes, plugins and code executors that YAML agents and the
    /// configuration can use by name. Default: those that come with the engine. Start with [`Extensions::builtin`] to
    /// add to them.
    #[must_use]
    pub fn extensions(self, extensions: Extensions) -> Self {
        Self { extensions: Some(extensions), ..self }
    }

    /// Sets native tools, toolsets, callbacks and other items that YAML agents and the configuration can use by name.
    /// They take precedence over items of components with the same name.
    #[must_use]
    pub fn items(self, items: StaticCatalog) -> Self {
        Self { items: Some(items), ..self }
    }

    /// Sets the key that signs events. Hosts that share sessions need the same key. Default: as configured.
    #[must_use]
    pub fn event_signer(self, signer: EventSigner) -> Self {
        Self { signer: Some(signer), ..self }
    }

    /// Sets whether changes of files are applied while the host runs. Default: false.
    #[must_use]
    pub fn watch(self, watch: bool) -> Self {
        Self { watch, ..self }
    }

    /// Sets whether the spans of runs are kept in memory, with requests to models and their responses, see
    /// [`Host::traces`](crate::Host::traces). Default: false.
    #[must_use]
    pub fn trace(self, trace: bool) -> Self {
        Self { is_traced: trace, ..self }
    }

    /// Adds a receiver of the spans of runs.
    #[must_use]
    pub fn export_spans(mut self, exporter: Arc<dyn SpanExporter>) -> Self {
        self.exporters.push(exporter);
        self
    }

    /// Sets the process in which components are compiled. Default: in this process, which does not bound the memory and
    /// time of compilation.
    #[must_use]
    pub fn worker(self, worker: Worker) -> Self {
        Self { worker: Some(worker), ..self }
    }

    /// Sets a listener for the progress of loading.
    #[must_use]
    pub fn progress(self, listener: Arc<dyn Fn(Progress) + Send + Sync>) -> Self {
        Self { progress: Some(listener), ..self }
    }

    /// Runs components with a fixed clock, fixed random numbers and recorded HTTP responses, for tests.
    #[must_use]
    pub fn deterministic(self, mode: DeterministicMode) -> Self {
        Self { deterministic_mode: Some(mode), ..self.reproducible() }
    }

    /// Disables features that make two runs of the same conversation differ: compaction, whose summaries arrive at any
    /// time, and the recorder plugin, which would add to the replayed recordings.
    #[must_use]
    pub fn reproducible(self) -> Self {
        Self { is_reproducible: true, ..self }
    }
}
