//! Live runs: conversations whose requests arrive one by one.
//!
//! An agent with a live model holds the conversation in one run, which reads the queue itself (`llm/live.rs`). For any
//! other agent each message of the user is a separate run, as if it had been sent to [`Runner::run`]. Both kinds
//! follow each other in one conversation if its agents transfer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    AgentId, Blob, CallContext, CallerOrigin, Content, Event, EventData, EventWindow, Invocation, JsonMap, LiveRequest,
    LiveRequestQueue, PartData, QueuedRequest, RunConfig, RunError, SessionKey, StoreError, StreamingMode, TraceParent,
    USER_AUTHOR, check_message,
};
use imbl::Vector;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::agent_selection::agents_to_run;
use super::event_log::{EventLog, EventSender};
use super::nested::count_message;
use super::request::check_state;
use super::user_message::{MessageKind, UserInput, append_user_message, with_role};
use super::{ActiveRun, MAX_UNREAD_EVENTS, Run, RunKind, RunRequest, Runner};
use crate::app::App;
use crate::provenance::Verifier;
use crate::run::{ConversingFlag, LiveInput, LiveMessage, MessageLog, PendingMessage, RunContext, is_live};
use crate::tasks::in_current_scope;
use crate::tools::credential;

/// Maximum size in bytes of a message by default.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Time in which a conversation stores what was said after its client has hung up.
const HANG_UP_PERIOD: Duration = Duration::from_secs(5);

/// A request for a live run.
#[derive(Debug, Clone)]
pub struct LiveRunRequest {
    /// The user's id.
    pub user: String,
    /// The session's id.
    pub session: String,
    /// The settings of each turn. The app's settings take precedence.
    pub config: RunConfig,
    /// How the request reached the host.
    pub origin: CallerOrigin,
    /// The span of the caller that the turns are part of.
    pub trace_parent: Option<TraceParent>,
    /// Maximum size in bytes of a message, as JSON, whose parts arrive one by one. The default is 16 MiB.
    pub max_message_bytes: usize,
    /// Cancels the turn in progress, and ends the run.
    pub cancel: CancellationToken,
}

impl LiveRunRequest {
    /// Returns a request with defaults for everything else.
    pub fn new(user: impl Into<String>, session: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            session: session.into(),
            config: RunConfig::default(),
            origin: CallerOrigin::default(),
            trace_parent: None,
            max_message_bytes: MAX_MESSAGE_BYTES,
            cancel: CancellationToken::new(),
        }
    }
}

impl Runner {
    /// Starts a live run, which answers the requests of `queue` until it is closed. Its events are the events of its
    /// turns, chunks included; an event with `turn_complete` ends each turn. A turn that fails ends the run with its
    /// error. A text turn leaves the session to others until the next one; a live model keeps it. It counts as one run
    /// until its end. If the run is dropped, the conversation of a live model ends as if the queue was closed, and any
    /// other turn is cancelled.
    ///
    /// # Errors
    /// If an id is invalid, or the session does not exist and `auto_create_session` is off.
    pub async fn run_live(
        &self,
        app: Arc<App>,
        request: LiveRunRequest,
        queue: LiveRequestQueue,
    ) -> Result<Run, RunError> {
        self.converse(app, request, queue, None).await
    }

    /// Starts a live run, possibly one that the code of another run has opened.
    pub(super) async fn converse(
        &self,
        app: Arc<App>,
        request: LiveRunRequest,
        queue: LiveRequestQueue,
        parent: Option<Arc<Invocation>>,
    ) -> Result<Run, RunError> {
        let key = SessionKey::new(app.name.as_str(), request.user.as_str(), request.session.as_str());
        key.check()?;
        if !request.config.auto_create_session
            && self.0.services.sessions.get(&key, EventWindow::Recent(0)).await?.is_none()
        {
            return Err(StoreError::SessionNotFound(key).into());
        }
        let (client, events) = mpsc::channel(MAX_UNREAD_EVENTS);
        let cancel = request.cancel.child_token();
        let request = LiveRunRequest { cancel: cancel.clone(), ..request };
        // Code may wait for capacity in the queue without reading the events, which report that there will be none.
        let abandoned = parent.is_some().then(|| queue.clone());
        let start = LiveStart {
            queue,
            conversing: ConversingFlag::default(),
            first: Arc::default(),
            pending: Arc::new(Mutex::new(PendingMessage::new(request.max_message_bytes))),
            active_run: Arc::new(ActiveRun::new(&self.0)),
            parent,
        };
        let conversation = Conversation { runner: self.clone(), app, key, request, start, client: client.clone() };
        tokio::spawn(in_current_scope(async move {
            let result = conversation.run_until_hang_up(&cancel).await;
            // Cancels a turn that is still in progress.
            cancel.cancel();
            if let Some(queue) = abandoned {
                queue.stop();
            }
            if let Err(error) = result {
                // Fails if the client is gone.
                let _ = client.send(Err(error)).await;
            }
        }));
        Ok(Run { events, id: None, begin_signal: None })
    }
}

/// A live run in progress.
struct Conversation {
    runner: Runner,
    /// The app as it was at the beginning.
    app: Arc<App>,
    key: SessionKey,
    request: LiveRunRequest,
    /// Shared with each turn.
    start: LiveStart,
    client: EventSender,
}

/// The input that begins a turn.
enum TurnInput {
    /// A message of the user.
    Message(LiveMessage),
    /// Another request, for a live agent.
    Request(QueuedRequest),
}

impl Conversation {
    /// Runs until the end, or until the client no longer reads. Then a live model's conversation ends as if the client
    /// had closed the queue, so that what was said is stored.
    ///
    /// # Errors
    /// [`RunError::Cancelled`] if anything else was in progress then, and the error of a turn.
    async fn run_until_hang_up(self, cancel: &CancellationToken) -> Result<(), RunError> {
        let (client, queue, conversing) =
            (self.client.clone(), self.start.queue.clone(), self.start.conversing.clone());
        let mut running = self.run().boxed();
        tokio::select! {
            result = &mut running => result,
            () = cancel.cancelled() => Err(RunError::Cancelled),
            () = client.closed() => {
                if !conversing.is_set() {
                    return Err(RunError::Cancelled);
                }
                queue.close();
                let ended = tokio::time::timeout(HANG_UP_PERIOD, cancel.run_until_cancelled(running)).await;
                ended.ok().flatten().unwrap_or(Err(RunError::Cancelled))
            }
        }
    }

    async fn run(self) -> Result<(), RunError> {
        // True between the start and the end of an activity: all that arrives in between is one message.
        let mut is_open = false;
        while let Some(request) = self.start.queue.next().await {
            let app = self.current_app();
            if let Some(input) = self.input(&app, &mut is_open, request).await? {
                self.run_turn(app, input).await?;
            }
        }
        Ok(())
    }

    /// Returns the app as it is loaded now, or as it was at the beginning if it is no longer there.
    fn current_app(&self) -> Arc<App> {
        let loaded = self.runner.0.apps.get().and_then(|apps| apps.app(&self.app.name));
        loaded.unwrap_or_else(|| self.app.clone())
    }

    /// Returns the turn that a request begins, or `None` if its message is not complete yet.
    async fn input(
        &self,
        app: &App,
        is_open: &mut bool,
        QueuedRequest { request, reservations }: QueuedRequest,
    ) -> Result<Option<TurnInput>, RunError> {
        let pending = || self.start.pending.lock_unpoisoned();
        match request {
            LiveRequest::Content { content, partial, state_delta } => {
                pending().add(content.parts, state_delta, reservations)?;
                let is_complete = !partial && !*is_open;
                Ok(is_complete.then(|| pending().take()).flatten().map(TurnInput::Message))
            }
            LiveRequest::ActivityEnd => {
                *is_open = false;
                Ok(pending().take().map(TurnInput::Message))
            }
            LiveRequest::ActivityStart | LiveRequest::Blob(_) if !*is_open => {
                let agent = self.next_agent(app).await?;
                match request {
                    request if is_live(&app.tree, agent, self.runner.services().models.as_ref()) => {
                        Ok(Some(TurnInput::Request(QueuedRequest { request, reservations })))
                    }
                    LiveRequest::Blob(blob) => Err(not_live(app, agent, &blob)),
                    _ => {
                        *is_open = true;
                        Ok(None)
                    }
                }
            }
            LiveRequest::Blob(blob) if is_media_stream(&blob) => Err(not_live(app, self.next_agent(app).await?, &blob)),
            LiveRequest::Blob(blob) => {
                pending().add(vec![PartData::InlineData(blob).into()], JsonMap::new(), reservations)?;
                Ok(None)
            }
            // The activity has begun already, nothing was streamed, or the queue has ended.
            LiveRequest::ActivityStart | LiveRequest::AudioStreamEnd | LiveRequest::Close => Ok(None),
            LiveRequest::ToolResponses(_) => {
                let message = "a live run has no tool responses from outside; send a `functionResponse` in a `content`";
                Err(RunError::BadInput(message.into()))
            }
        }
    }

    /// Returns the agent that answers next.
    async fn next_agent(&self, app: &App) -> Result<AgentId, RunError> {
        let session = self.runner.services().sessions.get(&self.key, EventWindow::All).await?;
        let events = match session {
            Some(session) => session.events,
            None if self.request.config.auto_create_session => Vector::new(),
            None => return Err(StoreError::SessionNotFound(self.key.clone()).into()),
        };
        let tree = &app.tree;
        let agents = agents_to_run(tree, &events, &self.runner.0.verifier(&self.key));
        Ok(agents.first().map_or(tree.root(), |(agent, _)| *agent))
    }

    /// Runs a turn, and forwards its events.
    async fn run_turn(&self, app: Arc<App>, input: TurnInput) -> Result<(), RunError> {
        let LiveRunRequest { user, session, config, origin, trace_parent, max_message_bytes: _, cancel } =
            self.request.clone();
        let live = Some(config.live.clone().unwrap_or_default());
        let config = RunConfig { streaming_mode: StreamingMode::On, live, ..config };
        let (message, state_delta, first, _reservations) = match input {
            TurnInput::Message(LiveMessage { content, state_delta, reservations }) => {
                (Some(content), state_delta, None, reservations)
            }
            TurnInput::Request(request) => (None, JsonMap::new(), Some(request), Vec::new()),
        };
        let new = RunRequest::new(user, session, Content::default());
        let request = RunRequest { message, state_delta, config, origin, trace_parent, cancel, ..new };
        if let (Some(parent), Some(message)) = (&self.start.parent, &request.message) {
            count_message(parent, message)?;
        }
        *self.start.first.lock_unpoisoned() = first;
        let mut run = self.runner.start(app.clone(), request, RunKind::Live(self.start.clone())).await?;
        let mut last: Option<Arc<Event>> = None;
        let mut is_complete = false;
        while let Some(event) = run.next().await {
            let event = event?;
            is_complete |= event.turn_complete == Some(true);
            last = Some(event.clone());
            self.send(event).await;
        }
        if self.start.first.lock_unpoisoned().take().is_some() {
            // A plugin or a callback has answered instead of the agent, so further requests have no receiver.
            self.start.queue.stop();
        }
        if is_complete {
            return Ok(());
        }
        let (invocation_id, author) = match last {
            Some(event) => (event.invocation_id.clone(), event.author.clone()),
            None => (run.id().unwrap_or_default().to_owned(), app.root().name.clone()),
        };
        let end = EventData { invocation_id, author, turn_complete: Some(true), ..EventData::default() };
        self.send(Event::new(end)).await;
        Ok(())
    }

    /// Sends an event, unless the client has hung up.
    async fn send(&self, event: Arc<Event>) {
        let _ = self.client.send(Ok((None, event))).await;
    }
}

fn not_live(app: &App, agent: AgentId, blob: &Blob) -> RunError {
    let name = &app.tree.agent(agent).name;
    RunError::BadInput(format!("agent `{name}` has no live model and takes no `{}`; send text", blob.mime_type))
}

fn is_media_stream(blob: &Blob) -> bool {
    ["audio/", "video/"].iter().any(|kind| blob.mime_type.starts_with(kind))
}

/// Data that the turns of a live run share.
#[derive(Clone)]
pub(super) struct LiveStart {
    queue: LiveRequestQueue,
    /// The first request of the turn, until an agent takes it. `None` if a message begins the turn.
    first: Arc<Mutex<Option<QueuedRequest>>>,
    /// The message whose parts are still arriving.
    pending: Arc<Mutex<PendingMessage>>,
    conversing: ConversingFlag,
    pub(super) active_run: Arc<ActiveRun>,
    /// The run whose code has opened this one.
    pub(super) parent: Option<Arc<Invocation>>,
}

impl LiveStart {
    /// Returns the queue of the run.
    pub(super) fn queue(&self) -> LiveRequestQueue {
        self.queue.clone()
    }

    /// Returns the input of the run, whose messages are stored in `log`.
    pub(super) fn into_input(self, cx: &CallContext, log: &EventLog) -> LiveInput {
        let messages = Arc::new(LiveMessages { cx: cx.clone(), log: log.clone() });
        let Self { queue, first, pending, conversing, .. } = self;
        LiveInput { queue, first, pending, messages, conversing }
    }
}

/// Stores messages that arrive while a run is in progress, as the first one is stored.
struct LiveMessages {
    cx: CallContext,
    log: EventLog,
}

#[async_trait]
impl MessageLog for LiveMessages {
    async fn append(&self, run: &RunContext, message: Content, state: JsonMap) -> Result<Arc<Content>, RunError> {
        check_message(&message)?;
        check_state(&state)?;
        if let Some(parent) = &run.invocation.parent {
            count_message(parent, &message)?;
        }
        let invocation = &run.invocation;
        let (events, verifier) = (invocation.events(), Verifier::new(invocation));
        let message = Arc::new(with_role(message, USER_AUTHOR));
        let message = Some(credential::receive(message, &events, &verifier, &invocation.services).await?);
        let input = UserInput { message, state_delta: state, begun: None };
        let stored = append_user_message(run, &self.cx, &self.log, input, MessageKind::Further).await?;
        Ok(stored.and_then(|event| event.content.clone()).unwrap_or_default())
    }
}
