//! Records of runs: a run is stored when it is accepted, and its state is kept up to date. Also cancels runs, and
//! continues background runs after the crash of their host.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use hatchery_core::{
    CallerOrigin, Content, JsonMap, RunConfig, RunError, RunFailure, RunService, RunState, RunTransition, SessionKey,
    StoreError, StoredRun, StreamingMode, TurnLease, TurnStart,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::run_bus::RunPublisher;
use super::{Run, RunKind, RunRequest, Runner, RunnerInner};
use crate::app::App;

/// Maximum number of attempts of a background run.
const MAX_ATTEMPTS: u32 = 10;

/// Polling interval for the end of a run that is being cancelled.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The stored request of a background run.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredRequest {
    message: Content,
    #[serde(default)]
    state_delta: JsonMap,
    #[serde(default)]
    is_streaming: bool,
    #[serde(default)]
    origin: CallerOrigin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    custom_metadata: Option<Arc<JsonMap>>,
}

impl Runner {
    /// Starts a run that no client waits for. Once this returns, the run will happen: if the host dies, another one
    /// that [continues](Runner::continue_run) background runs takes over. A run that the session has already is
    /// returned as it is. If another host takes over before the run waits for an answer, it keeps only the streaming
    /// mode and the custom metadata of the request's settings. A message that answers calls begins a run if the app is
    /// not resumable and the request names the run.
    ///
    /// # Errors
    /// As [`Runner::run`]; [`RunError::BadInput`] if the request does not begin a new run, and
    /// [`StoreError::InvalidRequest`] if the session service stores no runs.
    pub async fn run_in_background(&self, app: Arc<App>, request: RunRequest) -> Result<StoredRun, RunError> {
        Ok(self.begin_in_background(app, request).await?.0)
    }

    /// Like [`Runner::run_in_background`], with the events of the run from its beginning, partial ones included. `None`
    /// for a run that the session has already.
    ///
    /// # Errors
    /// As [`Runner::run_in_background`].
    pub async fn begin_in_background(
        &self,
        app: Arc<App>,
        mut request: RunRequest,
    ) -> Result<(StoredRun, Option<Run>), RunError> {
        let has_responses = request.message.as_ref().is_some_and(|it| it.function_responses().next().is_some());
        let continues_run = has_responses && (app.settings.resumable || request.run_id.is_none());
        if request.invocation_id.is_some() || continues_run {
            let message = "only a run that begins with a new message can run in the background; continue this one without \
                           `background`";
            return Err(RunError::BadInput(message.into()));
        }
        let key = SessionKey::new(app.name.as_str(), request.user.as_str(), request.session.as_str());
        let id = request.run_id.get_or_insert_with(hatchery_core::new_invocation_id).clone();
        let runs = self.0.runs()?;
        if let Some(known) = runs.get(&key, &id).await?
            && (!known.state.is_active() || self.0.run_bus.has(&key, &id))
        {
            return Ok((known, None));
        }
        let run = self.start(app, request, RunKind::Background).await?;
        let stored = runs.get(&key, &id).await?.ok_or_else(|| StoreError::SessionNotFound(key))?;
        Ok((stored, Some(run)))
    }

    /// Returns at most `limit` background runs of these apps whose host has ended, and fails those that were continued
    /// too often. They come without their requests.
    ///
    /// # Errors
    /// The errors of the session service.
    pub async fn interrupted_runs(&self, apps: &[String], limit: usize) -> Result<Vec<StoredRun>, RunError> {
        let Some(runs) = self.0.services.sessions.runs() else { return Ok(Vec::new()) };
        let mut interrupted = runs.list_interrupted(apps, limit).await?;
        interrupted.retain(|run| !self.0.run_bus.has(&run.session, &run.id));
        let (given_up, interrupted): (Vec<_>, Vec<_>) =
            interrupted.into_iter().partition(|run| run.attempts >= MAX_ATTEMPTS);
        for StoredRun { session, id, attempts, .. } in given_up {
            tracing::error!(%session, run = id, attempts, "a background run is abandoned: its host has died in each attempt");
            let message = format!("the run was given up after {attempts} attempts: its host died in each of them");
            let failure = RunFailure { code: "RUN_GIVEN_UP".into(), message };
            runs.change(&session, &id, None, &RunTransition::Fail(failure)).await?;
        }
        Ok(interrupted)
    }

    /// Continues a background run whose host has ended. `cancel` stops it.
    ///
    /// # Errors
    /// As [`Runner::run`]. The run has failed then, unless the session service is the cause.
    pub async fn continue_run(
        &self,
        app: Arc<App>,
        run: &StoredRun,
        cancel: CancellationToken,
    ) -> Result<(), RunError> {
        let SessionKey { user, id: session, .. } = &run.session;
        let Some(run) = self.0.runs()?.get(&run.session, &run.id).await? else { return Ok(()) };
        if !run.state.is_active() {
            return Ok(());
        }
        let stored = run.request.as_deref().and_then(|request| serde_json::from_str::<StoredRequest>(request).ok());
        let request = match stored {
            Some(StoredRequest { message, state_delta, is_streaming, origin, custom_metadata }) => RunRequest {
                run_id: Some(run.id.clone()),
                state_delta,
                config: RunConfig {
                    streaming_mode: if is_streaming { StreamingMode::On } else { StreamingMode::Off },
                    custom_metadata,
                    ..RunConfig::default()
                },
                origin,
                ..RunRequest::new(&**user, &**session, message)
            },
            // The run has begun, waited and been answered.
            None => RunRequest::resume(&**user, &**session, run.id.as_str()),
        };
        let result = self.start(app, RunRequest { cancel, ..request }, RunKind::Continued).await;
        if let Err(error) = &result {
            self.0.fail_unstarted(&run.session, &run.id, true, error).await;
        }
        result.map(drop)
    }

    /// Returns the ids of those `runs` of a session that are interrupted: they are stored as running, and no host has them
    /// in progress; or as accepted in the foreground, and no turn holds the session behind which a host may have them in
    /// its queue. Nothing is written.
    ///
    /// # Errors
    /// The errors of the session service, and [`StoreError::InvalidRequest`] if it stores no runs.
    pub async fn find_interrupted(
        &self,
        session: &SessionKey,
        runs: &[StoredRun],
    ) -> Result<HashSet<String>, RunError> {
        let may_be_interrupted = |run: &&StoredRun| depends_on_host(run) && !self.0.run_bus.has(session, &run.id);
        let of_others: Vec<_> = runs.iter().filter(may_be_interrupted).collect();
        let mut interrupted = HashSet::new();
        if of_others.is_empty() {
            return Ok(interrupted);
        }
        let service = self.0.runs()?;
        let in_progress = service.find_running(session).await?;
        let has_queued = of_others.iter().any(|run| run.state == RunState::Accepted);
        let has_turn = in_progress.is_some() || has_queued && service.has_turn(session).await?;
        let has_host = |run: &StoredRun| match run.state {
            RunState::Accepted => has_turn,
            _ => in_progress.as_ref() == Some(&run.id),
        };
        for run in of_others.into_iter().filter(|run| !has_host(run)) {
            // It may have ended since it was read.
            let now = service.get(session, &run.id).await?;
            if now.is_some_and(|now| (now.state, now.updated) == (run.state, run.updated)) {
                interrupted.insert(run.id.clone());
            }
        }
        Ok(interrupted)
    }

    /// Cancels a run of any host, and waits for its end, at most for two leases of a turn. Returns the run as it is
    /// then: it may still be running if its host does not answer. A run that has ended stays as it is. `None` if there
    /// is no such run.
    ///
    /// # Errors
    /// The errors of the session service, and [`StoreError::InvalidRequest`] if it stores no runs.
    pub async fn cancel_run(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, RunError> {
        let runs = self.0.runs()?;
        let Some(mut stored) = runs.change(session, run, None, &RunTransition::RequestCancel).await? else {
            return Ok(None);
        };
        self.0.run_bus.cancel(session, run);
        let deadline = Instant::now() + 2 * self.0.turn_lease();
        while stored.state == RunState::Running && Instant::now() < deadline {
            if !self.0.run_bus.has(session, run) {
                self.0.cancel_abandoned(session, run).await?;
            }
            let Some(now) = runs.get(session, run).await? else { return Ok(None) };
            stored = now;
            if stored.state == RunState::Running {
                tokio::time::sleep(CANCEL_POLL_INTERVAL).await;
            }
        }
        Ok(Some(stored))
    }
}

impl RunnerInner {
    /// Returns the service of runs.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] if the session service has none.
    pub(super) fn runs(&self) -> Result<&dyn RunService, StoreError> {
        let message = "the session service of this host stores no runs";
        self.services.sessions.runs().ok_or_else(|| StoreError::InvalidRequest(message.into()))
    }

    /// Stores a run that does not begin immediately. Creates the session if the request says so and no earlier run has
    /// done it yet.
    pub(super) async fn accept(
        &self,
        key: &SessionKey,
        id: &str,
        request: &RunRequest,
        is_background: bool,
    ) -> Result<(), RunError> {
        let Some(runs) = self.services.sessions.runs() else { return Ok(()) };
        let window = hatchery_core::EventWindow::Recent(0);
        let session = self.services.sessions.get(key, window).await?;
        if session.is_none() && request.config.auto_create_session {
            self.create_session(key).await?;
        }
        let revision = session.map_or(0, |session| session.revision);
        let stored = request.message.clone().filter(|_| is_background).map(|message| StoredRequest {
            message,
            state_delta: request.state_delta.clone(),
            is_streaming: request.config.streaming_mode == StreamingMode::On,
            origin: request.origin,
            custom_metadata: request.config.custom_metadata.clone(),
        });
        let stored = stored.map(|stored| serde_json::to_string(&stored)).transpose();
        let stored = stored.map_err(|error| StoreError::backend("a request cannot be written", error))?;
        let run = StoredRun { is_background, request: stored, ..StoredRun::new(key.clone(), id, revision) };
        runs.add(&run).await?;
        Ok(())
    }

    /// Records that a run begins or continues. If `is_new`, no client knows its id yet, so its first event does not
    /// wait for the record.
    ///
    /// # Errors
    /// [`RunError::Cancelled`] if the run was cancelled before, and the errors of the session service.
    pub(super) async fn record_start(
        &self,
        lease: &TurnLease,
        id: &str,
        revision: u64,
        is_new: bool,
    ) -> Result<(), RunError> {
        let Some(runs) = self.services.sessions.runs() else { return Ok(()) };
        let run = StoredRun::new(lease.session().clone(), id, revision);
        if is_new {
            return Ok(runs.start_later(&run, lease.fence()).await?);
        }
        match runs.start(&run, lease.fence()).await?.state {
            RunState::Running => Ok(()),
            _ => Err(RunError::Cancelled),
        }
    }

    /// Records that a run has ended or waits. A failure is only logged, since the events are stored. The record of a
    /// finished run is written later: without it, a host that continues the run after a crash finds nothing to do.
    pub(super) async fn record_end(&self, lease: &TurnLease, id: &str, transition: &RunTransition) {
        let Some(runs) = self.services.sessions.runs() else { return };
        let recorded = match transition {
            RunTransition::Finish => runs.change_later(lease.session(), id, lease.fence(), transition).await,
            _ => runs.change(lease.session(), id, Some(lease.fence()), transition).await.map(drop),
        };
        match recorded {
            Ok(()) | Err(StoreError::Fenced(_)) => {}
            Err(error) => tracing::warn!(run = id, code = error.code(), "the state of a run was not stored: {error}"),
        }
    }

    /// Records the failure of a run that was accepted and has not started. `is_continued` is true for a background run,
    /// which may have started on another host.
    pub(super) async fn fail_unstarted(&self, key: &SessionKey, id: &str, is_continued: bool, error: &RunError) {
        let is_temporary = matches!(
            error,
            RunError::Cancelled
                | RunError::PluginMissing { .. }
                | RunError::Store(
                    StoreError::Busy { .. }
                        | StoreError::Full { .. }
                        | StoreError::Backend { .. }
                        | StoreError::Fenced(_)
                )
        );
        if !is_temporary {
            self.end_unstarted(key, id, is_continued, &RunTransition::Fail(RunFailure::new(error))).await;
        }
    }

    /// Records the end of a run that was accepted and has not started, or of one that `is_continued`.
    pub(super) async fn end_unstarted(
        &self,
        key: &SessionKey,
        id: &str,
        is_continued: bool,
        transition: &RunTransition,
    ) {
        let Some(runs) = self.services.sessions.runs() else { return };
        let is_unstarted = match runs.get(key, id).await {
            Ok(stored) => stored.is_some_and(|run| run.state == RunState::Accepted),
            Err(_) => false,
        };
        if (is_continued || is_unstarted)
            && let Err(error) = runs.change(key, id, None, transition).await
        {
            tracing::warn!(run = id, code = error.code(), "the end of a run was not stored: {error}");
        }
    }

    /// Cancels a run whose host has died, unless another turn of the session is in progress.
    async fn cancel_abandoned(&self, session: &SessionKey, run: &str) -> Result<(), RunError> {
        let sessions = &self.services.sessions;
        if let TurnStart::Begun(turn) = sessions.begin_turn(session, None, self.turn_lease()).await? {
            self.runs()?.change(session, run, Some(turn.fence), &RunTransition::Cancel).await?;
            sessions.renew_turn(session, turn.fence, Duration::ZERO).await?;
        }
        Ok(())
    }

    /// Awaits a run, and cancels it if another host requests that.
    pub(super) fn cancel_on_request<T>(
        &self,
        lease: &TurnLease,
        publisher: &RunPublisher,
        run: impl Future<Output = T>,
    ) -> impl Future<Output = T> {
        // Boxed for the reason given at `renew_during`.
        let run = Box::pin(run);
        async move {
            let Some(runs) = self.services.sessions.runs() else { return run.await };
            let requests = async {
                loop {
                    tokio::time::sleep(lease.renewal_interval()).await;
                    let stored = runs.get(lease.session(), publisher.run()).await;
                    if stored.is_ok_and(|run| run.is_some_and(|run| run.is_cancel_requested)) {
                        publisher.cancel();
                        return;
                    }
                }
            };
            match select(run, pin!(requests)).await {
                Either::Left((result, _)) => result,
                Either::Right(((), run)) => run.await,
            }
        }
    }
}

/// Returns true if a run goes on only as long as the host lives that has it. The request of an accepted background run is
/// stored, so that any host begins it.
fn depends_on_host(run: &StoredRun) -> bool {
    match run.state {
        RunState::Accepted => !run.is_background,
        RunState::Running => true,
        RunState::Waiting | RunState::Done | RunState::Failed | RunState::Cancelled => false,
    }
}

/// Passes the updates of a run to the client of a repeated request.
pub(super) fn attach(
    updates: futures::stream::BoxStream<'static, Result<super::RunUpdate, RunError>>,
    request: &RunRequest,
    id: String,
) -> Run {
    use futures::StreamExt;

    use super::RunUpdate;
    let (client, events) = tokio::sync::mpsc::channel(super::MAX_UNREAD_EVENTS);
    let is_streaming = request.config.streaming_mode == StreamingMode::On;
    let cancel = request.cancel.clone();
    tokio::spawn(cancel.run_until_cancelled_owned(async move {
        let mut updates = updates;
        loop {
            let update = tokio::select! {
                update = updates.next() => update,
                () = client.closed() => return,
            };
            let Some(update) = update else { return };
            let item = match update {
                Ok(RunUpdate::Event { revision: None, .. }) if !is_streaming => continue,
                Ok(RunUpdate::Event { revision, event }) => Ok((revision, event)),
                Ok(RunUpdate::End(run)) => match (run.state, run.failure) {
                    (RunState::Cancelled, _) => Err(RunError::Cancelled),
                    (_, Some(failure)) => Err(failure.into()),
                    (_, None) => return,
                },
                Err(error) => Err(error),
            };
            if client.send(item).await.is_err() {
                return;
            }
        }
    }));
    Run { events, id: Some(id), begin_signal: None }
}
