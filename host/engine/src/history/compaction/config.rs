//! Compaction settings of an app.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use hatchery_core::{
    AgentKind, AgentTree, ItemKind, ItemResolver, ModelError, ModelErrorKind, ModelRef, ResolveError, RunError,
    Summarizer,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::LlmSummarizer;

/// Compaction of an app's sessions. If both strategies are set, the sliding window is tried first.
#[derive(Debug, Clone, Default)]
pub struct CompactionConfig {
    /// Compacts after a number of runs.
    pub sliding: Option<SlidingWindow>,
    /// Compacts when prompts are too large.
    pub tail: Option<TailRetention>,
    /// Creates the summaries.
    pub summarizer: SummarizerRef,
}

/// Summarizes every `interval` runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    /// The number of new invocations per summary.
    pub interval: NonZeroU32,
    /// The number of earlier invocations that the summary includes again.
    pub overlap: u32,
}

/// Summarizes all but the newest events when a prompt is too large. The new summary replaces the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailRetention {
    /// The maximum number of tokens per prompt, as reported by the model, or estimated as a quarter of the bytes of the
    /// texts.
    pub token_threshold: u64,
    /// The number of newest events that are not summarized.
    pub retention: usize,
}

/// The summarizer of an app.
#[derive(Clone, Default)]
pub enum SummarizerRef {
    /// The model of the root agent, or of the first agent in the tree that has one.
    #[default]
    Default,
    /// An [`LlmSummarizer`] with this model.
    Model(ModelRef),
    /// A custom summarizer.
    Custom(Arc<dyn Summarizer>),
}

impl SummarizerRef {
    /// Returns the summarizer for an app.
    pub(super) fn for_agents(&self, tree: &AgentTree) -> Result<Arc<dyn Summarizer>, RunError> {
        match self {
            Self::Custom(summarizer) => Ok(summarizer.clone()),
            Self::Model(model) => Ok(Arc::new(LlmSummarizer::new(model.clone()))),
            Self::Default => {
                let model = tree.iter().find_map(|(_, agent)| match &agent.kind {
                    AgentKind::Llm(llm) => llm.model.clone(),
                    AgentKind::Custom(custom) => custom.model.clone(),
                    AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => None,
                });
                let Some(model) = model else {
                    let message =
                        "no agent of the app has a model; set `summarizer` of the compaction to the name of a model";
                    return Err(ModelError::new(ModelErrorKind::UnknownModel, "none", message).into());
                };
                Ok(Arc::new(LlmSummarizer::new(model)))
            }
        }
    }
}

impl fmt::Debug for SummarizerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("Default"),
            Self::Model(model) => f.debug_tuple("Model").field(&model.name()).finish(),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// [`CompactionConfig`] in a configuration file.
///
/// ```yaml
/// interval: 10              # sliding window: after ten runs, with two earlier ones
/// overlap: 2
/// token_threshold: 50000    # tail retention: when a prompt is larger, all but the newest twenty events
/// retention: 20
/// summarizer: gemini-2.5-flash   # or a component's summarizer; default: the root agent's model
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompactionSettings {
    /// See [`SlidingWindow::interval`]; at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<i64>,
    /// See [`SlidingWindow::overlap`]; at least 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<i64>,
    /// See [`TailRetention::token_threshold`]; at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_threshold: Option<i64>,
    /// See [`TailRetention::retention`]; at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<i64>,
    /// The name of a component's summarizer or of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summarizer: Option<String>,
}

/// An error in [`CompactionSettings`] or in a summarizer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompactionError {
    /// One of two keys that are only valid together is missing.
    #[error("`{present}` requires `{missing}`")]
    MissingKey {
        /// The key that is set.
        present: &'static str,
        /// The key that is not set.
        missing: &'static str,
    },
    /// A number is out of range.
    #[error("`{key}` is {value}; it must be {bound}")]
    OutOfRange {
        /// The key of the setting.
        key: &'static str,
        /// The configured value.
        value: i64,
        /// The bound, such as `at least 1`.
        bound: String,
    },
    /// Neither strategy is configured.
    #[error("no strategy is set; set `interval` and `overlap`, or `token_threshold` and `retention`, or both")]
    NoStrategy,
    /// The summarizer cannot be used.
    #[error("`summarizer`: {0}")]
    Summarizer(#[from] ResolveError),
    /// The prompt has no placeholder for the conversation.
    #[error("the prompt for summaries has no placeholder `{{conversation_history}}`; add it")]
    NoHistory,
}

impl CompactionSettings {
    /// Resolves the settings. If `resolver` does not know the name of the summarizer, it is the name of a model.
    ///
    /// # Errors
    /// If a key is missing or out of range, or the summarizer exists but cannot be used.
    pub fn resolve(&self, resolver: &dyn ItemResolver) -> Result<CompactionConfig, CompactionError> {
        let (sliding, tail) = self.strategies()?;
        let summarizer = match &self.summarizer {
            None => SummarizerRef::Default,
            Some(name) => resolve_summarizer(name, resolver)?,
        };
        Ok(CompactionConfig { sliding, tail, summarizer })
    }

    /// Checks everything but the summarizer, whose component may not be loaded yet.
    ///
    /// # Errors
    /// If a key is missing or out of range.
    pub fn check(&self) -> Result<(), CompactionError> {
        self.strategies().map(|_| ())
    }

    fn strategies(&self) -> Result<(Option<SlidingWindow>, Option<TailRetention>), CompactionError> {
        match (self.sliding_window()?, self.tail_retention()?) {
            (None, None) => Err(CompactionError::NoStrategy),
            strategies => Ok(strategies),
        }
    }

    fn sliding_window(&self) -> Result<Option<SlidingWindow>, CompactionError> {
        let pair = both_or_neither(("interval", self.interval), ("overlap", self.overlap))?;
        let Some((interval, overlap)) = pair else { return Ok(None) };
        let interval = NonZeroU32::new(in_range("interval", interval, 1)?).unwrap_or(NonZeroU32::MIN);
        Ok(Some(SlidingWindow { interval, overlap: in_range("overlap", overlap, 0)? }))
    }

    fn tail_retention(&self) -> Result<Option<TailRetention>, CompactionError> {
        let pair = both_or_neither(("token_threshold", self.token_threshold), ("retention", self.retention))?;
        let Some((token_threshold, retention)) = pair else { return Ok(None) };
        let token_threshold = in_range("token_threshold", token_threshold, 1)?;
        Ok(Some(TailRetention { token_threshold, retention: in_range("retention", retention, 1)? }))
    }
}

fn resolve_summarizer(name: &str, resolver: &dyn ItemResolver) -> Result<SummarizerRef, CompactionError> {
    match resolver.summarizer(name) {
        Ok(summarizer) => Ok(SummarizerRef::Custom(summarizer)),
        Err(ResolveError::Unknown { kind: ItemKind::Summarizer, .. }) => {
            Ok(SummarizerRef::Model(ModelRef::Named(name.into())))
        }
        Err(error) => Err(error.into()),
    }
}

type Key = (&'static str, Option<i64>);

/// Returns two values that are only valid together.
fn both_or_neither(first: Key, second: Key) -> Result<Option<(i64, i64)>, CompactionError> {
    match (first, second) {
        ((_, Some(first)), (_, Some(second))) => Ok(Some((first, second))),
        ((_, None), (_, None)) => Ok(None),
        ((present, Some(_)), (missing, None)) | ((missing, None), (present, Some(_))) => {
            Err(CompactionError::MissingKey { present, missing })
        }
    }
}

/// Converts a number to its type and checks its lower bound.
fn in_range<T: TryFrom<i64>>(key: &'static str, value: i64, min: i64) -> Result<T, CompactionError> {
    if value < min {
        return Err(CompactionError::OutOfRange { key, value, bound: format!("at least {min}") });
    }
    T::try_from(value).map_err(|_| CompactionError::OutOfRange { key, value, bound: format!("at most {}", u32::MAX) })
}
