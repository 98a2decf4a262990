//! The start of a run: it is admitted, enters the queue of its session, and begins in a task of its own or of its
//! caller.

use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use hatchery_core::{Invocation, RunError, RunTransition, Services, SessionKey, StoreError, new_invocation_id};
use tokio::sync::{mpsc, oneshot};

use super::live::LiveStart;
use super::resumption::ResumedRun;
use super::session_access::QueuePosition;
use super::turn::TurnRequest;
use super::user_runs::UserRunGuard;
use super::{ActiveRun, MAX_UNREAD_EVENTS, Run, RunPermit, RunRequest, Runner, RunnerInner};
use crate::app::App;
use crate::run::PinnedModels;
use crate::tasks::{in_current_scope, run_to_completion};
use crate::tools::credential;

/// The origin of a run.
pub(super) enum RunKind {
    /// A client, which reads its events.
    Foreground,
    /// A client, which does not wait for it.
    Background,
    /// The recovery of a background run, which was admitted before its host died.
    Continued,
    /// The code of this run.
    Nested(Arc<Invocation>),
    /// A client that sends requests while the run is in progress.
    Live(LiveStart),
}

impl RunKind {
    fn is_nested(&self) -> bool {
        match self {
            Self::Nested(_) => true,
            Self::Live(start) => start.parent.is_some(),
            Self::Foreground | Self::Background | Self::Continued => false,
        }
    }

    fn is_background(&self) -> bool {
        matches!(self, Self::Background | Self::Continued)
    }

    fn was_admitted(&self) -> bool {
        matches!(self, Self::Continued)
    }

    /// Returns the run whose code starts this one, and the data of a live run.
    fn split(self) -> (Option<Arc<Invocation>>, Option<LiveStart>) {
        match self {
            Self::Nested(parent) => (Some(parent), None),
            Self::Live(start) => (start.parent.clone(), Some(start)),
            Self::Foreground | Self::Background | Self::Continued => (None, None),
        }
    }
}

/// The id of a run, if it is known before its turn.
struct RunIds {
    /// The id of a new run.
    new: String,
    /// The id of the run that the request begins or continues. `None` if it depends on earlier turns, which the request
    /// waits for.
    known: Option<String>,
    /// True if the run is stored before its turn.
    is_accepted: bool,
}

impl Runner {
    /// Starts a run in a separate task.
    pub(super) async fn start(&self, app: Arc<App>, request: RunRequest, kind: RunKind) -> Result<Run, RunError> {
        let (run, queued) = self.queue_run(app, request, kind).await?;
        if queued.turn.is_accepted {
            queued.accept().await?;
        } else {
            queued.spawn();
        }
        Ok(run)
    }

    /// Starts a run in the task of the caller. From its first wait on, it has a separate task. `permit` is dropped once
    /// the run is counted.
    pub(super) async fn start_inline(
        &self,
        app: Arc<App>,
        request: RunRequest,
        permit: RunPermit,
    ) -> Result<Run, RunError> {
        let (run, queued) = self.queue_run(app, request, RunKind::Foreground).await?;
        drop(permit);
        if queued.turn.is_accepted {
            queued.accept().await?;
        } else {
            queued.run_inline();
        }
        Ok(run)
    }

    /// Admits a run, and enters the queue of its session.
    async fn queue_run(&self, app: Arc<App>, request: RunRequest, kind: RunKind) -> Result<(Run, QueuedRun), RunError> {
        let requested = Instant::now();
        request.check(matches!(kind, RunKind::Live(_)))?;
        let plugins = self.0.plugins.current()?;
        let services = self.0.services_for_run(&app);
        let key = session_key(&app, &request)?;
        let (is_nested, is_background, was_admitted) = (kind.is_nested(), kind.is_background(), kind.was_admitted());
        // A nested run is a part of another one, which was admitted.
        let user_run = if is_nested { None } else { Some(self.0.admit(&key, was_admitted).await?) };
        let caller_cancel = request.cancel.clone();
        let request = RunRequest { cancel: caller_cancel.child_token(), ..request };
        let position = self.0.enter_queue(&key, &request, is_nested).await?;
        let ids = self.0.run_ids(&key, &app, &request, &position, is_background)?;
        let (parent, live) = kind.split();
        let active_run = live.as_ref().map(|live| live.active_run.clone());
        let active_run = active_run.unwrap_or_else(|| Arc::new(ActiveRun::new(&self.0)));
        let RunIds { new: new_id, known: id, is_accepted } = ids;
        let (client, events) = mpsc::channel(MAX_UNREAD_EVENTS);
        let announced = id.as_deref().map(|id| self.0.run_bus.announce(&key, id, request.cancel.clone()));
        let (begun, begin_signal) = oneshot::channel();
        let run = Run { events, id: id.clone(), begin_signal: Some(begin_signal) };
        let turn = Box::new(TurnRequest {
            app,
            services,
            plugins,
            request,
            new_id,
            is_accepted,
            announced,
            client,
            begun,
            live,
            parent,
            caller_cancel,
            requested,
        });
        let runner = self.0.clone();
        let queued = QueuedRun { runner, key, id, is_background, position, turn, active_run, user_run };
        Ok((run, queued))
    }
}

impl RunnerInner {
    /// Returns the services of a run. The name of a model refers to the same model until the end of the run.
    fn services_for_run(&self, app: &App) -> Services {
        let models = Arc::new(PinnedModels::new(self.services.models.clone(), &app.tree));
        Services { models, ..self.services.clone() }
    }

    /// Admits a run and counts it towards the user's active runs.
    ///
    /// # Errors
    /// If the user has used up a quota, unless the run was admitted before.
    async fn admit(&self, key: &SessionKey, was_admitted: bool) -> Result<UserRunGuard, RunError> {
        let (user_run, active) = self.user_runs.count(key);
        if !was_admitted {
            self.services.sessions.admit_run(key, active).await?;
        }
        Ok(user_run)
    }

    /// Enters the queue of the session.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if a nested run would have to wait, and the errors of [`RunnerInner::enqueue`].
    async fn enter_queue(
        self: &Arc<Self>,
        key: &SessionKey,
        request: &RunRequest,
        is_nested: bool,
    ) -> Result<QueuePosition, RunError> {
        let position = self.enqueue(key, request.config.auto_create_session, &request.cancel).await?;
        if is_nested && matches!(position, QueuePosition::Waiting(_)) {
            // Two runs that wait for each other's sessions would deadlock.
            return Err(StoreError::session_in_use(key).into());
        }
        Ok(position)
    }

    /// Returns the ids of a run, and checks a request for a background run.
    fn run_ids(
        &self,
        key: &SessionKey,
        app: &App,
        request: &RunRequest,
        position: &QueuePosition,
        is_background: bool,
    ) -> Result<RunIds, RunError> {
        let new = request.run_id.clone().unwrap_or_else(new_invocation_id);
        let known = match position {
            QueuePosition::Acquired(acquired) => {
                let events = &acquired.cached.session.events;
                if request.run_id.is_none() {
                    request.check_responses(events)?;
                }
                let resumed = ResumedRun::find(app, request, events, &self.verifier(key))?;
                Some(resumed.map_or_else(|| new.clone(), |resumed| resumed.invocation_id))
            }
            QueuePosition::Waiting(_) => request.begins_run().then(|| new.clone()),
        };
        if is_background {
            check_background(request)?;
        }
        let is_waiting = matches!(position, QueuePosition::Waiting(_));
        Ok(RunIds { new, known, is_accepted: is_background || (is_waiting && request.begins_run()) })
    }
}

/// A run in the queue of its session.
struct QueuedRun {
    runner: Arc<RunnerInner>,
    key: SessionKey,
    /// `None` if the id is not known yet.
    id: Option<String>,
    is_background: bool,
    position: QueuePosition,
    /// Boxed, because it is moved through several futures.
    turn: Box<TurnRequest>,
    active_run: Arc<ActiveRun>,
    user_run: Option<UserRunGuard>,
}

impl QueuedRun {
    /// Stores the run, and runs it in a separate task, even if the caller is dropped: a run that is stored would
    /// otherwise never begin.
    fn accept(self) -> BoxFuture<'static, Result<(), RunError>> {
        let accepted = run_to_completion(async move {
            if let Some(id) = &self.id {
                self.runner.accept(&self.key, id, &self.turn.request, self.is_background).await?;
            }
            self.spawn();
            Ok(())
        });
        accepted.boxed()
    }

    /// Runs in a separate task.
    fn spawn(self) {
        tokio::spawn(in_current_scope(self.run().boxed()));
    }

    /// Runs in the task of the caller until the run waits for something, and from then on in a separate task. A run
    /// whose sessions and models are in memory wakes no other thread.
    fn run_inline(self) {
        let mut task = self.run().boxed();
        if (&mut task).now_or_never().is_none() {
            tokio::spawn(in_current_scope(task));
        }
    }

    /// Waits for the session and runs the turn. The client gets the error of a run that fails.
    async fn run(self) {
        let Self { runner, key, id, is_background, position, turn, active_run, user_run } = self;
        let client = turn.client.clone();
        let (cancel, caller_cancel) = (turn.request.cancel.clone(), turn.caller_cancel.clone());
        let create = turn.request.config.auto_create_session;
        let result = match cancel.run_until_cancelled(runner.acquire(&key, position, create, &cancel)).await {
            Some(Ok(session)) => runner.run_next_turn(key.clone(), turn, session).await,
            Some(Err(error)) => Err(error),
            None => Err(RunError::Cancelled),
        };
        match (&result, &id) {
            // Not the end of the host, after which another one continues the run.
            (Err(RunError::Cancelled), Some(id)) if caller_cancel.is_cancelled() => {
                runner.end_unstarted(&key, id, false, &RunTransition::Cancel).await;
            }
            (Err(error), Some(id)) => runner.fail_unstarted(&key, id, is_background, error).await,
            (Ok(()), _) | (Err(_), None) => {}
        }
        // The guard is dropped before the client gets the error, so that the client's next message does not wait for
        // this turn.
        drop((active_run, user_run));
        if let Err(error) = result {
            // Fails if the client is gone.
            let _ = client.send(Err(error)).await;
        }
    }
}

/// Returns the key of the requested session. Sessions of the host itself do not exist for clients.
fn session_key(app: &App, request: &RunRequest) -> Result<SessionKey, RunError> {
    let key = SessionKey::new(app.name.as_str(), request.user.as_str(), request.session.as_str());
    key.check()?;
    if key.belongs_to_host() {
        return Err(StoreError::SessionNotFound(key).into());
    }
    Ok(key)
}

fn check_background(request: &RunRequest) -> Result<(), RunError> {
    if request.message.as_ref().is_some_and(credential::has_answer) {
        let message = "a credential is not accepted in the background, where its message would be stored; send it with \
                       `/run` or `/run_sse`";
        return Err(RunError::BadInput(message.into()));
    }
    Ok(())
}
