//! Opens a host: reads its configuration, opens its services, starts its catalog and composes its runner.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use hatchery_core::{CredentialService, EventSigner, Plugin, Services, SpanExporter};
use hatchery_engine::plugins::ConfiguredPlugins;
use hatchery_engine::{App, CatalogSource, Extensions, Factories, Runner};
use hatchery_eval::{EvalStore, Evaluations};
use hatchery_stores::{LiveQuotas, MemoryCredentials};
use hatchery_telemetry::{HostEvents, TraceStore};
use hatchery_wasm::{CatalogHandle, CatalogModels, LoadOptions, Worker};

use super::paths::{protected_paths, user_code_cache};
use super::{CodeCacheFolder, HostBuilder, NAMES_FILE};
use crate::apps::{ConfiguredApps, LiveAppSettings};
use crate::catalog;
use crate::config::Config;
use crate::host::catalog_events::record_changes;
use crate::host::connections::Connections;
use crate::host::live_config::{LiveConfig, NativeItems, Parts, make_reproducible};
use crate::host::native::{ConfigState, HostApps, HostCatalog, HostPlugins, LiveItems, NativeModels, SourceDirectory};
use crate::host::reload::{FileStamps, follow_files};
use crate::host::{Host, HostError, follow_changes};
use crate::host_key;
use crate::models::LiveModels;
use crate::retrieval::{self, Indexes};
use crate::sandbox::CodeSandbox;
use crate::services::{self, Scripts};
use crate::source::AppSource;
use crate::storage::{EVALUATIONS_FOLDER, Storage};
use crate::trust::{ConfigSource, LoadedConfig, ProtectedPaths};

/// The configuration, and the folders that it applies to.
struct ResolvedConfig {
    /// With the overrides of the builder.
    config: Config,
    file: PathBuf,
    /// `None` if no file is watched.
    stamps: Option<FileStamps>,
    folder: Option<PathBuf>,
    storage: Storage,
    cache: Option<PathBuf>,
    paths: ProtectedPaths,
}

/// The services of a host, its configured models, and the key that signs events.
struct OpenServices {
    services: Services,
    models: Arc<LiveModels>,
    signer: EventSigner,
}

/// The items and apps that agents and clients use, and the catalog that has them.
struct OpenCatalog {
    items: NativeItems,
    native_apps: BTreeMap<String, Arc<App>>,
    /// The plugins of the program.
    plugins: Factories<Arc<dyn Plugin>>,
    /// `None` if there is no folder.
    catalog: Option<CatalogHandle>,
    source: Arc<dyn CatalogSource>,
}

impl HostBuilder {
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
                let loaded = LoadedConfig::from_operator(config.clone(), folder.unwrap_or(Path::new("")))?;
                (loaded, None)
            }
            (None, None) => (LoadedConfig::from_operator(Config::default(), Path::new(""))?, None),
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
        let host = self.start().await?;
        host.finish_loading().await?;
        Ok(host)
    }

    /// Opens the host without waiting for components; [`Host::finish_loading`] does.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for missing plugins.
    pub async fn start(mut self) -> Result<Host, HostError> {
        install_tls_provider();
        let ResolvedConfig { config, file, stamps, folder, storage, cache, paths } = self.resolve_config()?;
        let scripts = Scripts::in_folder(folder.clone().unwrap_or_default(), &config);
        let quotas = LiveQuotas::from(Arc::new(config.app_quotas()));
        let OpenServices { services, models, signer } =
            self.open_services(&config, &storage, &scripts, &quotas).await?;
        let load_options = match &folder {
            Some(folder) => Some(self.load_options(folder, &config, &storage, cache)?),
            None => None,
        };
        let indexes = retrieval::indexes(&config.retrieval, &storage, models.as_ref(), &Indexes::new())?;
        let connections = Connections::new(&config, &services.credentials, indexes, self.watch);
        let OpenCatalog { items, native_apps, plugins, catalog, source } =
            self.open_catalog(folder.as_deref(), load_options, &connections).await?;
        let services = self.with_native_models(services, catalog.clone());
        let plugins = configure_plugins(&config, &file, plugins, source.clone())?;
        let (state, app_settings) = (ConfigState::default(), LiveAppSettings::new(&config, source.clone()));
        let apps = HostApps {
            native: native_apps,
            catalog: catalog.clone(),
            models: services.models.clone(),
            config_state: state.clone(),
        };
        let apps: Arc<dyn AppSource> =
            Arc::new(ConfiguredApps::new(apps, app_settings.clone(), services.models.clone()));
        let (traces, host_events) = (TraceStore::default(), HostEvents::default());
        let exporter = self.span_exporter(&traces, &host_events);
        let runner = compose_runner(services, self.native_plugins(plugins.clone())?, signer, &config, exporter);
        runner.set_apps(Arc::new(SourceDirectory(apps.clone())));
        let evaluations = Evaluations::new(runner.clone(), eval_store(&storage, folder.as_deref()));
        let parts = Parts {
            storage,
            paths,
            state,
            scripts,
            models,
            quotas,
            plugins,
            app_settings,
            connections,
            items,
            catalog: catalog.clone(),
            runner: runner.clone(),
            is_reproducible: self.is_reproducible,
            overrides: std::mem::take(&mut self.services),
        };
        let live = Arc::new(LiveConfig::new(self.config_source_of_file(), config, parts));
        if let Some(catalog) = catalog.as_ref().filter(|_| self.watch) {
            watch_catalog(catalog, &apps, &runner, &host_events);
            if let Some(stamps) = stamps {
                tokio::spawn(follow_files(Arc::downgrade(&live), stamps));
            }
        }
        Ok(Host { live, file, apps, runner, evaluations, traces, host_events, catalog_source: source, catalog })
    }

    /// Starts the catalog of the folder, if there is one, with the items and apps of the program.
    async fn open_catalog(
        &mut self,
        folder: Option<&Path>,
        load_options: Option<LoadOptions>,
        connections: &Connections,
    ) -> Result<OpenCatalog, HostError> {
        let items = self.native_items(load_options.as_ref());
        let (native_items, Extensions { agent_classes, plugins, .. }) = items.layers(connections);
        items.current.replace(native_items.clone());
        let native_apps = self.native_apps()?;
        let catalog = match folder.zip(load_options) {
            Some((folder, mut options)) => {
                options.native_items = native_items;
                options.native_apps = native_apps.keys().cloned().collect();
                options.agent_classes = agent_classes;
                Some(CatalogHandle::start(folder, options).await?)
            }
            None => None,
        };
        let source = Arc::new(HostCatalog { native_items: items.current.clone(), catalog: catalog.clone() });
        Ok(OpenCatalog { items, native_apps, plugins, catalog, source })
    }

    /// Returns the file whose changes apply. `None` if the program has given the settings.
    fn config_source_of_file(&mut self) -> Option<ConfigSource> {
        let source = self.source.take().filter(|_| self.config.is_none())?;
        Some(if self.is_deterministic { source.without_network() } else { source })
    }

    /// Reads the configuration, applies the overrides of the builder, and checks that no grant covers files of the
    /// host.
    fn resolve_config(&mut self) -> Result<ResolvedConfig, HostError> {
        let (loaded, stamps) = match self.loaded.take() {
            Some(loaded) => loaded,
            None => self.load_config()?,
        };
        let LoadedConfig { mut config, file, .. } = loaded;
        let folder = self.source.as_ref().map(|source| source.folder().to_owned());
        self.services.apply_uris(&mut config);
        let storage = self.storage_or_default(folder.as_deref());
        let cache = self.cache_folder();
        let paths = protected_paths(self.source.as_ref(), &storage, cache.as_deref(), &config);
        paths.check(&config, &file)?;
        Ok(ResolvedConfig { config, file, stamps, folder, storage, cache, paths })
    }

    fn storage_or_default(&self, folder: Option<&Path>) -> Storage {
        match (&self.storage, folder) {
            (Some(storage), _) => storage.clone(),
            (None, Some(folder)) => Storage::in_folder(folder),
            (None, None) => Storage::InMemory,
        }
    }

    async fn open_services(
        &mut self,
        config: &Config,
        storage: &Storage,
        scripts: &Scripts,
        quotas: &LiveQuotas,
    ) -> Result<OpenServices, HostError> {
        let mut providers = services::model_providers(config, scripts);
        for provider in self.providers.drain(..) {
            providers.register(provider);
        }
        let models = Arc::new(LiveModels::new(providers));
        let services = services::open_with(config, storage, models.clone(), &self.services, quotas).await?;
        let signer = match self.signer.take() {
            Some(signer) => signer,
            None => host_key::open(config, storage, |name| std::env::var_os(name))?,
        };
        let credentials = services::credentials(config, storage, &signer);
        Ok(OpenServices { services: Services { credentials, ..services }, models, signer })
    }

    /// Returns the exporter of the spans of runs. `None` if there are no receivers.
    fn span_exporter(&mut self, traces: &TraceStore, host_events: &HostEvents) -> Option<Arc<dyn SpanExporter>> {
        let mut exporters = std::mem::take(&mut self.exporters);
        if self.watch {
            exporters.push(Arc::new(host_events.clone()));
        }
        if self.is_traced {
            exporters.push(Arc::new(traces.clone()));
        }
        if exporters.len() > 1 { Some(Arc::new(exporters)) } else { exporters.pop() }
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
        self.is_deterministic = options.settings.deterministic.is_some();
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

    /// Returns the items of the program. The default code executor is among them if components are loaded.
    fn native_items(&mut self, load_options: Option<&LoadOptions>) -> NativeItems {
        let file = self.code_sandbox.take();
        NativeItems {
            extensions: self.extensions.take().unwrap_or_default(),
            single: self.items.take().map(Arc::new),
            sandbox: ArcSwap::from_pointee(load_options.map(|options| CodeSandbox::new(file, options, self.watch))),
            current: LiveItems::default(),
        }
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

    fn native_plugins(&mut self, configured: Arc<ConfiguredPlugins>) -> Result<HostPlugins, HostError> {
        let native = std::mem::take(&mut self.plugins);
        for (index, plugin) in native.iter().enumerate() {
            if native.iter().take(index).any(|earlier| earlier.name() == plugin.name()) {
                return Err(HostError::DuplicatePlugin(plugin.name().into()));
            }
        }
        Ok(HostPlugins { native, configured })
    }
}

/// Adds the items of a configuration that YAML agents can refer to: its toolsets, remote agents and code executors.
/// With them, agents can be loaded without a host. Nothing is connected, and no file is written.
///
/// # Errors
/// If no model provider has a configured embedder. All items except the searched folders are added even then.
pub fn add_configured_items(options: &mut LoadOptions, config: &Config, folder: &Path) -> Result<(), HostError> {
    install_tls_provider();
    let models = services::models(config, &Scripts::in_folder(folder, config));
    let indexes = retrieval::indexes(&config.retrieval, &Storage::InMemory, models.as_ref(), &Indexes::new());
    let (indexes, result) = match indexes {
        Ok(indexes) => (indexes, Ok(())),
        Err(error) => (Indexes::new(), Err(error.into())),
    };
    let credentials: Arc<dyn CredentialService> = Arc::new(MemoryCredentials::default());
    let items = NativeItems {
        extensions: Extensions::default(),
        single: None,
        sandbox: ArcSwap::from_pointee(Some(CodeSandbox::new(None, options, false))),
        current: LiveItems::default(),
    };
    let (native_items, extensions) = items.layers(&Connections::new(config, &credentials, indexes, false));
    options.native_items = native_items;
    options.agent_classes = extensions.agent_classes;
    result
}

/// Installs the TLS provider of Reqwest, which has no default, unless the program has installed another one.
fn install_tls_provider() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// Creates the plugins of the configuration. Plugins of the program take precedence over plugins that come with the
/// host.
fn configure_plugins(
    config: &Config,
    file: &Path,
    native: Factories<Arc<dyn Plugin>>,
    catalog: Arc<dyn CatalogSource>,
) -> Result<Arc<ConfiguredPlugins>, HostError> {
    let mut registered = crate::plugins::factories().clone();
    registered.extend(native);
    let plugins = ConfiguredPlugins::new_while_loading(&config.plugins, &registered, catalog);
    plugins.map(Arc::new).map_err(|source| HostError::Plugin { file: file.to_owned(), source })
}

fn compose_runner(
    services: Services,
    plugins: HostPlugins,
    signer: EventSigner,
    config: &Config,
    exporter: Option<Arc<dyn SpanExporter>>,
) -> Runner {
    let runner = Runner::with_signer(services, plugins, signer)
        .with_turn_lease(config.server.turn_lease)
        .with_kept_artifacts(config.retention.keep_artifacts);
    match exporter {
        Some(exporter) => runner.with_span_exporter(exporter),
        None => runner,
    }
}

/// Watches the files of the folder: loads them again, records their changes, and releases replaced revisions.
fn watch_catalog(catalog: &CatalogHandle, apps: &Arc<dyn AppSource>, runner: &Runner, host_events: &HostEvents) {
    catalog.watch();
    let changes = catalog.subscribe_to_changes();
    tokio::spawn(record_changes(changes, apps.clone(), host_events.clone()));
    tokio::spawn(follow_changes(catalog.subscribe(), apps.clone(), runner.clone()));
}

/// Returns the store of eval sets and results: in the data folder, with the sets next to the agents of the served
/// folder.
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
