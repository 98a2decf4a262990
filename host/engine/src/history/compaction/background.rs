//! Background tasks of compactions, at most one per session.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use hatchery_core::{CallContext, EventWindow, RunError, Session, SessionKey, StoreError, Summarizer, escape_control};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::CompactionTarget;
use super::window::CompactionPlan;
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
    /// Starts a compaction of the session if `plan` returns one and none is in progress. Returns true if it was
    /// started.
    pub(super) fn start<F>(
        &self,
        target: &CompactionTarget<'_, F>,
        plan: impl FnOnce() -> Option<CompactionPlan>,
    ) -> bool
    where
        F: Fn(&CancellationToken) -> CallContext,
    {
        let CompactionTarget { config, tree, invocation, plugins, make_context } = target;
        let Some(in_progress) = InProgress::begin(&self.0, &invocation.session_key) else { return false };
        let Some(plan) = plan() else { return false };
        let cx = make_context(&in_progress.cancel);
        let (tree, summarizer, plugins) = (Arc::clone(tree), config.summarizer.clone(), (*plugins).clone());
        tokio::spawn(in_current_scope(async move {
            let compaction = async { compact(&cx, plan, summarizer.for_agents(&tree)?.as_ref(), &plugins).await };
            let result = AssertUnwindSafe(compaction).catch_unwind().await;
            if let Err(error) = result.unwrap_or_else(|_| Err(RunError::Internal("the summarizer panicked".into()))) {
                let (session, reason) = (&cx.invocation.session_key, error.to_string());
                let reason = escape_control(&reason);
                tracing::warn!(app = %session.app, %session, code = error.code(), "compaction failed: {reason}");
            }
            drop(in_progress);
        }));
        true
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
/// event, and may replace it.
async fn compact(
    cx: &CallContext,
    plan: CompactionPlan,
    summarizer: &dyn Summarizer,
    plugins: &Plugins,
) -> Result<(), RunError> {
    let run = &cx.invocation;
    let snapshot = run.session();
    if plan.hides_other_events(&snapshot.events) {
        return Ok(());
    }
    let summary = run.cancel.run_until_cancelled(summarizer.summarize(&plan.events, cx)).await;
    let Some(summary) = summary.ok_or(RunError::Cancelled)?? else { return Ok(()) };
    let event = plan.compaction_event(run.id.clone(), summary);
    let event = plugins.on_event(cx, &event).await?.unwrap_or(event);
    // Reads the events that were appended in the meantime. From here on the compaction is fast and is not cancelled.
    let window = EventWindow::AfterRevision(snapshot.revision);
    let Some(update) = run.services.sessions.get(&snapshot.key, window).await? else { return Ok(()) };
    let Session { key, mut events, created, revision, .. } = snapshot;
    events.append(update.events);
    if update.created != created || update.revision < revision || plan.hides_other_events(&events) {
        return Ok(());
    }
    match run.services.sessions.append(&key, &event).await {
        // Another host has summarized the same events.
        Ok(_) | Err(StoreError::EventExists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
