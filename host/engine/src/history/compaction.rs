//! Compaction: a summary takes the place of a session's older events in prompts, so that they stay small. The events themselves stay in
//! the log, and everything but prompts still sees them.
//!
//! It never stands in a turn's way. After a run, and before a model call whose prompt has grown too large, a task of its own makes the
//! summary and appends it as an event; prompts show it from then on. One at a time per session; one that fails changes nothing, and
//! the next occasion tries again. Two hosts may do the same at the same time: summaries that overlap are both shown, and one inside
//! another is not.

mod background;
mod config;
mod configured;
mod cut;
mod shown;
mod size;
mod summarizer;
mod window;

pub(crate) use background::Compactions;
pub use config::{CompactionConfig, CompactionError, CompactionSettings, SlidingWindow, SummarizerRef, TailRetention};
pub use configured::ConfiguredCompaction;
pub(crate) use shown::{Shown, shown};
pub(crate) use size::PromptSize;
pub use summarizer::LlmSummarizer;

use hatchery_core::sync::MutexExt;

use crate::agents::Frame;

/// Starts a compaction when the prompt that is about to be sent is too large. The prompts after it will be smaller.
pub(crate) fn before_model_call(frame: &Frame) {
    let Some((config, compactions)) = wanted(frame) else { return };
    if let Some(tail) = config.tail {
        let events = frame.invocation.events();
        let mut views = frame.views.lock_unpoisoned();
        views.size.read(&events);
        views.size.asked();
        if views.size.is_over(tail.token_threshold) {
            compactions.start(frame, config, || window::tail(&events, tail));
        }
    }
}

/// Starts the compaction that is due after a run, whether or not it failed.
pub(crate) fn after_run(frame: &Frame) {
    let Some((config, compactions)) = wanted(frame) else { return };
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

fn wanted(frame: &Frame) -> Option<(&CompactionConfig, &Compactions)> {
    Some((frame.app.settings.compaction.as_ref()?, frame.compactions.as_ref()?))
}

#[cfg(test)]
mod tests;
