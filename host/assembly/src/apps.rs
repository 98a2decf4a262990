//! Settings of apps: what `hatchery.yaml` says of them, and an [`AppSource`] whose apps have them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use hatchery_core::ToolExecution;
use hatchery_engine::compaction::{CompactionConfig, CompactionSettings, ConfiguredCompaction};
use hatchery_engine::plugins::config::Loaded;
use hatchery_engine::{App, AppSettings, RunSettings};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::byte_size::ByteSize;
use crate::config::Config;
use crate::quotas::QuotaOverrides;
use crate::source::{AppSource, CatalogReport};

/// Settings of an app, or of all. It prints as `key: value, …`, with the keys that are set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AppConfig {
    /// Whether a run pauses at a call whose result comes later, and goes on as the same invocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumable: Option<bool>,
    /// Most model calls of a run, 500 by default; 0 is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_llm_calls: Option<u32>,
    /// Most tokens of all model calls of a run together; 0, the default, is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Most stored events of a run, 2,000 by default; 0 is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u32>,
    /// Most bytes of the JSON of a run's events, 32 MiB by default; 0 is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_bytes: Option<ByteSize>,
    /// Quotas that differ from `quotas`.
    #[serde(skip_serializing_if = "QuotaOverrides::is_empty")]
    pub quotas: QuotaOverrides,
    /// Whether files in the user's message are saved as artifacts, and only named in the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save_input_blobs_as_artifacts: Option<bool>,
    /// Whether the tool calls of one model answer run at the same time, which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_execution: Option<ToolExecutionConfig>,
    /// When older events of the sessions are summarized in prompts, and by whom; never, when left out.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "compaction")]
    pub compaction: Option<CompactionSettings>,
}

/// Settings of compaction that make sense; what is wrong has its place in the file.
fn compaction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CompactionSettings>, D::Error> {
    deserializer.deserialize_map(CompactionVisitor).map(Some)
}

struct CompactionVisitor;

impl<'de> Visitor<'de> for CompactionVisitor {
    type Value = CompactionSettings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping that says when to compact")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CompactionSettings, A::Error> {
        let settings = CompactionSettings::deserialize(MapAccessDeserializer::new(map))?;
        settings.check().map_err(de::Error::custom)?;
        Ok(settings)
    }
}

/// How the tool calls of one model answer run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolExecutionConfig {
    /// At the same time.
    Parallel,
    /// One after the other.
    Sequential,
}

impl From<ToolExecutionConfig> for ToolExecution {
    fn from(config: ToolExecutionConfig) -> Self {
        match config {
            ToolExecutionConfig::Parallel => Self::Parallel,
            ToolExecutionConfig::Sequential => Self::Sequential,
        }
    }
}

impl AppConfig {
    /// These settings, and for what they leave open those of `defaults`.
    fn over(&self, defaults: &Self) -> Self {
        Self {
            resumable: self.resumable.or(defaults.resumable),
            max_llm_calls: self.max_llm_calls.or(defaults.max_llm_calls),
            max_tokens: self.max_tokens.or(defaults.max_tokens),
            max_events: self.max_events.or(defaults.max_events),
            max_run_bytes: self.max_run_bytes.or(defaults.max_run_bytes),
            quotas: self.quotas.over(&defaults.quotas),
            save_input_blobs_as_artifacts: self
                .save_input_blobs_as_artifacts
                .or(defaults.save_input_blobs_as_artifacts),
            tool_execution: self.tool_execution.or(defaults.tool_execution),
            compaction: self.compaction.as_ref().or(defaults.compaction.as_ref()).cloned(),
        }
    }

    fn settings(&self, compaction: Option<CompactionConfig>) -> AppSettings {
        AppSettings {
            resumable: self.resumable.unwrap_or_default(),
            run: RunSettings {
                max_llm_calls: self.max_llm_calls,
                max_tokens: self.max_tokens,
                max_events: self.max_events,
                max_run_bytes: self.max_run_bytes.map(|size| size.bytes() as u64),
                tool_execution: self.tool_execution.map(Into::into),
                save_input_blobs_as_artifacts: self.save_input_blobs_as_artifacts,
            },
            compaction,
        }
    }
}

impl fmt::Display for AppConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(Value::Object(keys)) = serde_json::to_value(self) else { return Err(fmt::Error) };
        for (index, (key, value)) in keys.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            match value {
                Value::String(word) => write!(f, "{comma}{key}: {word}")?,
                other => write!(f, "{comma}{key}: {other}")?,
            }
        }
        Ok(())
    }
}

/// The apps of another source, each with the settings that a configuration has for it.
pub struct ConfiguredApps<S> {
    source: S,
    loaded: Box<dyn Fn() -> Loaded + Send + Sync>,
    /// The settings of apps that have none of their own.
    defaults: Chosen,
    apps: BTreeMap<String, Chosen>,
}

/// All settings of an app.
struct Chosen {
    config: AppConfig,
    compaction: Option<Arc<ConfiguredCompaction>>,
}

impl Chosen {
    fn settings(&self, loaded: impl Fn() -> Loaded) -> AppSettings {
        self.config.settings(self.compaction.as_ref().and_then(|compaction| compaction.resolve(loaded())))
    }
}

impl<S: AppSource> ConfiguredApps<S> {
    /// The apps of `source` with their settings in `config`; `loaded` tells what is loaded whenever it is asked, since summarizers are
    /// found there.
    pub fn new(source: S, config: &Config, loaded: impl Fn() -> Loaded + Send + Sync + 'static) -> Self {
        let compaction = |key: &str, config: &AppConfig| {
            let settings = config.compaction.clone()?;
            Some(Arc::new(ConfiguredCompaction::new(format!("{key}.compaction"), settings, loaded())))
        };
        let config_of_all = &config.app_defaults;
        let defaults = Chosen { compaction: compaction("app_defaults", config_of_all), config: config_of_all.clone() };
        let apps = config.apps.iter().map(|(name, own)| {
            let compaction = compaction(&format!("apps.{name}"), own).or_else(|| defaults.compaction.clone());
            (name.clone(), Chosen { config: own.over(config_of_all), compaction })
        });
        Self { apps: apps.collect(), source, defaults, loaded: Box::new(loaded) }
    }
}

impl<S: AppSource> AppSource for ConfiguredApps<S> {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        let app = self.source.app(name)?;
        let chosen = self.apps.get(name).unwrap_or(&self.defaults);
        if chosen.config == AppConfig::default() {
            return Some(app);
        }
        Some(Arc::new(App::clone(&app).with_settings(chosen.settings(&self.loaded))))
    }

    fn app_names(&self) -> Vec<String> {
        self.source.app_names()
    }

    fn loading(&self) -> Vec<String> {
        self.source.loading()
    }

    fn report(&self) -> CatalogReport {
        self.source.report()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hatchery_core::{Agent, AgentKind};
    use hatchery_engine::StaticCatalog;
    use hatchery_engine::compaction::{SlidingWindow, SummarizerRef};

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
        ConfiguredApps::new(Apps, &config, || (1, Arc::new(StaticCatalog::default())))
    }

    #[test]
    fn an_app_has_its_own_settings_and_those_of_all_for_the_rest() {
        let apps = apps(
            "app_defaults: {max_llm_calls: 9, tool_execution: sequential}\n\
             apps: {dice: {resumable: true, max_llm_calls: 3, max_tokens: 100, max_events: 7, max_run_bytes: 1 MiB,\n    \
             save_input_blobs_as_artifacts: true}}\n",
        );
        let dice = &apps.app("dice").unwrap().settings;
        assert!(dice.resumable);
        let sequential = Some(ToolExecution::Sequential);
        let expected = RunSettings {
            max_llm_calls: Some(3),
            max_tokens: Some(100),
            max_events: Some(7),
            max_run_bytes: Some(1 << 20),
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
    fn without_settings_apps_are_as_they_are() {
        let apps = apps("apps: {trip: {tool_execution: parallel}}");
        assert_eq!(apps.app("dice").unwrap().settings.run, RunSettings::default());
        assert_eq!(apps.app("trip").unwrap().settings.run.tool_execution, Some(ToolExecution::Parallel));
        assert!(apps.app("nobody").is_none());
        assert_eq!((apps.app_names().len(), apps.report().generation), (2, 7));
    }

    #[test]
    fn an_app_s_own_compaction_takes_the_place_of_that_of_all() {
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
    fn settings_are_shown_as_they_are_written() {
        let config = AppConfig {
            resumable: Some(true),
            max_tokens: Some(100),
            max_run_bytes: Some(ByteSize(1 << 20)),
            tool_execution: Some(ToolExecutionConfig::Sequential),
            ..AppConfig::default()
        };
        assert_eq!(
            config.to_string(),
            "resumable: true, max_tokens: 100, max_run_bytes: 1048576, tool_execution: sequential"
        );
        assert_eq!(AppConfig::default().to_string(), "");
    }
}
