//! Compaction of a run's session: when it starts, and the context that the summarizer runs in.

use std::sync::Arc;

use hatchery_core::{CallContext, RunConfig, RunError, StreamingMode};
use tokio_util::sync::CancellationToken;

use super::{Replay, RunContext};
use crate::history::compaction::{CompactionTarget, Compactions};
use crate::plugins::Plugins;

/// Maximum number of model calls of one compaction.
const MAX_MODEL_CALLS: u32 = 10;

impl RunContext {
    /// Starts a compaction in the background if the prompt of the next model call is too large.
    pub(crate) fn compact_before_model_call(&self) {
        if let Some((compactions, target)) = self.compaction() {
            compactions.before_model_call(&target, &self.views);
        }
    }

    /// Starts the compaction that is due after the run, in the background.
    pub(crate) fn compact_after_run(&self) {
        if let Some((compactions, target)) = self.compaction() {
            compactions.after_run(&target, &self.views);
        }
    }

    /// Compacts the session if a compaction is due and none is in progress. Returns whether a summary was stored.
    pub(crate) async fn compact_now(&self) -> Result<bool, RunError> {
        let due = self.compaction().and_then(|(compactions, target)| compactions.begin_due(&target, &self.views));
        match due {
            Some(compaction) => compaction.run().await,
            None => Ok(false),
        }
    }

    fn compaction(&self) -> Option<(&Compactions, CompactionTarget<'_, impl Fn(&CancellationToken) -> CallContext>)> {
        let config = self.app.settings.compaction.as_ref()?;
        let compactions = self.compactions.as_ref()?;
        let target = CompactionTarget {
            config,
            tree: &self.app.tree,
            invocation: &self.invocation,
            plugins: &self.plugins,
            make_context: |cancel: &CancellationToken| self.summarizer_context(cancel),
        };
        Some((compactions, target))
    }

    /// Returns a context with its own invocation, which sees the session as it is now.
    fn summarizer_context(&self, cancel: &CancellationToken) -> CallContext {
        let run_config = RunConfig {
            streaming_mode: StreamingMode::Off,
            max_llm_calls: MAX_MODEL_CALLS,
            ..self.invocation.run_config.clone()
        };
        let invocation = self.invocation.detach(run_config, cancel.clone());
        let run = Arc::new(Self::new(self.app.clone(), invocation, Plugins::default(), self.make_host));
        run.call_context(run.app.root_id(), None, &Replay::empty())
    }
}
