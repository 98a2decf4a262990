//! Settings of one app: `apps.NAME`.

use std::fmt;
use std::time::Duration;

use hatchery_core::ToolExecution;
use hatchery_engine::compaction::{CompactionConfig, CompactionSettings};
use hatchery_engine::{AppSettings, RunSettings};
use hatchery_wasm::limits::units;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::QuotaOverrides;
use crate::byte_size::ByteSize;

/// Settings of an app, or defaults for all apps. `None` means not set. Displayed as `key: value, …` with the keys that
/// are set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AppConfig {
    /// True if a run pauses at a call whose result arrives later, and resumes as the same invocation. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumable: Option<bool>,
    /// Maximum number of model calls per run. Default: 500; 0 means unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_llm_calls: Option<u32>,
    /// Maximum number of tokens of all model calls of a run. Default: 0, unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Maximum number of stored events per run. Default: 2,000; 0 means unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u32>,
    /// Maximum size of the JSON of a run's events. Default: 32 MiB; 0 means unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_bytes: Option<ByteSize>,
    /// Maximum number of rounds of loop agents per run. Default: 10,000; 0 means unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// Maximum number of requests to models that are sent again after an error, per run. Default: 100; 0 means
    /// unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_model_retries: Option<u32>,
    /// Maximum wall time of a run. Default: 1 h; 0 s means unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_time: Option<RunTime>,
    /// Quotas that differ from `quotas`.
    #[serde(skip_serializing_if = "QuotaOverrides::is_empty")]
    pub quotas: QuotaOverrides,
    /// True if files in user messages are saved as artifacts and only referenced in the session. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save_input_blobs_as_artifacts: Option<bool>,
    /// Default: parallel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_execution: Option<ToolExecutionConfig>,
    /// When and by which model older events are summarized in prompts. `None`: never.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "compaction")]
    pub compaction: Option<CompactionSettings>,
    /// The events that are added to the memory of users.
    #[serde(skip_serializing_if = "MemoryConfig::is_empty")]
    pub memory: MemoryConfig,
}

/// The events that are added to the memory of users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// When the events of sessions are added. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add: Option<MemoryAddition>,
}

impl MemoryConfig {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// When the events of sessions are added to the memory of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryAddition {
    /// After each run: the events of the run.
    AfterRun,
    /// When a client closes the session: all its events.
    OnClose,
    /// Only by components and clients.
    Never,
}

/// The keys of compaction settings, for the JSON Schema.
const COMPACTION_KEYS: &[&str] = &["interval", "overlap", "token_threshold", "retention", "summarizer"];

/// Reads compaction settings and validates them, so that an error has a position in the file.
fn compaction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CompactionSettings>, D::Error> {
    deserializer.deserialize_struct("CompactionSettings", COMPACTION_KEYS, CompactionVisitor).map(Some)
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

/// A wall time, such as `90 s` or `10 min`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct RunTime(#[serde(deserialize_with = "units::deserialize_duration")] pub Duration);

impl Serialize for RunTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{} s", self.0.as_secs()))
    }
}

/// The execution of the tool calls of one model response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolExecutionConfig {
    Parallel,
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
    /// Returns these settings, with `defaults` for the settings that are not set.
    pub(crate) fn with_defaults(&self, defaults: &Self) -> Self {
        Self {
            resumable: self.resumable.or(defaults.resumable),
            max_llm_calls: self.max_llm_calls.or(defaults.max_llm_calls),
            max_tokens: self.max_tokens.or(defaults.max_tokens),
            max_events: self.max_events.or(defaults.max_events),
            max_run_bytes: self.max_run_bytes.or(defaults.max_run_bytes),
            max_rounds: self.max_rounds.or(defaults.max_rounds),
            max_model_retries: self.max_model_retries.or(defaults.max_model_retries),
            max_run_time: self.max_run_time.or(defaults.max_run_time),
            quotas: self.quotas.with_defaults(&defaults.quotas),
            save_input_blobs_as_artifacts: self
                .save_input_blobs_as_artifacts
                .or(defaults.save_input_blobs_as_artifacts),
            tool_execution: self.tool_execution.or(defaults.tool_execution),
            compaction: self.compaction.as_ref().or(defaults.compaction.as_ref()).cloned(),
            memory: MemoryConfig { add: self.memory.add.or(defaults.memory.add) },
        }
    }

    /// Converts these settings for the engine, with the compaction that they resolve to.
    pub(crate) fn settings(&self, compaction: Option<CompactionConfig>) -> AppSettings {
        AppSettings {
            resumable: self.resumable.unwrap_or_default(),
            run: RunSettings {
                max_llm_calls: self.max_llm_calls,
                max_tokens: self.max_tokens,
                max_events: self.max_events,
                max_run_bytes: self.max_run_bytes.map(|size| size.bytes() as u64),
                max_rounds: self.max_rounds,
                max_model_retries: self.max_model_retries,
                max_run_time: self.max_run_time.map(|time| time.0),
                tool_execution: self.tool_execution.map(Into::into),
                save_input_blobs_as_artifacts: self.save_input_blobs_as_artifacts,
            },
            compaction,
            memory_addition: match self.memory.add {
                Some(MemoryAddition::AfterRun) => hatchery_engine::MemoryAddition::AfterRun,
                Some(MemoryAddition::OnClose) => hatchery_engine::MemoryAddition::OnClose,
                Some(MemoryAddition::Never) | None => hatchery_engine::MemoryAddition::Never,
            },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_displayed_as_they_are_written() {
        let config = AppConfig {
            resumable: Some(true),
            max_tokens: Some(100),
            max_run_bytes: Some(ByteSize(1 << 20)),
            max_run_time: Some(RunTime(Duration::from_secs(90))),
            tool_execution: Some(ToolExecutionConfig::Sequential),
            ..AppConfig::default()
        };
        assert_eq!(
            config.to_string(),
            "resumable: true, max_tokens: 100, max_run_bytes: 1048576, max_run_time: 90 s, tool_execution: sequential"
        );
        assert_eq!(AppConfig::default().to_string(), "");
    }
}
