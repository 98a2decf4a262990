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

pub(crate) use background::{Compactions, PlannedCompaction};
pub use config::{CompactionConfig, CompactionError, CompactionSettings, SlidingWindow, SummarizerRef, TailRetention};
pub(crate) use effective_history::{HistoryItem, effective_history};
pub use resolve::ConfiguredCompaction;
pub(crate) use size::PromptSize;
pub use summarizer::LlmSummarizer;
use window::CompactionPlan;

use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{AgentTree, CallContext, Invocation};
use tokio_util::sync::CancellationToken;

use super::contents::PromptViews;
use crate::plugins::Plugins;

/// A session that may be compacted, as one run of it sees it.
pub(crate) struct CompactionTarget<'a, F> {
    pub(crate) config: &'a CompactionConfig,
    pub(crate) tree: &'a Arc<AgentTree>,
    pub(crate) invocation: &'a Invocation,
    /// See the event of a summary before it is stored.
    pub(crate) plugins: &'a Plugins,
    /// Creates the context of the summarizer. The token cancels the compaction.
    pub(crate) make_context: F,
}

impl Compactions {
    /// Starts a compaction if the prompt is too large. It does not change this prompt, but later ones.
    pub(crate) fn before_model_call<F>(&self, target: &CompactionTarget<'_, F>, views: &Mutex<PromptViews>)
    where
        F: Fn(&CancellationToken) -> CallContext,
    {
        if let Some(tail) = target.config.tail {
            let events = target.invocation.events();
            let mut views = views.lock_unpoisoned();
            views.size.read(&events);
            views.size.record_sent_prompt();
            if views.size.is_over(tail.token_threshold) {
                self.start(target, || window::plan_tail(&events, tail));
            }
        }
    }

    /// Starts a compaction after a run if one is due. It does not matter whether the run failed.
    pub(crate) fn after_run<F>(&self, target: &CompactionTarget<'_, F>, views: &Mutex<PromptViews>)
    where
        F: Fn(&CancellationToken) -> CallContext,
    {
        self.start(target, || target.plan_due(views));
    }

    /// Begins the compaction that is due. `None` if there is none, or another one of the session is in progress.
    pub(crate) fn begin_due<F>(
        &self,
        target: &CompactionTarget<'_, F>,
        views: &Mutex<PromptViews>,
    ) -> Option<PlannedCompaction>
    where
        F: Fn(&CancellationToken) -> CallContext,
    {
        self.begin(target, || target.plan_due(views))
    }
}

impl<F> CompactionTarget<'_, F> {
    /// Returns the compaction that is due when no run is in progress.
    fn plan_due(&self, views: &Mutex<PromptViews>) -> Option<CompactionPlan> {
        let events = self.invocation.events();
        let sliding = self.config.sliding.and_then(|sliding| window::plan_sliding(&events, sliding));
        if sliding.is_some() {
            return sliding;
        }
        let tail = self.config.tail?;
        let mut views = views.lock_unpoisoned();
        views.size.read(&events);
        if views.size.is_over(tail.token_threshold) { window::plan_tail(&events, tail) } else { None }
    }
}

#[cfg(test)]
mod tests;
