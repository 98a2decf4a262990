//! Native apps, models and plugins, layered over the apps, models and plugins of the folder.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{Embedder, ItemResolver, Model, ModelCapabilities, ModelError, ModelResolver, Plugin, RunError};
use hatchery_engine::plugins::ConfiguredPlugins;
use hatchery_engine::{
    App, AppDirectory, CatalogSnapshot, CatalogSource, LayeredResolver, PluginSource, Plugins, StaticCatalog,
};
use hatchery_wasm::{CatalogHandle, Inspection};
use tokio::sync::watch;

use crate::app_files::AppFiles;
use crate::models::{models_of, unusable_models};
use crate::source::{AppOrigin, AppSource, CatalogReport, ComponentDetail, FileReport, RestoreError};

/// Native apps, and the apps of the folder. The catalog has no app with the name of a native one.
pub(super) struct HostApps {
    pub(super) native: BTreeMap<String, Arc<App>>,
    pub(super) catalog: Option<CatalogHandle>,
    pub(super) models: Arc<dyn ModelResolver>,
    pub(super) config_state: ConfigState,
}

/// The report of a configuration file that cannot be used while the previous settings are in force. `None` if it can be
/// used. Clones share it.
#[derive(Clone, Default)]
pub(super) struct ConfigState(Arc<Mutex<Option<FileReport>>>);

impl ConfigState {
    pub(super) fn set(&self, report: Option<FileReport>) {
        *self.0.lock_unpoisoned() = report;
    }

    fn get(&self) -> Option<FileReport> {
        self.0.lock_unpoisoned().clone()
    }
}

#[async_trait]
impl AppSource for HostApps {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        let native = self.native.get(name).cloned();
        native.or_else(|| self.catalog.as_ref()?.app(name))
    }

    fn app_names(&self) -> Vec<String> {
        let mut names = self.catalog.as_ref().map(AppSource::app_names).unwrap_or_default();
        if !self.native.is_empty() {
            names.extend(self.native.keys().cloned());
            names.sort();
        }
        names
    }

    fn app_origin(&self, name: &str) -> AppOrigin {
        let catalog = self.catalog.as_ref().filter(|_| !self.native.contains_key(name));
        catalog.map_or(AppOrigin::Native, |catalog| catalog.app_origin(name))
    }

    fn loading(&self) -> Vec<String> {
        self.catalog.as_ref().map(AppSource::loading).unwrap_or_default()
    }

    fn report(&self) -> CatalogReport {
        let mut report = self.catalog.as_ref().map(AppSource::report).unwrap_or_default();
        report.files.extend(self.config_state.get());
        let apps: Vec<_> = self.app_names().iter().filter_map(|name| self.app(name)).collect();
        let unusable = unusable_models(models_of(&apps), self.models.as_ref());
        report.warnings = unusable.iter().map(ToString::to_string).collect();
        report
    }

    fn component(&self, name: &str) -> Option<ComponentDetail> {
        self.catalog.as_ref()?.component(name)
    }

    fn restore_component(&self, name: &str, revision: &str) -> Result<(), RestoreError> {
        let unknown = || RestoreError::UnknownComponent(name.to_owned());
        self.catalog.as_ref().ok_or_else(unknown)?.restore_component(name, revision)
    }

    async fn inspect_revision(&self, name: &str, revision: &str) -> Result<Inspection, RestoreError> {
        let unknown = || RestoreError::UnknownComponent(name.to_owned());
        AppSource::inspect_revision(self.catalog.as_ref().ok_or_else(unknown)?, name, revision).await
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.catalog.as_ref()?.changes()
    }

    fn items(&self) -> Option<Arc<dyn ItemResolver>> {
        self.catalog.as_ref()?.items()
    }

    fn app_files(&self) -> Option<AppFiles> {
        self.catalog.as_ref()?.app_files()
    }
}

/// The apps of a source, for the code of runs.
pub(super) struct SourceDirectory(pub(super) Arc<dyn AppSource>);

impl AppDirectory for SourceDirectory {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        self.0.app(name)
    }

    fn app_names(&self) -> Vec<String> {
        self.0.app_names()
    }
}

/// Native items, and the items of the folder. Native items hide items of components with the same name.
pub(super) struct HostCatalog {
    pub(super) native_items: LiveItems,
    pub(super) catalog: Option<CatalogHandle>,
}

/// Native items, which are replaced with the configuration. `None` if there are none. Clones share them.
#[derive(Clone, Default)]
pub(super) struct LiveItems(Arc<ArcSwap<Option<Arc<dyn ItemResolver>>>>);

impl LiveItems {
    pub(super) fn replace(&self, items: Option<Arc<dyn ItemResolver>>) {
        self.0.store(Arc::new(items));
    }

    pub(super) fn get(&self) -> Option<Arc<dyn ItemResolver>> {
        Option::clone(&self.0.load())
    }
}

impl CatalogSource for HostCatalog {
    fn snapshot(&self) -> CatalogSnapshot {
        let catalog = self.catalog.as_ref().map(CatalogSource::snapshot);
        let generation = catalog.as_ref().map_or(0, |catalog| catalog.generation);
        let resolver: Arc<dyn ItemResolver> = match (self.native_items.get(), catalog) {
            (None, Some(catalog)) => catalog.resolver,
            (Some(native), None) => native,
            (Some(native), Some(catalog)) => Arc::new(LayeredResolver::new([native, catalog.resolver])),
            (None, None) => Arc::new(StaticCatalog::default()),
        };
        CatalogSnapshot { generation, resolver }
    }
}

/// Native models by name, and all other models.
pub(super) struct NativeModels {
    pub(super) native: BTreeMap<String, Arc<dyn Model>>,
    pub(super) rest: Arc<dyn ModelResolver>,
}

impl ModelResolver for NativeModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        match self.native.get(name) {
            Some(model) => Ok(model.clone()),
            None => self.rest.model(name),
        }
    }

    fn embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        self.rest.embedder(name)
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        match self.native.get(name) {
            Some(model) => model.capabilities(),
            None => self.rest.capabilities(name),
        }
    }
}

/// Native plugins, followed by the plugins of the configuration. A native plugin replaces a configured one with the
/// same name.
pub(super) struct HostPlugins {
    pub(super) native: Vec<Arc<dyn Plugin>>,
    pub(super) configured: Arc<ConfiguredPlugins>,
}

#[async_trait]
impl PluginSource for HostPlugins {
    fn current(&self) -> Result<Plugins, RunError> {
        let configured = self.configured.current()?;
        Ok(self.native.iter().rev().fold(configured, |plugins, native| plugins.prepend(native.clone())))
    }

    async fn close(&self) {
        for plugin in &self.native {
            plugin.close().await;
        }
        self.configured.close().await;
    }
}
