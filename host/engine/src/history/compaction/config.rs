//! When an app's sessions are compacted, and by whom.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use hatchery_core::{
    AgentKind, ItemKind, ItemResolver, ModelError, ModelErrorKind, ModelRef, ResolveError, RunError, Summarizer,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::LlmSummarizer;
use crate::app::App;

/// How an app's sessions are compacted. Both ways may be on; then the sliding window comes first.
#[derive(Debug, Clone, Default)]
pub struct CompactionConfig {
    /// After so many runs.
    pub sliding: Option<SlidingWindow>,
    /// When prompts grow too large.
    pub tail: Option<TailRetention>,
    /// Who makes the summaries.
    pub summarizer: SummarizerRef,
}

/// After each `interval` runs, summarizes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    /// How many new invocations there must be.
    pub interval: NonZeroU32,
    /// How many of the invocations before them the summary takes in once more.
    pub overlap: u32,
}

/// When a prompt is too large, summarizes all but the newest events. The new summary takes the place of the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailRetention {
    /// Most tokens of a prompt: as the model reports them, else a quarter of the bytes of its texts.
    pub token_threshold: u64,
    /// How many of the newest events stay as they are.
    pub retention: usize,
}

/// Who makes the summaries of an app.
#[derive(Clone, Default)]
pub enum SummarizerRef {
    /// The model of the app's root agent; where it has none, of the first agent below it that has one.
    #[default]
    Default,
    /// This model.
    Model(ModelRef),
    /// This code.
    Custom(Arc<dyn Summarizer>),
}

impl SummarizerRef {
    /// The summarizer for an app.
    pub(super) fn of(&self, app: &App) -> Result<Arc<dyn Summarizer>, RunError> {
        match self {
            Self::Custom(summarizer) => Ok(summarizer.clone()),
            Self::Model(model) => Ok(Arc::new(LlmSummarizer::new(model.clone()))),
            Self::Default => {
                let model = app.tree.iter().find_map(|(_, agent)| match &agent.kind {
                    AgentKind::Llm(llm) => llm.model.clone(),
                    AgentKind::Custom(custom) => custom.model.clone(),
                    AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => None,
                });
                let Some(model) = model else {
                    let message =
                        "no agent of the app has a model for summaries; name one as the compaction's `summarizer`";
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

/// [`CompactionConfig`] as a config file has it.
///
/// ```yaml
/// interval: 10              # the sliding window: after ten runs, with two of the ones before
/// overlap: 2
/// token_threshold: 50000    # tail retention: when a prompt is larger, but for the newest twenty events
/// retention: 20
/// summarizer: gemini-2.5-flash   # or a component's summarizer; without it, the root agent's model
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
    /// The name of a component's summarizer, or else of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summarizer: Option<String>,
}

/// What is wrong with [`CompactionSettings`], or with a summarizer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompactionError {
    /// One of two keys that belong together is missing.
    #[error("`{given}` needs `{missing}` beside it")]
    Half {
        /// The key that is there.
        given: &'static str,
        /// The key that is not.
        missing: &'static str,
    },
    /// A number that makes no sense.
    #[error("`{key}` is {value}; it must be {bound}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// Its value.
        value: i64,
        /// What is possible: `at least 1`.
        bound: String,
    },
    /// Nothing says when to compact.
    #[error("nothing says when; give `interval` and `overlap`, or `token_threshold` and `retention`, or both")]
    Never,
    /// The summarizer cannot be used.
    #[error("`summarizer`: {0}")]
    Summarizer(#[from] ResolveError),
    /// A prompt without the conversation.
    #[error("the prompt for summaries has no `{{conversation_history}}`, where the conversation goes; add it")]
    NoHistory,
}

impl CompactionSettings {
    /// What the settings mean. The summarizer is looked up in `lookup`; a name that is not there is a model's.
    ///
    /// # Errors
    /// When a key is missing or its value makes no sense, or the summarizer is there but cannot be used.
    pub fn resolve(&self, lookup: &dyn ItemResolver) -> Result<CompactionConfig, CompactionError> {
        let (sliding, tail) = self.occasions()?;
        let summarizer = match &self.summarizer {
            None => SummarizerRef::Default,
            Some(name) => summarizer(name, lookup)?,
        };
        Ok(CompactionConfig { sliding, tail, summarizer })
    }

    /// Checks all but the summarizer, which may come later.
    ///
    /// # Errors
    /// When a key is missing or its value makes no sense.
    pub fn check(&self) -> Result<(), CompactionError> {
        self.occasions().map(|_| ())
    }

    /// When to compact.
    fn occasions(&self) -> Result<(Option<SlidingWindow>, Option<TailRetention>), CompactionError> {
        match (self.sliding()?, self.tail()?) {
            (None, None) => Err(CompactionError::Never),
            occasions => Ok(occasions),
        }
    }

    fn sliding(&self) -> Result<Option<SlidingWindow>, CompactionError> {
        let given = pair(("interval", self.interval), ("overlap", self.overlap))?;
        let Some((interval, overlap)) = given else { return Ok(None) };
        let interval = NonZeroU32::new(number("interval", interval, 1)?).unwrap_or(NonZeroU32::MIN);
        Ok(Some(SlidingWindow { interval, overlap: number("overlap", overlap, 0)? }))
    }

    fn tail(&self) -> Result<Option<TailRetention>, CompactionError> {
        let given = pair(("token_threshold", self.token_threshold), ("retention", self.retention))?;
        let Some((token_threshold, retention)) = given else { return Ok(None) };
        let token_threshold = number("token_threshold", token_threshold, 1)?;
        Ok(Some(TailRetention { token_threshold, retention: number("retention", retention, 1)? }))
    }
}

fn summarizer(name: &str, lookup: &dyn ItemResolver) -> Result<SummarizerRef, CompactionError> {
    match lookup.summarizer(name) {
        Ok(summarizer) => Ok(SummarizerRef::Custom(summarizer)),
        Err(ResolveError::Unknown { kind: ItemKind::Summarizer, .. }) => {
            Ok(SummarizerRef::Model(ModelRef::Named(name.into())))
        }
        Err(error) => Err(error.into()),
    }
}

type Key = (&'static str, Option<i64>);

/// Both or neither.
fn pair(first: Key, second: Key) -> Result<Option<(i64, i64)>, CompactionError> {
    match (first, second) {
        ((_, Some(first)), (_, Some(second))) => Ok(Some((first, second))),
        ((_, None), (_, None)) => Ok(None),
        ((given, Some(_)), (missing, None)) | ((missing, None), (given, Some(_))) => {
            Err(CompactionError::Half { given, missing })
        }
    }
}

/// A number of the type that it is kept in.
fn number<T: TryFrom<i64>>(key: &'static str, value: i64, least: i64) -> Result<T, CompactionError> {
    if value < least {
        return Err(CompactionError::OutOfRange { key, value, bound: format!("at least {least}") });
    }
    T::try_from(value).map_err(|_| CompactionError::OutOfRange { key, value, bound: format!("at most {}", u32::MAX) })
}
