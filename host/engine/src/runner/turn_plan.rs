//! The plan of a turn: to begin a new run, or to continue one.

use std::sync::Arc;

use hatchery_core::{
    Content, Event, RunError, RunJournal, RunState, Services, Session, SessionKey, TurnLease, USER_AUTHOR,
};
use imbl::Vector;

use super::RunnerInner;
use super::event_log::{closed_channel, deliver};
use super::paused_run::PausedRun;
use super::resumption::{ResumedRun, is_ended};
use super::turn::TurnRequest;
use super::user_message::with_role;
use crate::tools::credential;

/// The run of a turn, as its request and the session determine it.
pub(super) struct TurnPlan {
    pub(super) id: String,
    /// The run that is continued.
    pub(super) resumed: Option<ResumedRun>,
    /// True if the request attaches to a run that has begun.
    pub(super) is_attached: bool,
    pub(super) message: Option<Arc<Content>>,
    pub(super) paused: PausedRun,
    pub(super) journal: Arc<RunJournal>,
}

impl RunnerInner {
    /// Finds the run that a turn begins or continues, and records its start. The client of a run that has begun gets
    /// the events so far.
    ///
    /// # Errors
    /// [`RunError::Stopped`] if there is nothing to do, the failure of a run that the request attaches to, and the
    /// errors of a request that does not fit the session.
    pub(super) async fn plan_turn(
        &self,
        key: &SessionKey,
        turn: &mut TurnRequest,
        lease: &Arc<TurnLease>,
        session: &Session,
    ) -> Result<TurnPlan, RunError> {
        let verifier = self.verifier(key);
        let has_run_id = turn.request.run_id.is_some();
        let resumed = ResumedRun::find(&turn.app, &turn.request, &session.events, &verifier)?;
        let is_attached = resumed.is_some() && has_run_id;
        if !is_attached {
            turn.request.check_responses(&session.events)?;
        }
        // The message of a request that attaches to a run is ignored.
        let message = turn.request.message.take().filter(|_| !is_attached);
        let message = message.map(|message| Arc::new(with_role(message, USER_AUTHOR)));
        if is_attached && let Some(resumed) = &resumed {
            let delivery = deliver(&turn.client, resumed.emitted_events(&session.events, session.revision));
            if turn.request.cancel.run_until_cancelled(delivery).await != Some(true) {
                // The run continues without the client.
                turn.client = closed_channel();
            }
            if let Some(failure) = resumed.failure(&session.events) {
                return Err(failure);
            }
        }
        let id = resumed.as_ref().map_or_else(|| turn.new_id.clone(), |resumed| resumed.invocation_id.clone());
        let paused = resumed.as_ref().map(|resumed| resumed.paused_run(&session.events, &verifier)).unwrap_or_default();
        let journal = Arc::new(RunJournal::new(lease.clone(), id.as_str()));
        let continued = ContinuedRun { id: &id, resumed: resumed.as_ref(), has_run_id };
        if !self.check_end(key, &continued, &session.events, message.is_some(), &journal).await? {
            return Err(RunError::Stopped);
        }
        if let Some(message) = message.as_deref().filter(|_| !turn.app.settings.resumable) {
            self.check_answered(key, message, &session.events).await?;
        }
        // A message that is refused leaves no credential behind.
        let message = self.receive_credentials(message, session, &turn.services).await?;
        let is_new = resumed.is_none() && !has_run_id && !turn.is_accepted;
        self.record_start(lease, &id, session.revision, is_new).await?;
        Ok(TurnPlan { id, resumed, is_attached, message, paused, journal })
    }

    /// Keeps the credentials in a message, and returns the message without them.
    async fn receive_credentials(
        &self,
        message: Option<Arc<Content>>,
        session: &Session,
        services: &Services,
    ) -> Result<Option<Arc<Content>>, RunError> {
        let Some(message) = message else { return Ok(None) };
        let verifier = self.verifier(&session.key);
        credential::receive(message, &session.events, &verifier, services).await.map(Some)
    }

    /// Checks whether there is something to do for a run that is new or continued. A finished run has nothing to do,
    /// unless an answer has come since.
    ///
    /// # Errors
    /// The failure of the run that a request attaches to. [`RunError::Cancelled`] if the run was cancelled,
    /// [`RunError::BadInput`] if the request would continue a cancelled run.
    async fn check_end(
        &self,
        key: &SessionKey,
        run: &ContinuedRun<'_>,
        events: &Vector<Arc<Event>>,
        has_message: bool,
        journal: &RunJournal,
    ) -> Result<bool, RunError> {
        let ContinuedRun { id, resumed, has_run_id } = *run;
        let stored = match self.services.sessions.runs().filter(|_| resumed.is_some() || has_run_id) {
            Some(runs) => runs.get(key, id).await?,
            None => None,
        };
        match stored.map(|stored| (stored.state, stored.failure)) {
            Some((RunState::Cancelled, _)) if has_run_id => return Err(RunError::Cancelled),
            Some((RunState::Cancelled, _)) => {
                let message = format!("run `{id}` was cancelled; send the message again as a new one");
                return Err(RunError::BadInput(message));
            }
            Some((RunState::Failed, Some(failure))) if has_run_id => return Err(failure.into()),
            Some((RunState::Done | RunState::Waiting, _)) if has_run_id => return Ok(false),
            Some(_) | None => {}
        }
        match resumed {
            None => Ok(true),
            Some(_) if is_ended(events, id) => Ok(has_message),
            Some(_) => Ok(journal.load().await? || has_message),
        }
    }
}

/// A run that a request begins or continues.
struct ContinuedRun<'a> {
    id: &'a str,
    /// Its events, if it has begun.
    resumed: Option<&'a ResumedRun>,
    /// True if the request may be a repeated one.
    has_run_id: bool,
}
