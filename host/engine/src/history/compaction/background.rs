//! Execution of compactions, at most one per session: in background tasks, or on request.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use hatchery_core::{
    AgentTree, CallContext, EventWindow, RunError, Session, SessionKey, StoreError, Summarizer, escape_control,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::window::CompactionPlan;
use super::{CompactionTarget, SummarizerRef};
use crate::plugins::Plugins;
use crate::tasks::in_current_scope;

/// Maximum time that [`Compactions::drain`] waits before it cancels compactions.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The sessions with a compaction in progress, with its cancellation token.
type Sessions = watch::Sender<HashMap<SessionKey, CancellationToken>>;

/// The compactions of a runner. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct Compactions(Arc<Sessions>);

impl Compactions {
    /// Starts a compaction of the session in the background if `plan` returns one and none is in progress.
    pub(super) fn start<F>(&self, target: &CompactionTarget<'_, F>, plan: impl FnOnce() -> Option<CompactionPlan>)
    where
        F: Fn(&CancellationToken) -> CallContext,
    {
        let Some(planned) = self.begin(target, plan) else { return };
        tokio::spawn(in_current_scope(async move {
            if let Err(error) = planned.run().await {
                let (session, reason) = (&planned.cx.invocation.session_key, error.to_string());
                let reason = escape_control(&reason);
                tracing::warn!(app = %session.app, %session, code = error.code(), "compaction failed: {reason}");
            }
        }));
    }

    /// Begins a compaction of the session. `None` if `plan` returns none, or another one is in progress.
    pub(super) fn begin<F>(
        &self,
        target: &CompactionTarget<'_, F>,
        plan: impl FnOnce() -> Option<CompactionPlan>,
    ) -> Option<PlannedCompaction>
    where
        F: Fn(&CancellationToken) -> CallContext,
    {
        let CompactionTarget { config, tree, invocation, plugins, make_context } = target;
        let in_progress = InProgress::begin(&self.0, &invocation.session_key)?;
        Some(PlannedCompaction {
            plan: plan()?,
            cx: make_context(&in_progress.cancel),
            tree: Arc::clone(tree),
            summarizer: config.summarizer.clone(),
            plugins: (*plugins).clone(),
            _in_progress: in_progress,
        })
    }

    /// Waits until no compaction is in progress. Cancels those that take longer than [`DRAIN_TIMEOUT`].
    pub(crate) async fn drain(&self) {
        let mut sessions = self.0.subscribe();
        // The sender is in `self`, so waiting cannot fail.
        if tokio::time::timeout(DRAIN_TIMEOUT, sessions.wait_for(HashMap::is_empty)).await.is_err() {
            self.0.borrow().values().for_each(CancellationToken::cancel);
            let _ = sessions.wait_for(HashMap::is_empty).await;
        }
    }
}

/// A compaction that has begun. The session has no other one until it is dropped.
pub(crate) struct PlannedCompaction {
    plan: CompactionPlan,
    /// The context of the summarizer.
    cx: CallContext,
    tree: Arc<AgentTree>,
    summarizer: SummarizerRef,
    plugins: Plugins,
    _in_progress: InProgress,
}

impl PlannedCompaction {
    /// Creates the summary and stores it. Returns false if there is nothing to store. A panic is an error.
    pub(crate) async fn run(&self) -> Result<bool, RunError> {
        let Self { plan, cx, tree, summarizer, plugins, _in_progress: _ } = self;
        let compaction = async { compact(cx, plan, summarizer.for_agents(tree)?.as_ref(), plugins).await };
        let result = AssertUnwindSafe(compaction).catch_unwind().await;
        result.unwrap_or_else(|_| Err(RunError::Internal("the summarizer panicked".into())))
    }
}

/// Guard that marks a session as being compacted until it is dropped.
struct InProgress {
    sessions: Arc<Sessions>,
    key: SessionKey,
    cancel: CancellationToken,
}

impl InProgress {
    /// Returns `None` if the session is already being compacted.
    fn begin(sessions: &Arc<Sessions>, key: &SessionKey) -> Option<Self> {
        let cancel = CancellationToken::new();
        let is_started = sessions.send_if_modified(|sessions| {
            let is_free = !sessions.contains_key(key);
            if is_free {
                sessions.insert(key.clone(), cancel.clone());
            }
            is_free
        });
        is_started.then(|| Self { sessions: sessions.clone(), key: key.clone(), cancel })
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.sessions.send_modify(|sessions| {
            sessions.remove(&self.key);
        });
    }
}

/// Creates a summary and appends it to the session, unless it would hide events that it does not cover. Plugins see its
/// event, and may replace it. Returns whether it was appended.
async fn compact(
    cx: &CallContext,
    plan: &CompactionPlan,
    summarizer: &dyn Summarizer,
    plugins: &Plugins,
) -> Result<bool, RunError> {
    let run = &cx.invocation;
    let snapshot = run.session();
    if plan.hides_other_events(&snapshot.events) {
        return Ok(false);
    }
    let summary = run.cancel.run_until_cancelled(summarizer.summarize(&plan.events, cx)).await;
    let Some(summary) = summary.ok_or(RunError::Cancelled)?? else { return Ok(false) };
    let event = plan.compaction_event(run.id.clone(), summary);
    let event = plugins.on_event(cx, &event).await?.unwrap_or(event);
    // Reads the events that were appended in the meantime. From here on the compaction is fast and is not cancelled.
    let window = EventWindow::AfterRevision(snapshot.revision);
    let Some(update) = run.services.sessions.get(&snapshot.key, window).await? else { return Ok(false) };
    let Session { key, mut events, created, revision, .. } = snapshot;
    events.append(update.events);
    if update.created != created || update.revision < revision || plan.hides_other_events(&events) {
        return Ok(false);
    }
    match run.services.sessions.append(&key, &event).await {
        Ok(_) => Ok(true),
        // Another host has summarized the same events.
        Err(StoreError::EventExists(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
