//! A turn from start to end: check, wait for the session's turn, store the user's message, choose the agent, run it, report.

mod continuation;
mod log;
mod turns;

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};

use futures::future::{MaybeDone, maybe_done};
use futures::{FutureExt, Stream, poll};
use hatchery_core::event::{USER, new_invocation_id};
use hatchery_core::{
    CallContext, Content, Event, EventData, EventSink, EventWindow, Invocation, JsonMap, RunConfig, RunError, Services,
    Session, SessionKey, StoreError,
};
use tokio::sync::{OwnedMutexGuard, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::agents::{self, Frame};
use crate::app::App;
use crate::llm::contents::Views;
use crate::plugins::Plugins;
use log::EventLog;
use turns::{Live, Turns};

/// Events that a client has not read yet; a slow client slows its run down from here on.
const UNREAD_EVENTS: usize = 64;

/// Runs agents for users. Cheap to clone; clones share the turns of sessions.
#[derive(Clone)]
pub struct Runner(Arc<Shared>);

struct Shared {
    services: Services,
    plugins: Plugins,
    turns: Turns,
    active: watch::Sender<usize>,
}

/// What is kept of a session, held for as long as a turn of it is under way.
type Kept = OwnedMutexGuard<Option<Live>>;

/// A turn of a session.
enum Turn {
    /// Nobody was before it.
    Begun(Box<Live>, Kept),
    /// It waits for those before it.
    Queued(Pin<Box<MaybeDone<turns::Begin>>>),
}

/// What to run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The user.
    pub user: String,
    /// The session's id.
    pub session: String,
    /// What the user says; nothing when an interrupted run is to go on as it is.
    pub message: Option<Content>,
    /// The run that is to go on; nothing begins a new one.
    pub invocation_id: Option<String>,
    /// State to set along with the message.
    pub state_delta: JsonMap,
    /// How the run is wanted.
    pub config: RunConfig,
    /// Stops the run when cancelled.
    pub cancel: CancellationToken,
}

impl RunRequest {
    /// A request with defaults for everything else.
    pub fn new(user: impl Into<String>, session: impl Into<String>, message: Content) -> Self {
        Self {
            user: user.into(),
            session: session.into(),
            message: Some(message),
            invocation_id: None,
            state_delta: JsonMap::new(),
            config: RunConfig::default(),
            cancel: CancellationToken::new(),
        }
    }
}

/// A run under way: a stream of its events. Dropping it does not stop the run; [`RunRequest::cancel`] does.
#[derive(Debug)]
pub struct Run {
    /// `e-<uuid>`.
    pub invocation_id: String,
    events: mpsc::Receiver<Result<Arc<Event>, RunError>>,
}

impl Run {
    /// The next event. A failed run ends with an event that says so, then the error.
    pub async fn next(&mut self) -> Option<Result<Arc<Event>, RunError>> {
        self.events.recv().await
    }

    /// All events.
    ///
    /// # Errors
    /// When the run fails.
    pub async fn collect(mut self) -> Result<Vec<Arc<Event>>, RunError> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event?);
        }
        Ok(events)
    }
}

impl Stream for Run {
    type Item = Result<Arc<Event>, RunError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(cx)
    }
}

impl Runner {
    /// A runner on these services.
    pub fn new(services: Services) -> Self {
        Self::with_plugins(services, Plugins::default())
    }

    /// A runner on these services, whose runs pass these plugins.
    pub fn with_plugins(services: Services, plugins: Plugins) -> Self {
        Self(Arc::new(Shared { services, plugins, turns: Turns::default(), active: watch::Sender::new(0) }))
    }

    /// The plugins.
    pub fn plugins(&self) -> &Plugins {
        &self.0.plugins
    }

    /// Waits until no run is under way, then closes the plugins.
    pub async fn close(&self) {
        self.drain().await;
        self.0.plugins.close().await;
    }

    /// The services.
    pub fn services(&self) -> &Services {
        &self.0.services
    }

    /// How many runs are under way or wait for their turn.
    pub fn active_runs(&self) -> usize {
        *self.0.active.borrow()
    }

    /// Waits until no run is under way.
    pub async fn drain(&self) {
        let mut active = self.0.active.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = active.wait_for(|active| *active == 0).await;
    }

    /// Starts a run in a task of its own. Turns of one session follow each other in the order of their calls; a failed turn does not hold
    /// up the next.
    ///
    /// # Errors
    /// When the message has no parts, or the session does not exist and is not to be created.
    pub async fn run(&self, app: Arc<App>, request: RunRequest) -> Result<Run, RunError> {
        if request.message.as_ref().is_none_or(|message| message.parts.is_empty()) {
            return Err(RunError::BadInput(
                "newMessage has no parts; send at least one, such as {\"text\": \"hello\"}".into(),
            ));
        }
        let key = SessionKey::new(app.name.as_str(), request.user.as_str(), request.session.as_str());
        let create = request.config.auto_create_session;
        let turn = self.queue(&key, create).await?;
        let invocation_id = new_invocation_id();
        let (client, events) = mpsc::channel(UNREAD_EVENTS);
        let active = ActiveRun::new(&self.0);
        let (runner, id) = (self.clone(), invocation_id.clone());
        tokio::spawn(async move {
            let result = match request.cancel.run_until_cancelled(runner.begin(&key, turn, create)).await {
                Some(Ok((live, mut kept))) => runner.turn(app, key, request, id, live, &mut kept, client.clone()).await,
                Some(Err(error)) => Err(error),
                None => Err(RunError::Cancelled),
            };
            // The turn has ended before the client learns of it, so that the client's next message does not wait for this one.
            drop(active);
            if let Err(error) = result {
                // A client that has gone away needs no error.
                let _ = client.send(Err(error)).await;
            }
        });
        Ok(Run { invocation_id, events })
    }

    /// Takes a place in the session's queue, in the order of these calls, once it is clear that there is such a session.
    async fn queue(&self, key: &SessionKey, create: bool) -> Result<Turn, RunError> {
        let mut place = Box::pin(maybe_done(self.0.turns.begin(key)));
        let _ = poll!(place.as_mut());
        match place.as_mut().take_output() {
            Some(mut kept) => {
                let live = self.refresh_or_create(key, kept.take(), create).await?;
                Ok(Turn::Begun(Box::new(live), kept))
            }
            None => {
                if !create && self.0.services.sessions.get(key, EventWindow::Recent(0)).await?.is_none() {
                    return Err(StoreError::SessionNotFound(key.clone()).into());
                }
                Ok(Turn::Queued(place))
            }
        }
    }

    /// Waits for the turn.
    async fn begin(&self, key: &SessionKey, turn: Turn, create: bool) -> Result<(Live, Kept), RunError> {
        match turn {
            Turn::Begun(live, kept) => Ok((*live, kept)),
            Turn::Queued(mut place) => {
                place.as_mut().await;
                let mut kept = place.as_mut().take_output().ok_or(RunError::Cancelled)?;
                let live = self.refresh_or_create(key, kept.take(), create).await?;
                Ok((live, kept))
            }
        }
    }

    async fn refresh_or_create(&self, key: &SessionKey, live: Option<Live>, create: bool) -> Result<Live, RunError> {
        let refreshed = self.refresh(key, live).await;
        if !(create && matches!(refreshed, Err(RunError::Store(StoreError::SessionNotFound(_))))) {
            return refreshed;
        }
        match self.0.services.sessions.create(&key.app, &key.user, Some(&key.id), JsonMap::new()).await {
            Ok(session) => Ok(Live { session, views: Views::default() }),
            // Somebody else was faster.
            Err(StoreError::SessionExists(_)) => self.refresh(key, None).await,
            Err(error) => Err(error.into()),
        }
    }

    /// One turn, from the session as it is to what is `kept` of it for the next turn.
    // What it takes is what one call of `run` consists of.
    #[allow(clippy::too_many_arguments)]
    async fn turn(
        &self,
        app: Arc<App>,
        key: SessionKey,
        request: RunRequest,
        invocation_id: String,
        Live { session, views }: Live,
        kept: &mut Option<Live>,
        client: mpsc::Sender<Result<Arc<Event>, RunError>>,
    ) -> Result<(), RunError> {
        let invocation = Arc::new(Invocation {
            id: invocation_id,
            session_key: key,
            user_content: RwLock::new(Arc::new(as_user(request.message.unwrap_or_default()))),
            run_config: request.config,
            services: self.0.services.clone(),
            cancel: request.cancel,
            session: RwLock::new(session),
            spent: Arc::default(),
            depth: 0,
        });
        let plugins = &self.0.plugins;
        let cx = CallContext::new(invocation.clone(), app.root().name.as_str(), None);
        let log = EventLog::new(cx.clone(), plugins.clone(), client);
        let frame = Frame::new(app, invocation.clone(), plugins.clone(), views);
        let conversation = AssertUnwindSafe(converse(&frame, &cx, &log, request.state_delta)).catch_unwind().await;
        let result = match conversation.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))) {
            Ok(()) | Err(RunError::Stopped) => Ok(()),
            Err(error) => {
                plugins.on_run_error(&cx, &error).await;
                Err(report(&frame, &log, error).await)
            }
        };
        log.close().await;
        let session = invocation.session.read().unwrap_or_else(PoisonError::into_inner).clone();
        self.0.turns.note_size(&session.key, session.events.len());
        *kept = Some(Live { session, views: frame.take_views() });
        result
    }

    /// The session as the service has it now: what is known of it, and the events that were appended elsewhere since.
    async fn refresh(&self, key: &SessionKey, live: Option<Live>) -> Result<Live, RunError> {
        let sessions = &self.0.services.sessions;
        let missing = || RunError::from(StoreError::SessionNotFound(key.clone()));
        if let Some(live) = live {
            let window = EventWindow::AfterRevision(live.session.revision);
            let now = sessions.get(key, window).await?.ok_or_else(missing)?;
            if now.created == live.session.created && now.revision >= live.session.revision {
                let mut events = live.session.events;
                events.append(now.events);
                return Ok(Live { session: Session { events, ..now }, views: live.views });
            }
        }
        let session = sessions.get(key, EventWindow::All).await?.ok_or_else(missing)?;
        Ok(Live { session, views: Views::default() })
    }
}

/// Stores the user's message, then lets the agent whose turn it is answer, unless a plugin does.
async fn converse(frame: &Arc<Frame>, cx: &CallContext, log: &EventLog, state_delta: JsonMap) -> Result<(), RunError> {
    let Frame { app, invocation, plugins, .. } = frame.as_ref();
    let state_delta = invocation.without_temp(state_delta);
    cx.actions().state_delta.extend(state_delta);
    if let Some(message) = plugins.on_user_message(cx, &invocation.user_content()).await? {
        *invocation.user_content.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(as_user(message));
    }
    log.record_message(event(cx, USER, Some(invocation.user_content()))).await?;
    let answer = plugins.before_run(cx).await?;
    if answer.is_some() || !cx.actions().is_empty() {
        log.emit(event(cx, "model", answer.clone().map(as_model).map(Arc::new))).await?;
    }
    if answer.is_none() {
        let (agent, branch) = continuation::agent_to_run(&app.tree, &invocation.events());
        let run = agents::run(frame.clone(), agent, branch, Arc::new(log.clone()));
        invocation.cancel.run_until_cancelled(run).await.ok_or(RunError::Cancelled)??;
    }
    plugins.after_run(cx).await?;
    if !cx.actions().is_empty() {
        log.emit(event(cx, "model", None)).await?;
    }
    Ok(())
}

/// An event of the run itself, with the changes that are pending in `cx`.
fn event(cx: &CallContext, author: &str, content: Option<Arc<Content>>) -> Arc<Event> {
    let mut actions = cx.take_actions();
    actions.state_delta = cx.invocation.without_temp(actions.state_delta);
    let invocation_id = cx.invocation.id.clone();
    Event::new(EventData { invocation_id, author: author.into(), content, actions, ..EventData::default() })
}

/// Puts a failure into the session, where the client and later readers find it, unless an event says it already.
async fn report(frame: &Frame, log: &EventLog, error: RunError) -> RunError {
    if matches!(error, RunError::Reported { .. }) {
        return error;
    }
    tracing::warn!(invocation = %frame.invocation.id, session = %frame.invocation.session_key, code = error.code(), "run failed: {error}");
    let event = Event::new(EventData {
        invocation_id: frame.invocation.id.clone(),
        author: frame.culprit(),
        error_code: Some(error.code().into()),
        error_message: Some(error.client_message()),
        ..EventData::default()
    });
    if let Err(failure) = log.record_failure(event).await {
        tracing::error!(invocation = %frame.invocation.id, "the failure could not be stored: {failure}");
    }
    error
}

fn as_user(mut message: Content) -> Content {
    message.role.get_or_insert_with(|| USER.into());
    message
}

fn as_model(mut message: Content) -> Content {
    message.role.get_or_insert_with(|| "model".into());
    message
}

/// A defect in native code must not take a client's answer, or the session, with it.
fn panicked(panic: &(dyn std::any::Any + Send)) -> RunError {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    RunError::Internal(text.unwrap_or("no message").into())
}

/// Counts a run for as long as it lives.
struct ActiveRun(Arc<Shared>);

impl ActiveRun {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.active.send_modify(|active| *active += 1);
        Self(shared.clone())
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        self.0.active.send_modify(|active| *active = active.saturating_sub(1));
    }
}
