//! A turn from start to end: check, wait for the session's turn, store the user's message, choose the agent, run it, report.

mod blobs;
mod continuation;
mod log;
mod message;
mod resumption;
mod turns;

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{MaybeDone, maybe_done};
use futures::{FutureExt, Stream, poll};
use hatchery_core::{
    CallContext, Caller, CallerOrigin, Claim, Content, Event, EventData, EventSigner, EventSink, EventWindow,
    Invocation, JsonMap, NewInvocation, Plugin, RunConfig, RunError, Services, Session, SessionKey, StoreError,
    USER_AUTHOR, check_message, new_invocation_id,
};
use imbl::Vector;
use tokio::sync::{OwnedMutexGuard, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::agents::past::Past;
use crate::agents::{self, Frame, Lane};
use crate::app::App;
use crate::history::compaction::{self, Compactions};
use crate::plugins::{PluginSource, Plugins, PrependedPlugin};
use crate::provenance::Verifier;
use log::{Client, EventLog};
use resumption::Resumed;
use turns::{Live, Turns};

/// Events that a client has not read yet; a slow client slows its run down from here on.
const UNREAD_EVENTS: usize = 64;

/// Runs agents for users. Cheap to clone; clones share the turns of sessions.
#[derive(Clone)]
pub struct Runner(Arc<Shared>);

struct Shared {
    services: Services,
    plugins: Arc<dyn PluginSource>,
    turns: Turns,
    active: watch::Sender<usize>,
    compactions: Compactions,
    signer: EventSigner,
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
    /// The run that is to go on, with what has been stored of it; nothing begins a new one. In an app that is resumable, a message that
    /// answers a function call goes on with the run of that call by itself, for as long as the run waits for it.
    pub invocation_id: Option<String>,
    /// State to set along with the message.
    pub state_delta: JsonMap,
    /// How the run is wanted.
    pub config: RunConfig,
    /// How the request reached the host.
    pub origin: CallerOrigin,
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
            origin: CallerOrigin::default(),
            cancel: CancellationToken::new(),
        }
    }

    /// A request to go on with an interrupted run.
    pub fn resume(user: impl Into<String>, session: impl Into<String>, invocation_id: impl Into<String>) -> Self {
        let request = Self::new(user, session, Content::default());
        Self { message: None, invocation_id: Some(invocation_id.into()), ..request }
    }
}

/// A run under way: a stream of its events. Dropping it does not stop the run; [`RunRequest::cancel`] does.
#[derive(Debug)]
pub struct Run {
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

    /// A runner on these services, whose runs pass the plugins that this gives when they begin. It proves its own events by a key of this
    /// process, so that runs go on and requests can be answered for as long as the process lives.
    pub fn with_plugins(services: Services, plugins: impl PluginSource + 'static) -> Self {
        Self::with_signer(services, plugins, EventSigner::of_process())
    }

    /// The same with a key that outlives the process, or that other processes with the same sessions have too.
    pub fn with_signer(services: Services, plugins: impl PluginSource + 'static, signer: EventSigner) -> Self {
        let (plugins, turns) = (Arc::new(plugins), Turns::default());
        let (active, compactions) = (watch::Sender::new(0), Compactions::default());
        Self(Arc::new(Shared { services, plugins, turns, active, compactions, signer }))
    }

    /// Looks the plugins up again, so that nothing holds on to those that have been replaced although no run begins.
    ///
    /// # Errors
    /// When one of them is not there.
    pub fn refresh_plugins(&self) -> Result<(), RunError> {
        self.0.plugins.current().map(|_| ())
    }

    /// A runner of its own on these services, whose runs pass this plugin before those of this runner, and instead of the one that has its
    /// name.
    #[must_use]
    pub fn with_prepended_plugin(&self, services: Services, plugin: Arc<dyn Plugin>) -> Self {
        Self::with_signer(services, PrependedPlugin { plugin, rest: self.0.plugins.clone() }, self.0.signer.clone())
    }

    /// Waits until no run and no compaction is under way, then closes the plugins.
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

    /// Waits until no run is under way, and for the compactions that the runs have led to: those that take longer than ten seconds are
    /// given up.
    pub async fn drain(&self) {
        let mut active = self.0.active.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = active.wait_for(|active| *active == 0).await;
        self.0.compactions.drain().await;
    }

    /// Starts a run in a task of its own. Turns of one session follow each other in the order of their calls; a failed turn does not hold
    /// up the next.
    ///
    /// # Errors
    /// When the message is none that a user can say, an id is too long or has control characters, the session does not
    /// exist and is not to be created, there is no run to go on with, or a plugin is not there.
    pub async fn run(&self, app: Arc<App>, request: RunRequest) -> Result<Run, RunError> {
        message::check(&request)?;
        let plugins = self.0.plugins.current()?;
        let key = SessionKey::new(app.name.as_str(), request.user.as_str(), request.session.as_str());
        key.check()?;
        let create = request.config.auto_create_session;
        let turn = self.queue(&key, create).await?;
        if let Turn::Begun(live, _) = &turn {
            message::check_answers(&request, &live.session.events)?;
            Resumed::find(&app, &request, &live.session.events, &self.verifier(&key))?;
        }
        let (client, events) = mpsc::channel(UNREAD_EVENTS);
        let active = ActiveRun::new(&self.0);
        let runner = self.clone();
        tokio::spawn(async move {
            let result = match request.cancel.run_until_cancelled(runner.begin(&key, turn, create)).await {
                Some(Ok((live, mut kept))) => {
                    let wanted = Wanted { app, plugins, request, client: client.clone() };
                    runner.turn(key, wanted, live, &mut kept).await
                }
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
        Ok(Run { events })
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
            Ok(session) => Ok(Live::new(session)),
            // Somebody else was faster.
            Err(StoreError::SessionExists(_)) => self.refresh(key, None).await,
            Err(error) => Err(error.into()),
        }
    }

    /// One turn, from the session as it is to what is `kept` of it for the next turn.
    async fn turn(&self, key: SessionKey, wanted: Wanted, live: Live, kept: &mut Option<Live>) -> Result<(), RunError> {
        let Wanted { app, plugins, request, client } = wanted;
        let Live { session, views, bytes } = live;
        let checked = message::check_answers(&request, &session.events);
        let found = checked.and_then(|()| Resumed::find(&app, &request, &session.events, &self.verifier(&key)));
        let resumed = match found {
            Ok(resumed) => resumed,
            Err(error) => {
                *kept = Some(Live { session, views, bytes });
                return Err(error);
            }
        };
        let known = session.events.len();
        let message = request.message.map(|message| Arc::new(as_user(message)));
        let (id, user_content, told) = match &resumed {
            Some(run) => {
                let events = &session.events;
                (run.invocation_id.clone(), run.user_content(events), run.event_ids(events))
            }
            None => (new_invocation_id(), message.clone().unwrap_or_default(), HashSet::new()),
        };
        let (invocation, writer) = Invocation::new(NewInvocation {
            id,
            session,
            user_content,
            caller: Caller::claimed(key.user, request.origin),
            run_config: app.settings.run.over(request.config),
            services: self.0.services.clone(),
            cancel: request.cancel,
            signer: self.0.signer.clone(),
        });
        let cx = CallContext::new(invocation.clone(), app.root().name.as_str(), None);
        let log = EventLog::new(cx.clone(), writer, plugins.clone(), client, told);
        let compactions = Some(self.0.compactions.clone());
        let frame = Frame::new(app, invocation.clone(), plugins.clone(), views, compactions);
        let said = Said { message, state_delta: request.state_delta };
        let conversation = AssertUnwindSafe(converse(&frame, &cx, &log, said, resumed)).catch_unwind().await;
        let conversation = conversation.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
        // A limit ends the run also if the agent that reached it goes on as if nothing had happened.
        let result = match invocation.exceeded_limit().map_or(conversation, Err) {
            Ok(()) | Err(RunError::Stopped) => Ok(()),
            Err(error) => {
                plugins.on_run_error(&cx, &error).await;
                Err(report(&frame, &log, error).await)
            }
        };
        log.close().await;
        compaction::after_run(&frame);
        let session = invocation.session();
        let bytes = bytes + turns::json_bytes(&session.events.skip(known));
        self.0.turns.note_size(&session.key, session.events.len(), bytes);
        *kept = Some(Live { session, views: frame.take_views(), bytes });
        result
    }

    fn verifier<'a>(&'a self, session: &'a SessionKey) -> Verifier<'a> {
        Verifier { signer: &self.0.signer, session }
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
                let bytes = live.bytes + turns::json_bytes(&now.events);
                events.append(now.events);
                return Ok(Live { session: Session { events, ..now }, views: live.views, bytes });
            }
        }
        let session = sessions.get(key, EventWindow::All).await?.ok_or_else(missing)?;
        Ok(Live::new(session))
    }
}

/// What one turn is to do, and who is to hear of it.
struct Wanted {
    app: Arc<App>,
    plugins: Plugins,
    request: RunRequest,
    client: Client,
}

/// What the user brings to a turn.
struct Said {
    /// Nothing when an interrupted run goes on as it is.
    message: Option<Arc<Content>>,
    state_delta: JsonMap,
}

/// Stores the user's message, then lets the agent whose turn it is answer, unless a plugin does.
async fn converse(
    frame: &Arc<Frame>,
    cx: &CallContext,
    log: &EventLog,
    said: Said,
    resumed: Option<Resumed>,
) -> Result<(), RunError> {
    let Frame { app, invocation, plugins, .. } = frame.as_ref();
    let message = record(frame, cx, log, said, resumed.is_none()).await?;
    let answer = plugins.before_run(cx).await?;
    if answer.is_some() || !cx.actions().is_empty() {
        log.emit(event(cx, "model", answer.clone().map(as_model).map(Arc::new))).await?;
    }
    if answer.is_none() {
        let events = invocation.events();
        let (beginning, past) = match &resumed {
            Some(run) => (run.beginning(&events), run.past(&app.tree, &events)),
            None => (up_to(events, message.as_deref()), Past::none()),
        };
        // A summary of older events may have come in after what the user said.
        let said = |event: &&Arc<Event>| event.author == USER_AUTHOR && event.actions.compaction.is_none();
        if let Some(opening) = beginning.iter().rev().find(said) {
            frame.open(opening.clone());
        }
        let (agent, branch) = continuation::agent_to_run(&app.tree, &beginning, &Verifier::of(invocation));
        let run = agents::run(frame.clone(), agent, Lane { branch, past, sink: Arc::new(log.clone()) });
        invocation.cancel.run_until_cancelled(run).await.ok_or(RunError::Cancelled)??;
    }
    plugins.after_run(cx).await?;
    if !cx.actions().is_empty() {
        log.emit(event(cx, "model", None)).await?;
    }
    Ok(())
}

/// The events up to `message`. Others may have come after it already: what a plugin sets, or a compaction.
fn up_to(events: Vector<Arc<Event>>, message: Option<&Event>) -> Vector<Arc<Event>> {
    let place = message.and_then(|message| events.iter().rposition(|event| event.id == message.id));
    match place {
        Some(place) if place + 1 < events.len() => events.take(place + 1),
        Some(_) | None => events,
    }
}

/// Stores what the user says and sets, and gives what they say; it opens the run, or answers a call of a run that goes on.
async fn record(
    frame: &Frame,
    cx: &CallContext,
    log: &EventLog,
    Said { message, state_delta }: Said,
    opens: bool,
) -> Result<Option<Arc<Event>>, RunError> {
    let Frame { invocation, plugins, .. } = frame;
    let state_delta = invocation.apply_temp_state(state_delta);
    cx.actions().state_delta.extend(state_delta);
    let Some(mut message) = message else {
        if !cx.actions().is_empty() {
            log.record_message(event(cx, USER_AUTHOR, None)).await?;
        }
        return Ok(None);
    };
    if let Some(replacement) = plugins.on_user_message(cx, &message).await? {
        check_message(&replacement)?;
        message = Arc::new(as_user(replacement));
        if opens {
            log.set_user_content(message.clone());
        }
    }
    let message = blobs::kept_as_artifacts(cx, message).await?;
    let mut message = event_data(cx, USER_AUTHOR, Some(message));
    if opens {
        invocation.signer.sign(&invocation.session_key, &mut message, Claim::Run);
    }
    let message = Event::new(message);
    log.record_message(message.clone()).await?;
    Ok(Some(message))
}

/// An event of the run itself, with the changes that are pending in `cx`.
fn event(cx: &CallContext, author: &str, content: Option<Arc<Content>>) -> Arc<Event> {
    Event::new(event_data(cx, author, content))
}

fn event_data(cx: &CallContext, author: &str, content: Option<Arc<Content>>) -> EventData {
    let mut actions = cx.take_actions();
    actions.state_delta = cx.invocation.apply_temp_state(actions.state_delta);
    let invocation_id = cx.invocation.id.clone();
    EventData { invocation_id, author: author.into(), content, actions, ..EventData::default() }
}

/// Puts a failure into the session, where the client and later readers find it, unless an event says it already.
async fn report(frame: &Frame, log: &EventLog, error: RunError) -> RunError {
    if matches!(error, RunError::AlreadyReported { .. }) {
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
    message.role.get_or_insert_with(|| USER_AUTHOR.into());
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
