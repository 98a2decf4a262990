//! The configuration in force, and its replacement while the host runs.
//!
//! A changed configuration is checked as a whole. Everything that can fail is prepared first: model providers, plugins,
//! indexes, and the changes of [subscribers](ConfigSubscriber). If one of them refuses, the previous configuration
//! stays in force. Otherwise each part is swapped for its successor. Runs in progress keep the parts that they have
//! started with.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use hatchery_a2a::{A2aService, ServerSettings};
use hatchery_core::ItemResolver;
use hatchery_core::sync::MutexExt;
use hatchery_engine::plugins::ConfiguredPlugins;
use hatchery_engine::plugins::config::PluginList;
use hatchery_engine::{Extensions, LayeredResolver, Runner, StaticCatalog};
use hatchery_mcp::{Exposure, McpService};
use hatchery_models::ModelProviders;
use hatchery_stores::LiveQuotas;
use hatchery_wasm::{CatalogHandle, CatalogItems, CatalogUpdate};

use super::connections::{self, Connections};
use super::native::{ConfigState, LiveItems};
use super::sections;
use super::settings::warn_of_unknown_components;
use crate::apps::LiveAppSettings;
use crate::catalog::{component_settings, invalid_config_report, load_policy};
use crate::config::Config;
use crate::models::LiveModels;
use crate::retrieval::{self, Indexes};
use crate::sandbox::CodeSandbox;
use crate::services::{self, Scripts, ServiceOverrides};
use crate::storage::Storage;
use crate::trust::{ConfigSource, LoadedConfig, ProtectedPaths};
use crate::{a2a, audit, mcp};

/// A changed configuration.
pub struct ConfigChange<'a> {
    /// The configuration in force until now.
    pub before: &'a Config,
    /// The changed one. Sections that apply at the next start have their values in force.
    pub config: &'a Config,
    /// The file, which need not exist.
    pub file: &'a Path,
    /// The keys that differ in the file and apply at the next start.
    pub pending: &'a [&'static str],
    /// True if the operator has asked for it: files that the configuration names are read again, too.
    pub is_requested: bool,
}

/// The cause of a reload of the configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The file, or the list of trusted folders, has changed.
    Change,
    /// The operator has asked for it.
    Request,
}

/// Replaces the state that a subscriber has derived from the previous configuration.
pub type ApplyConfig = Box<dyn FnOnce() + Send>;

/// A part of a program that depends on the configuration, such as a server.
pub trait ConfigSubscriber: Send + Sync {
    /// Checks a configuration, and returns a function that applies it. It is not called if another part refuses it.
    ///
    /// # Errors
    /// The problem, with the key.
    fn prepare(&self, change: &ConfigChange<'_>) -> Result<ApplyConfig, String>;
}

/// The configuration in force, and the parts of the host that depend on it.
pub(crate) struct LiveConfig {
    /// `None` if the configuration cannot change.
    source: Option<ConfigSource>,
    in_force: ArcSwap<Config>,
    /// Held while a configuration is applied.
    applying: tokio::sync::Mutex<()>,
    /// True once the host stops.
    is_closed: AtomicBool,
    pub(super) parts: Parts,
    services: Mutex<ExposedServices>,
    subscribers: Mutex<Vec<Arc<dyn ConfigSubscriber>>>,
}

/// The parts of a host that are replaced with its configuration.
pub(super) struct Parts {
    pub(super) storage: Storage,
    pub(super) paths: ProtectedPaths,
    /// Reports a file that cannot be used.
    pub(super) state: ConfigState,
    pub(super) scripts: Scripts,
    pub(super) models: Arc<LiveModels>,
    pub(super) quotas: LiveQuotas,
    pub(super) plugins: Arc<ConfiguredPlugins>,
    pub(super) app_settings: LiveAppSettings,
    pub(super) connections: Connections,
    pub(super) items: NativeItems,
    pub(super) catalog: Option<CatalogHandle>,
    pub(super) runner: Runner,
    pub(super) is_reproducible: bool,
    /// The services of the program, which take precedence over those of the file.
    pub(super) overrides: ServiceOverrides,
}

/// The items that agents use, except those of components.
pub(super) struct NativeItems {
    /// The program's extensions, without those from the configuration.
    pub(super) extensions: Extensions,
    pub(super) single: Option<Arc<StaticCatalog>>,
    /// `None` if there is no folder.
    pub(super) sandbox: ArcSwap<Option<CodeSandbox>>,
    pub(super) current: LiveItems,
}

/// The services of the host for clients of other protocols.
#[derive(Default)]
struct ExposedServices {
    /// Each with patterns of tools that it exposes in addition to those of the configuration.
    mcp: Vec<(Vec<String>, McpService)>,
    a2a: Vec<A2aService>,
}

/// The replaced parts whose preparation can fail.
struct PreparedParts {
    models: Option<Arc<ModelProviders>>,
    plugins: Option<PluginList>,
    indexes: Option<Indexes>,
    subscribers: Vec<ApplyConfig>,
}

impl LiveConfig {
    /// `source` is `None` if the configuration cannot change.
    pub(super) fn new(source: Option<ConfigSource>, config: Config, parts: Parts) -> Self {
        let (applying, services, subscribers) = (tokio::sync::Mutex::default(), Mutex::default(), Mutex::default());
        let (in_force, is_closed) = (ArcSwap::from_pointee(config), AtomicBool::new(false));
        Self { source, in_force, applying, is_closed, parts, services, subscribers }
    }

    /// Waits for the end of a change in progress. No other one begins.
    pub(super) async fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let _applying = self.applying.lock().await;
    }

    pub(super) fn config(&self) -> Arc<Config> {
        self.in_force.load_full()
    }

    /// Returns an MCP server that follows the configuration.
    pub(crate) fn add_mcp_service(
        &self,
        tools: Vec<String>,
        create: impl FnOnce(Exposure, usize) -> McpService,
    ) -> McpService {
        let mut services = self.services.lock_unpoisoned();
        let config = self.config();
        let service = create(mcp::exposure(&config, &tools), config.server.max_concurrent_runs);
        services.mcp.push((tools, service.clone()));
        service
    }

    /// Returns an A2A server that follows the configuration.
    pub(crate) fn add_a2a_service(&self, create: impl FnOnce(ServerSettings) -> A2aService) -> A2aService {
        let mut services = self.services.lock_unpoisoned();
        let service = create(a2a::server_settings(&self.config(), self.parts.connections.push_policy()));
        services.a2a.push(service.clone());
        service
    }

    /// Adds a part of the program that was made from `used`. If the configuration has changed in between, it is applied
    /// to the part.
    ///
    /// # Errors
    /// If the part refuses it.
    pub(super) async fn subscribe(&self, subscriber: Arc<dyn ConfigSubscriber>, used: &Config) -> Result<(), String> {
        let _applying = self.applying.lock().await;
        let config = self.config();
        if *config != *used {
            let file = self.file();
            let change = ConfigChange { before: used, config: &config, file: &file, pending: &[], is_requested: false };
            subscriber.prepare(&change)?();
        }
        self.subscribers.lock_unpoisoned().push(subscriber);
        Ok(())
    }

    /// Returns the generation of the catalog.
    pub(super) fn generation(&self) -> u64 {
        self.parts.catalog.as_ref().map_or(0, |catalog| catalog.current().generation)
    }

    fn file(&self) -> PathBuf {
        self.source.as_ref().map(ConfigSource::file).unwrap_or_default()
    }

    /// Reads the file again and applies it. Returns false if it cannot be used; then the log and the report of the host
    /// have the reason, and the previous configuration stays in force.
    pub(super) async fn reload(&self, trigger: Trigger) -> bool {
        let Some(source) = &self.source else { return true };
        let _applying = self.applying.lock().await;
        if self.is_closed.load(Ordering::SeqCst) {
            return true;
        }
        let loaded = source.load().and_then(|loaded| {
            self.parts.paths.check(&loaded.config, &loaded.file)?;
            Ok(loaded)
        });
        let applied = match loaded {
            Ok(loaded) => self.apply(loaded, trigger).await,
            Err(error) => Err(error.to_string()),
        };
        let Err(problem) = applied else {
            self.parts.state.set(None);
            return true;
        };
        let reason = if problem.ends_with('?') {
            format!("{problem} The previous settings remain in force")
        } else {
            format!("{problem}; the previous settings remain in force")
        };
        tracing::error!("{reason}");
        self.parts.state.set(Some(invalid_config_report(&source.file(), &reason, source.folder())));
        false
    }

    async fn apply(&self, loaded: LoadedConfig, trigger: Trigger) -> Result<(), String> {
        let before = self.config();
        audit::record_trust(&loaded);
        let (file, is_of_operator) = (loaded.file.clone(), loaded.is_of_operator());
        if let Some(explanation) = loaded.refused_host_access() {
            let config = sections::withdraw_untrusted(&before, loaded.config);
            self.replace(&before, config, &file, &[], trigger).await?;
            return Err(explanation);
        }
        if !file.exists() {
            tracing::warn!("{} was removed: the defaults are in force, and components have no grants", file.display());
        }
        if let Some(explanation) = loaded.explanation() {
            tracing::warn!("{explanation}");
        }
        let mut config = loaded.config;
        self.parts.overrides.apply_uris(&mut config);
        if self.parts.is_reproducible {
            make_reproducible(&mut config);
        }
        let mut pending = sections::keep_in_force(&mut config, &before);
        if !is_of_operator {
            pending.extend(sections::keep_protection(&mut config, &before));
        }
        if !pending.is_empty() {
            let keys = quote_keys(&pending);
            tracing::warn!("{} has changed: restart the server to apply {keys}", file.display());
        }
        self.replace(&before, config, &file, &pending, trigger).await
    }

    /// Replaces the configuration in force.
    async fn replace(
        &self,
        before: &Config,
        config: Config,
        file: &Path,
        pending: &[&'static str],
        trigger: Trigger,
    ) -> Result<(), String> {
        let changed = sections::changed_keys(before, &config);
        let is_requested = trigger == Trigger::Request;
        let change = ConfigChange { before, config: &config, file, pending, is_requested };
        let prepared = self.prepare(&change, &changed).map_err(|problem| format!("{}: {problem}", file.display()))?;
        audit::record_grants(before, &config);
        self.commit(before, &config, &changed, prepared).await;
        self.in_force.store(Arc::new(config));
        if !changed.is_empty() {
            tracing::info!("{}: applied without a restart: {}", file.display(), quote_keys(&changed));
        } else if is_requested {
            tracing::info!("{}: nothing has changed; keys and certificates were read again", file.display());
        }
        Ok(())
    }

    /// Prepares the parts that can fail.
    fn prepare(&self, change: &ConfigChange<'_>, changed: &[&str]) -> Result<PreparedParts, String> {
        let (parts, config) = (&self.parts, change.config);
        // Whether data is encrypted may be another than in the file.
        let is_encrypted = !config.encryption.keys.is_empty();
        config.retrieval.iter().try_for_each(|(name, it)| it.check_encryption(name, is_encrypted))?;
        let has_changed = |key: &str| changed.contains(&key);
        let before = parts.models.providers();
        let models =
            has_changed("models").then(|| Arc::new(services::replaced_providers(&before, config, &parts.scripts)));
        let indexes = (has_changed("retrieval") || has_changed("models")).then(|| {
            let mut kept = Indexes::clone(&parts.connections.indexes());
            let unchanged = connections::unchanged_names(&change.before.retrieval, &config.retrieval);
            let is_kept = |name: &String| unchanged.contains(name) && (models.is_none() || !has_embedder(config, name));
            kept.retain(|name, _| is_kept(name));
            let models = models.as_ref().unwrap_or(&before);
            retrieval::indexes(&config.retrieval, &parts.storage, models.as_ref(), &kept)
        });
        let plugins = has_changed("plugins").then(|| parts.plugins.prepare(&config.plugins));
        let subscribers = self.subscribers.lock_unpoisoned().clone();
        Ok(PreparedParts {
            models: models.clone(),
            plugins: plugins.transpose().map_err(|error| error.to_string())?,
            indexes: indexes.transpose().map_err(|error| error.to_string())?,
            subscribers: subscribers.iter().map(|it| it.prepare(change)).collect::<Result<_, _>>()?,
        })
    }

    /// Replaces each part by its successor.
    async fn commit(&self, before: &Config, config: &Config, changed: &[&str], prepared: PreparedParts) {
        let parts = &self.parts;
        let has_changed = |keys: &[&str]| keys.iter().any(|key| changed.contains(key));
        parts.scripts.update(config);
        if let Some(models) = prepared.models {
            parts.models.replace(models);
        }
        let push_before = parts.connections.push_policy();
        parts.connections.replace(before, config, prepared.indexes).await;
        self.update_catalog(before, config, &has_changed).await;
        if let Some(plugins) = prepared.plugins {
            parts.plugins.replace(plugins);
        }
        if has_changed(&["app_defaults", "apps"]) {
            parts.app_settings.replace(config);
        } else if has_changed(&["models"]) {
            parts.app_settings.set_config(config);
        }
        parts.quotas.set(config.app_quotas());
        parts.runner.set_turn_lease(config.server.turn_lease);
        parts.runner.set_kept_artifacts(config.retention.keep_artifacts);
        let push = parts.connections.push_policy();
        let changes_push = push.as_ref().map(Arc::as_ptr) != push_before.as_ref().map(Arc::as_ptr);
        {
            let services = self.services.lock_unpoisoned();
            for (tools, service) in &services.mcp {
                service.reconfigure(mcp::exposure(config, tools), config.server.max_concurrent_runs);
            }
            for service in &services.a2a {
                service.reconfigure(a2a::server_settings(config, push.clone()), changes_push);
            }
        }
        for apply in prepared.subscribers {
            apply();
        }
    }

    async fn update_catalog(&self, before: &Config, config: &Config, has_changed: &impl Fn(&[&str]) -> bool) {
        let (parts, settings) = (&self.parts, component_settings(config));
        let sandbox = parts.items.sandbox.load_full();
        let next = sandbox.as_ref().as_ref().map(|sandbox| sandbox.with_settings(&settings, &config.compile));
        let is_same_sandbox = sandbox.as_ref().as_ref().zip(next.as_ref()).is_none_or(|(now, next)| now.is_same(next));
        parts.items.sandbox.store(Arc::new(next));
        let has_other_items = has_changed(&[
            "mcp.servers",
            "a2a.agents",
            "openapi",
            "integrations",
            "retrieval",
            "code_executors",
            "models",
        ]);
        let mut extensions = None;
        if has_other_items || !is_same_sandbox {
            let (items, all) = parts.items.layers(&parts.connections);
            parts.items.current.replace(items.clone());
            extensions = Some(CatalogItems { agent_classes: all.agent_classes, native_items: items });
        }
        let Some(catalog) = &parts.catalog else { return };
        if let Some(warning) = catalog.pool_overflow(&settings) {
            tracing::warn!("{warning}");
        }
        catalog.configure(settings).await;
        let changes_admission =
            has_changed(&["registry"]) || before.expected_identities() != config.expected_identities();
        let update = CatalogUpdate {
            items: extensions,
            compile: has_changed(&["compile"]).then(|| config.compile.clone()),
            load_policy: changes_admission.then(|| load_policy(config)),
            drain_timeout: Some(config.hot_reload.drain_timeout),
            max_revisions: Some(config.hot_reload.keep),
        };
        catalog.update(update).await;
        warn_of_unknown_components(config, &crate::AppSource::report(catalog));
    }
}

impl NativeItems {
    /// Returns the native items in layers: extensions, then single items; `None` if there are none. With the
    /// extensions.
    pub(super) fn layers(&self, connections: &Connections) -> (Option<Arc<dyn ItemResolver>>, Extensions) {
        let mut extensions = self.extensions.clone();
        connections.register(&mut extensions);
        if let Some(sandbox) = &**self.sandbox.load() {
            sandbox.register(&mut extensions);
        }
        let first = Arc::new(extensions.clone()) as Arc<dyn ItemResolver>;
        let single = self.single.clone().map(|items| items as Arc<dyn ItemResolver>);
        let layers: Vec<_> = std::iter::once(first).chain(single).collect();
        (Some(Arc::new(LayeredResolver::new(layers))), extensions)
    }
}

/// Disables features by which two runs of the same conversation differ.
pub(super) fn make_reproducible(config: &mut Config) {
    config.plugins.retain(|plugin| plugin.name != "recorder");
    for app in config.apps.values_mut().chain([&mut config.app_defaults]) {
        app.compaction = None;
    }
}

fn has_embedder(config: &Config, folder: &str) -> bool {
    config.retrieval.get(folder).is_some_and(|folder| folder.embedder.is_some())
}

/// Returns keys as human-readable text, without duplicates.
fn quote_keys(keys: &[&str]) -> String {
    let mut seen = BTreeSet::new();
    let keys: Vec<_> = keys.iter().filter(|key| seen.insert(**key)).map(|key| format!("`{key}`")).collect();
    keys.join(", ")
}
