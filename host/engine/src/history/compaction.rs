//! Compaction: summaries replace older events of a session in prompts, to limit the size of prompts. The events stay in
//! the log, and only prompts are affected.
//!
//! A turn never waits for a compaction. A background task creates the summary, after a run or before a model call with
//! a large prompt, and appends it as an event. Later prompts contain it. Each session has at most one compaction in
//! progress. A failed compaction changes nothing and is tried again on the next occasion. Several hosts may compact the
//! same session concurrently: overlapping summaries are both visible, and a summary within another is hidden.

mod background;
mod config;
mod effective_history;
mod range;
mod resolve;
mod size;
mod summarizer;
mod window;

pub(crate) use background::Compactions;
pub use config::{CompactionConfig, CompactionError, CompactionSettings, SlidingWindow, SummarizerRef, TailRetention};
pub(crate) use effective_history::{HistoryItem, effective_history};
pub use resolve::ConfiguredCompaction;
pub(crate) use size::PromptSize;
pub use summarizer::LlmSummarizer;

use hatchery_core::sync::MutexExt;

use crate::agents::Frame;

/// Starts a compaction if the prompt is too large. It does not change this prompt, but later ones.
pub(crate) fn before_model_call(frame: &Frame) {
    let Some((config, compactions)) = enabled(frame) else { return };
    if let Some(tail) = config.tail {
        let events = frame.invocation.events();
        let mut views = frame.views.lock_unpoisoned();
        views.size.read(&events);
        views.size.prompt_sent();
        if views.size.is_over(tail.token_threshold) {
            compactions.start(frame, config, || window::tail(&events, tail));
        }
    }
}

/// Starts a compaction after a run if one is due. It does not matter whether the run failed.
pub(crate) fn after_run(frame: &Frame) {
    let Some((config, compactions)) = enabled(frame) else { return };
    let events = frame.invocation.events();
    if let Some(sliding) = config.sliding
        && compactions.start(frame, config, || window::sliding(&events, sliding))
    {
        return;
    }
    if let Some(tail) = config.tail {
        let mut views = frame.views.lock_unpoisoned();
        views.size.read(&events);
        if views.size.is_over(tail.token_threshold) {
            compactions.start(frame, config, || window::tail(&events, tail));
        }
    }
}

fn enabled(frame: &Frame) -> Option<(&CompactionConfig, &Compactions)> {
    Some((frame.app.settings.compaction.as_ref()?, frame.compactions.as_ref()?))
}

#[cfg(test)]
mod tests;
