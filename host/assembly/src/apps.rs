//! An [`AppSource`] that applies the settings of the configuration to the apps of another source.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use hatchery_core::{ItemResolver, ModelResolver};
use hatchery_engine::compaction::ConfiguredCompaction;
use hatchery_engine::{App, AppSettings, CatalogSource};
use hatchery_wasm::Inspection;
use tokio::sync::watch;

use crate::app_files::AppFiles;
use crate::config::{AppConfig, Config};
use crate::models::{models_of_config, unusable_models};
use crate::source::{AppOrigin, AppSource, CatalogReport, ComponentDetail, RestoreError};

/// The apps of another source, with their settings from a configuration.
pub(crate) struct ConfiguredApps<S> {
    source: S,
    settings: LiveAppSettings,
    models: Arc<dyn ModelResolver>,
}

/// The settings of apps in the configuration in force. Clones share them.
#[derive(Clone)]
pub(crate) struct LiveAppSettings {
    catalog: Arc<dyn CatalogSource>,
    current: Arc<ArcSwap<SettingsTable>>,
    /// The configuration in force.
    config: Arc<ArcSwap<Config>>,
}

struct SettingsTable {
    /// Settings of apps that do not have specific settings.
    defaults: ResolvedConfig,
    apps: BTreeMap<String, ResolvedConfig>,
}

/// The settings of an app, merged with the defaults.
struct ResolvedConfig {
    config: AppConfig,
    compaction: Option<Arc<ConfiguredCompaction>>,
}

impl ResolvedConfig {
    fn settings(&self, catalog: &dyn CatalogSource) -> AppSettings {
        self.config.settings(self.compaction.as_ref().and_then(|compaction| compaction.resolve(catalog.snapshot())))
    }
}

impl LiveAppSettings {
    /// Summarizers are looked up in `catalog`.
    pub(crate) fn new(config: &Config, catalog: Arc<dyn CatalogSource>) -> Self {
        let current = Arc::new(ArcSwap::from_pointee(SettingsTable::new(config, catalog.as_ref())));
        Self { catalog, current, config: Arc::new(ArcSwap::from_pointee(config.clone())) }
    }

    /// Replaces the settings. Runs keep those that they have started with.
    pub(crate) fn replace(&self, config: &Config) {
        self.current.store(Arc::new(SettingsTable::new(config, self.catalog.as_ref())));
        self.set_config(config);
    }

    /// Replaces the configuration and keeps the settings of apps: compactions remember that a summarizer is a
    /// component's.
    pub(crate) fn set_config(&self, config: &Config) {
        self.config.store(Arc::new(config.clone()));
    }
}

impl SettingsTable {
    fn new(config: &Config, catalog: &dyn CatalogSource) -> Self {
        let compaction = |key: &str, config: &AppConfig| {
            let settings = config.compaction.clone()?;
            Some(Arc::new(ConfiguredCompaction::new(format!("{key}.compaction"), settings, catalog.snapshot())))
        };
        let app_defaults = &config.app_defaults;
        let defaults =
            ResolvedConfig { compaction: compaction("app_defaults", app_defaults), config: app_defaults.clone() };
        let apps = config.apps.iter().map(|(name, app)| {
            let compaction = compaction(&format!("apps.{name}"), app).or_else(|| defaults.compaction.clone());
            (name.clone(), ResolvedConfig { config: app.with_defaults(app_defaults), compaction })
        });
        Self { apps: apps.collect(), defaults }
    }
}

impl<S: AppSource> ConfiguredApps<S> {
    /// Applies `settings` to the apps of `source`. The report warns of models of the configuration that
    /// are not in `models`.
    pub(crate) fn new(source: S, settings: LiveAppSettings, models: Arc<dyn ModelResolver>) -> Self {
        Self { source, settings, models }
    }
}

#[async_trait]
impl<S: AppSource> AppSource for ConfiguredApps<S> {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        let app = self.source.app(name)?;
        let settings = self.settings.current.load();
        let resolved = settings.apps.get(name).unwrap_or(&settings.defaults);
        if resolved.config == AppConfig::default() {
            return Some(app);
        }
        Some(Arc::new(App::clone(&app).with_settings(resolved.settings(self.settings.catalog.as_ref()))))
    }

    fn app_names(&self) -> Vec<String> {
        self.source.app_names()
    }

    fn app_origin(&self, name: &str) -> AppOrigin {
        self.source.app_origin(name)
    }

    fn loading(&self) -> Vec<String> {
        self.source.loading()
    }

    fn report(&self) -> CatalogReport {
        let mut report = self.source.report();
        // A component that is loading may have the summarizer.
        if self.loading().is_empty() {
            let items = self.settings.catalog.snapshot().resolver;
            let named = models_of_config(&self.settings.config.load(), items.as_ref());
            let unusable = unusable_models(named, self.models.as_ref());
            report.warnings.extend(unusable.iter().map(ToString::to_string));
        }
        report
    }

    fn component(&self, name: &str) -> Option<ComponentDetail> {
        self.source.component(name)
    }

    fn restore_component(&self, name: &str, revision: &str) -> Result<(), RestoreError> {
        self.source.restore_component(name, revision)
    }

    async fn inspect_revision(&self, name: &str, revision: &str) -> Result<Inspection, RestoreError> {
        self.source.inspect_revision(name, revision).await
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.source.changes()
    }

    fn items(&self) -> Option<Arc<dyn ItemResolver>> {
        self.source.items()
    }

    fn app_files(&self) -> Option<AppFiles> {
        self.source.app_files()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use hatchery_core::{Agent, AgentKind, Model, ModelError, ModelErrorKind, ToolExecution};
    use hatchery_engine::compaction::{SlidingWindow, SummarizerRef};
    use hatchery_engine::{CatalogSnapshot, RunSettings, StaticCatalog};

    use super::*;

    struct Apps;

    impl AppSource for Apps {
        fn app(&self, name: &str) -> Option<Arc<App>> {
            let agent = || Agent::new("root", "", AgentKind::Sequential);
            self.app_names().iter().any(|known| known == name).then(|| Arc::new(App::new(name, agent()).unwrap()))
        }

        fn app_names(&self) -> Vec<String> {
            vec!["dice".into(), "trip".into()]
        }

        fn report(&self) -> CatalogReport {
            CatalogReport { generation: 7, ..CatalogReport::default() }
        }
    }

    fn apps(yaml: &str) -> ConfiguredApps<Apps> {
        let config = Config::parse(yaml, Path::new("hatchery.yaml")).unwrap();
        let catalog = Arc::new(CatalogSnapshot::fixed(StaticCatalog::default()));
        ConfiguredApps::new(Apps, LiveAppSettings::new(&config, catalog), Arc::new(NoModels))
    }

    struct NoModels;

    impl ModelResolver for NoModels {
        fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
            Err(ModelError::new(ModelErrorKind::UnknownModel, name, "there is none"))
        }
    }

    #[test]
    fn an_app_s_own_settings_take_precedence_over_the_defaults() {
        let apps = apps(
            "app_defaults: {max_llm_calls: 9, tool_execution: sequential}\n\
             apps: {dice: {resumable: true, max_llm_calls: 3, max_tokens: 100, max_events: 7, max_run_bytes: 1 MiB,\n    \
             max_rounds: 5, max_model_retries: 4, max_run_time: 2 min, save_input_blobs_as_artifacts: true}}\n",
        );
        let dice = &apps.app("dice").unwrap().settings;
        assert!(dice.resumable);
        let sequential = Some(ToolExecution::Sequential);
        let expected = RunSettings {
            max_llm_calls: Some(3),
            max_tokens: Some(100),
            max_events: Some(7),
            max_run_bytes: Some(1 << 20),
            max_rounds: Some(5),
            max_model_retries: Some(4),
            max_run_time: Some(Duration::from_secs(120)),
            tool_execution: sequential,
            save_input_blobs_as_artifacts: Some(true),
        };
        assert_eq!(dice.run, expected);
        let trip = &apps.app("trip").unwrap().settings;
        assert!(!trip.resumable);
        let expected = RunSettings { max_llm_calls: Some(9), tool_execution: sequential, ..RunSettings::default() };
        assert_eq!(trip.run, expected);
    }

    #[test]
    fn apps_without_settings_are_unchanged() {
        let apps = apps("apps: {trip: {tool_execution: parallel}}");
        assert_eq!(apps.app("dice").unwrap().settings.run, RunSettings::default());
        assert_eq!(apps.app("trip").unwrap().settings.run.tool_execution, Some(ToolExecution::Parallel));
        assert!(apps.app("nobody").is_none());
        assert_eq!((apps.app_names().len(), apps.report().generation), (2, 7));
    }

    #[test]
    fn an_app_s_own_compaction_replaces_the_default() {
        let apps = apps(
            "app_defaults: {compaction: {interval: 9, overlap: 1}}\n\
             apps: {dice: {compaction: {token_threshold: 5, retention: 2, summarizer: gemini-2.5-flash}}}\n",
        );
        let compaction = |name| apps.app(name).unwrap().settings.compaction.clone().unwrap();
        let nine = SlidingWindow { interval: std::num::NonZeroU32::new(9).unwrap(), overlap: 1 };
        assert_eq!((compaction("trip").sliding, compaction("trip").tail), (Some(nine), None));
        let dice = compaction("dice");
        assert_eq!((dice.sliding, dice.tail.map(|tail| tail.token_threshold)), (None, Some(5)));
        assert!(matches!(dice.summarizer, SummarizerRef::Model(model) if model.name() == "gemini-2.5-flash"));
    }

    #[test]
    fn a_model_of_the_configuration_that_cannot_be_used_is_a_warning() {
        let warnings = |yaml| apps(yaml).report().warnings;
        assert_eq!(
            warnings(
                "app_defaults: {compaction: {interval: 9, overlap: 1, summarizer: gemni}}\n\
                 apps: {dice: {compaction: {interval: 3, overlap: 1, summarizer: gemni}}}\n"
            ),
            ["model `gemni`: there is none (used by `app_defaults.compaction`, `apps.dice.compaction`)"]
        );
        assert_eq!(
            warnings("models: {fallback: {a: [b], c: [b]}}"),
            ["model `b`: there is none (used by `models.fallback`)"]
        );
        assert_eq!(warnings("app_defaults: {compaction: {interval: 9, overlap: 1}}"), [""; 0]);
    }
}
