//! The builder of a host.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery_core::{
    Agent, ArtifactService, EventSigner, ItemResolver, MemoryService, Model, Plugin, Services, SessionService,
    SpanExporter,
};
use hatchery_engine::plugins::ConfiguredPlugins;
use hatchery_engine::{App, CatalogSource, Extensions, LayeredResolver, Runner, StaticCatalog};
use hatchery_eval::{EvalStore, Evaluations};
use hatchery_models::ModelProvider;
#[cfg(feature = "firestore")]
use hatchery_stores::firestore::{
    FirestoreClient, FirestoreMemoryService, FirestoreProperties, FirestoreSessionService,
};
use hatchery_telemetry::{HostEvents, TraceStore};
use hatchery_wasm::{CatalogHandle, CatalogModels, DeterministicMode, LoadOptions, Progress, Worker};

use super::catalog_events::record_changes;
use super::native::{AppsOf, ConfigState, HostApps, HostCatalog, HostPlugins, NativeModels};
use super::reload::{ConfigWatcher, FileStamps};
use super::{Host, HostError, follow_changes};
use crate::a2a;
use crate::apps::ConfiguredApps;
use crate::catalog;
use crate::code_executors;
use crate::config::Config;
use crate::host_key;
use crate::openapi;
use crate::retrieval;
use crate::sandbox;
use crate::services::{self, Scripts, ServiceOverrides, ServiceSource};
use crate::source::AppSource;
use crate::storage::{DATA_FOLDER, EVALUATIONS_FOLDER, Storage};
use crate::trust::{ConfigSource, LoadedConfig, ProtectedPaths, TrustStore};

/// The file in the data folder that records which component owns which name.
pub const NAMES_FILE: &str = "names.json";

/// Options of a [`Host`]. Everything is optional: without a folder the host has native agents only.
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
            ConfigSource::new(folder).with_trust_store(TrustStore::of_user(|name| std::env::var_os(name))),
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
    /// folder. Nobody but the operator may be able to write to it, since the host executes its content.
    #[must_use]
    pub fn code_cache(self, folder: Option<PathBuf>) -> Self {
        Self { code_cache: CodeCacheFolder::Folder(folder), ..self }
    }

    /// Sets the file that remembers which component owns which name, so that a second file with the same names takes
    /// nothing away at the next start. Only a host that watches its folder writes it. Default: in the data folder;
    /// nowhere if data is kept in memory.
    #[must_use]
    pub fn names_file(self, file: Option<PathBuf>) -> Self {
        Self { names_file: file, ..self }
    }

    /// Sets the component of the default code executor, `sandbox`. Default: `components/sandbox.wasm` in the user's data
    /// folder of Hatchery, beside the program, or in `share/hatchery` of its installation.
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

    /// Sets the key that signs events. Default: as configured.
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
    /// [`Host::traces`]. Default: false.
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

    /// Disables features by which two runs of the same conversation differ: compaction, whose summaries arrive at any
    /// time, and the recorder plugin, which would add to the recordings that are played.
    #[must_use]
    pub fn reproducible(self) -> Self {
        Self { is_reproducible: true, ..self }
    }

    /// Reads the configuration, once: [`open`](Self::open) reuses it. Without a folder, or with
    /// [`config`](Self::config), it is the given one.
    ///
    /// # Errors
    /// If there is no such folder, the configuration is invalid, or the host requires access that is not trusted.
    pub fn read_config(&mut self) -> Result<&LoadedConfig, HostError> {
        let loaded = match self.loaded.take() {
            Some(loaded) => loaded,
            None => self.load_config()?,
        };
        Ok(&self.loaded.insert(loaded).0)
    }

    fn load_config(&self) -> Result<(LoadedConfig, Option<FileStamps>), HostError> {
        let folder = self.source.as_ref().map(ConfigSource::folder);
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(HostError::NotAFolder(folder.to_owned()));
        }
        let (mut loaded, stamps) = match (&self.config, &self.source) {
            (Some(config), _) => {
                let loaded = LoadedConfig::of_operator(config.clone(), folder.unwrap_or(Path::new("")))?;
                (loaded, None)
            }
            (None, None) => (LoadedConfig::of_operator(Config::default(), Path::new(""))?, None),
            (None, Some(source)) => {
                let source = match &self.deterministic_mode {
                    Some(_) => &source.clone().without_network(),
                    None => source,
                };
                // Recorded before the file is read, so that no change is missed.
                let stamps = self.watch.then(|| FileStamps::new(source));
                (source.load()?.require_host_access()?, stamps)
            }
        };
        if self.is_reproducible {
            make_reproducible(&mut loaded.config);
        }
        Ok((loaded, stamps))
    }

    /// Opens the host and waits until all components are loaded.
    ///
    /// # Errors
    /// If the configuration is invalid, a service cannot be opened or a configured plugin does not exist. Components
    /// that cannot be loaded are not errors.
    pub async fn open(self) -> Result<Host, HostError> {
        let mut host = self.start().await?;
        host.finish_loading().await?;
        Ok(host)
    }

    /// Opens the host without waiting for components; [`Host::finish_loading`] does.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for missing plugins.
    pub async fn start(mut self) -> Result<Host, HostError> {
        // Reqwest has no provider of its own. An application may have installed another one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        self.read_config()?;
        let (loaded, stamps) = match self.loaded.take() {
            Some(loaded) => loaded,
            None => self.load_config()?,
        };
        let LoadedConfig { config: initial, file, .. } = loaded;
        let folder = self.source.as_ref().map(|source| source.folder().to_owned());
        let mut config = initial.clone();
        self.services.apply_uris(&mut config);
        let storage = self.storage.clone().unwrap_or_else(|| match &folder {
            Some(folder) => Storage::in_folder(folder),
            None => Storage::InMemory,
        });
        let cache = self.cache_folder();
        let paths = protected_paths(self.source.as_ref(), &storage, cache.as_deref(), &config);
        paths.check(&config, &file)?;

        let scripts = Scripts::in_folder(folder.clone().unwrap_or_default(), &config);
        let mut providers = services::model_providers(&config, &scripts);
        for provider in self.providers.drain(..) {
            providers.register(provider);
        }
        let services = services::open_with(&config, &storage, Arc::new(providers), &self.services).await?;
        let signer = match self.signer.take() {
            Some(signer) => signer,
            None => host_key::open(&config, &storage, |name| std::env::var_os(name))?,
        };
        let services = Services { credentials: services::credentials(&config, &storage, &signer), ..services };
        let mcp_servers = config.mcp.servers(&services.credentials);
        if self.watch {
            mcp_servers.start();
        }
        mcp_servers.register(self.extensions.get_or_insert_default());
        let (a2a_agents, a2a_policies) = a2a::register_agents(&config.a2a, self.extensions.get_or_insert_default());
        let push_policy = a2a::push_policy(&config.a2a);
        let (openapi, api_policies) = openapi::apis(&config.openapi);
        if self.watch {
            openapi.start();
        }
        openapi.register(self.extensions.get_or_insert_default());
        let (integrations, integration_policies) = openapi::integrations(&config.integrations);
        if self.watch {
            integrations.start();
        }
        integrations.register(self.extensions.get_or_insert_default());
        let executor_withdrawals =
            code_executors::register(&config.code_executors, self.extensions.get_or_insert_default());
        let load_options = match &folder {
            Some(folder) => Some(self.load_options(folder, &config, &storage, cache)?),
            None => None,
        };
        if let Some(options) = &load_options {
            let file = self.code_sandbox.take();
            sandbox::register(file, options, self.watch, self.extensions.get_or_insert_default());
        }
        let extensions = self.extensions.get_or_insert_default();
        retrieval::register(&config.retrieval, &storage, services.models.as_ref(), extensions)?;
        let Extensions { agent_classes, plugins, .. } = self.extensions.clone().unwrap_or_default();
        let mut registered_plugins = crate::plugins::registered().clone();
        registered_plugins.extend(plugins);
        let native_items = self.native_items();
        let native_apps = self.native_apps()?;
        let catalog = match folder.as_ref().zip(load_options) {
            Some((folder, mut options)) => {
                options.native_items = native_items.clone();
                options.native_apps = native_apps.keys().cloned().collect();
                options.agent_classes = agent_classes;
                Some(CatalogHandle::start(folder, options).await?)
            }
            None => None,
        };
        let services = self.with_native_models(services, catalog.clone());
        let catalog_source: Arc<dyn CatalogSource> = Arc::new(HostCatalog { native_items, catalog: catalog.clone() });
        let configured = ConfiguredPlugins::while_loading(&config.plugins, &registered_plugins, catalog_source.clone())
            .map_err(|source| HostError::Plugin { file: file.clone(), source })?;
        let plugin_names = configured.names();
        let (models, config_state) = (services.models.clone(), ConfigState::default());
        let apps =
            HostApps { native: native_apps, catalog: catalog.clone(), models, config_state: config_state.clone() };
        let apps: Arc<dyn AppSource> = Arc::new(ConfiguredApps::new(apps, &config, catalog_source.clone()));
        let mut runner = Runner::with_signer(services, self.native_plugins(configured)?, signer)
            .with_turn_lease(config.server.turn_lease);
        let traces = TraceStore::default();
        let host_events = HostEvents::default();
        let mut exporters = self.exporters;
        if self.watch {
            exporters.push(Arc::new(host_events.clone()));
        }
        if self.is_traced {
            exporters.push(Arc::new(traces.clone()));
        }
        runner = match exporters.pop() {
            None => runner,
            Some(only) if exporters.is_empty() => runner.with_span_exporter(only),
            Some(last) => {
                exporters.push(last);
                runner.with_span_exporter(Arc::new(exporters))
            }
        };
        runner.set_apps(Arc::new(AppsOf(apps.clone())));
        if let Some(catalog) = catalog.as_ref().filter(|_| self.watch) {
            catalog.watch();
            let changes = catalog.subscribe_to_changes();
            tokio::spawn(record_changes(changes, apps.clone(), host_events.clone()));
            tokio::spawn(follow_changes(catalog.subscribe(), apps.clone(), runner.clone()));
            if let (Some(stamps), Some(source)) = (stamps, self.source) {
                let (catalog, scripts) = (catalog.clone(), scripts.clone());
                let (mcp_servers, state) = (mcp_servers.clone(), config_state);
                tokio::spawn(
                    ConfigWatcher {
                        source,
                        initial,
                        catalog,
                        scripts,
                        paths,
                        mcp_servers,
                        a2a_policies,
                        push_policy: push_policy.clone(),
                        api_policies,
                        integration_policies,
                        executor_withdrawals,
                        state,
                    }
                    .run(stamps),
                );
            }
        }
        let evaluations = Evaluations::new(runner.clone(), eval_store(&storage, folder.as_deref()));
        Ok(Host {
            config,
            file,
            plugin_names,
            apps,
            runner,
            evaluations,
            traces,
            host_events,
            scripts,
            mcp_servers,
            a2a_agents,
            push_policy,
            openapi,
            registered_plugins,
            catalog_source,
            catalog,
        })
    }

    /// Returns the options for loading the components and YAML agents of a folder.
    fn load_options(
        &mut self,
        folder: &Path,
        config: &Config,
        storage: &Storage,
        cache: Option<PathBuf>,
    ) -> Result<LoadOptions, HostError> {
        let worker = self.worker.take().unwrap_or(Worker::InProcess);
        let mut options = catalog::load_options(config, cache, worker)?;
        options.settings.deterministic = self.deterministic_mode.take();
        options.progress = self.progress.take();
        options.names_file = self.names_file.take().or_else(|| match storage {
            Storage::Directory(data) => Some(data.join(NAMES_FILE)),
            Storage::InMemory => None,
        });
        options.stores_names = self.watch;
        if let (true, Storage::Directory(data)) = (self.watch, storage) {
            options.revisions = Some(catalog::revisions(folder, Some(data), config));
        }
        Ok(options)
    }

    /// Returns the native items in layers: extensions, then single items. `None` if there are none.
    fn native_items(&mut self) -> Option<Arc<dyn ItemResolver>> {
        let extensions = self.extensions.take().map(|extensions| Arc::new(extensions) as Arc<dyn ItemResolver>);
        let items = self.items.take().map(|items| Arc::new(items) as Arc<dyn ItemResolver>);
        let layers: Vec<_> = extensions.into_iter().chain(items).collect();
        (!layers.is_empty()).then(|| Arc::new(LayeredResolver::new(layers)) as Arc<dyn ItemResolver>)
    }

    fn cache_folder(&self) -> Option<PathBuf> {
        match &self.code_cache {
            CodeCacheFolder::OfUser => user_code_cache(|name| std::env::var_os(name)),
            CodeCacheFolder::Folder(folder) => folder.clone(),
        }
    }

    fn with_native_models(&mut self, services: Services, catalog: Option<CatalogHandle>) -> Services {
        let mut models = services.models.clone();
        if let Some(catalog) = catalog {
            models = Arc::new(CatalogModels { catalog, fallback: models });
        }
        if !self.models.is_empty() {
            models = Arc::new(NativeModels { native: std::mem::take(&mut self.models), rest: models });
        }
        Services { models, ..services }
    }

    fn native_apps(&mut self) -> Result<BTreeMap<String, Arc<App>>, HostError> {
        let mut apps = BTreeMap::new();
        let agents = self.agents.drain(..).map(|agent| {
            let name = agent.name.clone();
            App::new(&name, agent).map_err(|source| HostError::InvalidApp { name, source })
        });
        for app in agents.chain(self.apps.drain(..).map(Ok)) {
            let app = app?;
            if let Some(earlier) = apps.insert(app.name.clone(), Arc::new(app)) {
                return Err(HostError::DuplicateApp(earlier.name.clone()));
            }
        }
        Ok(apps)
    }

    fn native_plugins(&mut self, configured: ConfiguredPlugins) -> Result<HostPlugins, HostError> {
        let native = std::mem::take(&mut self.plugins);
        for (index, plugin) in native.iter().enumerate() {
            if native.iter().take(index).any(|earlier| earlier.name() == plugin.name()) {
                return Err(HostError::DuplicatePlugin(plugin.name().into()));
            }
        }
        Ok(HostPlugins { native, configured })
    }
}

/// Returns the store of eval sets and results: in the data folder, with the sets beside the agents of the served folder.
fn eval_store(storage: &Storage, folder: Option<&Path>) -> EvalStore {
    let store = match storage {
        Storage::Directory(data) => EvalStore::in_folder(data.join(EVALUATIONS_FOLDER)),
        Storage::InMemory => EvalStore::in_memory(),
    };
    match folder {
        Some(folder) => store.with_served_folder(folder),
        None => store,
    }
}

/// Returns the default folder for compiled code: `hatchery/code` in the user's cache folder. It is not in the served
/// folder, since everyone who can write to the cache can make the host execute native code. `None` if there is no cache
/// folder.
pub fn user_code_cache(environment: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("hatchery").join("code"))
}

/// Returns the paths of the host that no grant may cover.
pub fn protected_paths(
    source: Option<&ConfigSource>,
    storage: &Storage,
    code_cache: Option<&Path>,
    config: &Config,
) -> ProtectedPaths {
    let mut paths = ProtectedPaths::default().with_services(config);
    if let Some(source) = source {
        paths = paths.private(DATA_PURPOSE, source.folder().join(DATA_FOLDER));
    }
    if let Storage::Directory(data) = storage {
        paths = paths.private(DATA_PURPOSE, data);
    }
    if let Some(file) = std::env::var_os(host_key::SECRET_FILE) {
        paths = paths.private("the key of the host", file);
    }
    if let Some(cache) = code_cache {
        paths = paths.private("the cache of compiled code and its key", cache);
    }
    match source.and_then(ConfigSource::store).and_then(|store| store.file().parent()) {
        Some(folder) => paths.read_only("the list of trusted folders", folder),
        None => paths,
    }
}

const DATA_PURPOSE: &str = "the data folder of the host";

fn make_reproducible(config: &mut Config) {
    config.plugins.retain(|plugin| plugin.name != "recorder");
    for app in config.apps.values_mut().chain([&mut config.app_defaults]) {
        app.compaction = None;
    }
}
