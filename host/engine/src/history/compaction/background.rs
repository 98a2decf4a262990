//! Compactions that are under way: each in a task of its own, one per session.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures::FutureExt;
use hatchery_core::sync::RwLockExt;
use hatchery_core::{
    CallContext, EventWindow, Invocation, RunConfig, RunError, Session, SessionKey, StreamingMode, Summarizer,
    new_invocation_id,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::CompactionConfig;
use super::window::Plan;
use crate::agents::past::Past;
use crate::agents::{self, Frame};
use crate::history::contents::Views;
use crate::plugins::Plugins;

/// How long a runner that is drained waits for compactions. Those that take longer are given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most model calls of one compaction.
const MAX_MODEL_CALLS: u32 = 10;

/// Sessions with a compaction under way, and what cancels it.
type Sessions = watch::Sender<HashMap<SessionKey, CancellationToken>>;

/// The compactions of a runner. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Compactions(Arc<Sessions>);

impl Compactions {
    /// Starts a compaction of the run's session if there is something to summarize and none is under way. True when one has begun.
    pub(super) fn start(&self, frame: &Frame, config: &CompactionConfig, plan: impl FnOnce() -> Option<Plan>) -> bool {
        let Some(under_way) = UnderWay::begin(&self.0, &frame.invocation.session_key) else { return false };
        let Some(plan) = plan() else { return false };
        let cx = context(frame, &under_way.cancel);
        let (app, summarizer) = (frame.app.clone(), config.summarizer.clone());
        tokio::spawn(async move {
            let work = async { compact(&cx, plan, summarizer.of(&app)?.as_ref()).await };
            let ended = AssertUnwindSafe(work).catch_unwind().await;
            if let Err(error) = ended.unwrap_or_else(|_| Err(RunError::Internal("the summarizer panicked".into()))) {
                let session = &cx.invocation.session_key;
                tracing::warn!(app = %app.name, %session, code = error.code(), "compaction failed: {error}");
            }
            drop(under_way);
        });
        true
    }

    /// Waits until none is under way. Those that take too long are cancelled.
    pub(crate) async fn drain(&self) {
        let mut sessions = self.0.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        if tokio::time::timeout(PATIENCE, sessions.wait_for(HashMap::is_empty)).await.is_err() {
            self.0.borrow().values().for_each(CancellationToken::cancel);
            let _ = sessions.wait_for(HashMap::is_empty).await;
        }
    }
}

/// A session's compaction, for as long as this lives.
struct UnderWay {
    sessions: Arc<Sessions>,
    key: SessionKey,
    cancel: CancellationToken,
}

impl UnderWay {
    /// Nothing when one is under way already.
    fn begin(sessions: &Arc<Sessions>, key: &SessionKey) -> Option<Self> {
        let cancel = CancellationToken::new();
        let has_begun = sessions.send_if_modified(|sessions| {
            let is_free = !sessions.contains_key(key);
            if is_free {
                sessions.insert(key.clone(), cancel.clone());
            }
            is_free
        });
        has_begun.then(|| Self { sessions: sessions.clone(), key: key.clone(), cancel })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.sessions.send_modify(|sessions| {
            sessions.remove(&self.key);
        });
    }
}

/// What the summarizer works with: an invocation of its own, which sees the session as the run has left it.
fn context(frame: &Frame, cancel: &CancellationToken) -> CallContext {
    let run = &frame.invocation;
    let session = run.session.read_unpoisoned().clone();
    let invocation = Arc::new(Invocation {
        id: new_invocation_id(),
        session_key: run.session_key.clone(),
        caller: run.caller.clone(),
        user_content: RwLock::default(),
        run_config: RunConfig {
            streaming_mode: StreamingMode::Off,
            max_llm_calls: MAX_MODEL_CALLS,
            ..run.run_config.clone()
        },
        services: run.services.clone(),
        cancel: cancel.clone(),
        session: RwLock::new(session),
        spent: Arc::default(),
        depth: 0,
        signer: run.signer.clone(),
    });
    let frame = Frame::new(frame.app.clone(), invocation, Plugins::default(), Views::default(), None);
    agents::call_context(&frame, frame.app.root_id(), None, Past::none())
}

/// Summarizes and appends, unless the summary would hide more than it was made of.
async fn compact(cx: &CallContext, plan: Plan, summarizer: &dyn Summarizer) -> Result<(), RunError> {
    let run = &cx.invocation;
    let known = run.session.read_unpoisoned().clone();
    if plan.hides_others(&known.events) {
        return Ok(());
    }
    let summary = run.cancel.run_until_cancelled(summarizer.summarize(&plan.events, cx)).await;
    let Some(summary) = summary.ok_or(RunError::Cancelled)?? else { return Ok(()) };
    // What has come since the events were read. From here on it is a matter of an instant, and not cancelled halfway.
    let window = EventWindow::AfterRevision(known.revision);
    let Some(now) = run.services.sessions.get(&known.key, window).await? else { return Ok(()) };
    let Session { key, mut events, created, revision, .. } = known;
    events.append(now.events);
    if now.created != created || now.revision < revision || plan.hides_others(&events) {
        return Ok(());
    }
    run.services.sessions.append(&key, &plan.compaction(run.id.clone(), summary)).await?;
    Ok(())
}
