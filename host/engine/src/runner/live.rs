//! Live runs: conversations whose requests arrive one by one.
//!
//! An agent with a live model holds the conversation in one run, which reads the queue itself (`llm/live.rs`). For any
//! other agent each message of the user is a run of its own, as if it had been sent to [`Runner::run`]. Both kinds
//! follow each other in one conversation if its agents transfer.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    AgentId, Blob, CallContext, CallerOrigin, Content, Event, EventData, EventWindow, JsonMap, LiveRequest,
    LiveRequestQueue, Part, PartData, RunConfig, RunError, SessionKey, StoreError, StreamingMode, USER_AUTHOR,
};
use imbl::Vector;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::agent_selection::agents_to_run;
use super::event_log::{EventLog, EventSender};
use super::turn::{UserInput, append_user_message, with_role};
use super::{MAX_UNREAD_EVENTS, Run, RunKind, RunRequest, Runner};
use crate::app::App;
use crate::run::{LiveInput, MessageLog, RunContext, is_live};

/// A request for a live run.
#[derive(Debug, Clone)]
pub struct LiveRunRequest {
    /// The user's id.
    pub user: String,
    /// The session's id.
    pub session: String,
    /// The settings of each turn. Those of the app take precedence.
    pub config: RunConfig,
    /// How the request reached the host.
    pub origin: CallerOrigin,
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
            cancel: CancellationToken::new(),
        }
    }
}

impl Runner {
    /// Starts a live run, which answers the requests of `queue` until that is closed. Its events are those of its turns,
    /// chunks included; an event with `turn_complete` ends each turn. A turn that fails ends the run with its error. A
    /// text turn leaves the session to others until the next one; a live model keeps it.
    ///
    /// # Errors
    /// If an id is invalid, or the session does not exist and `auto_create_session` is off.
    pub async fn run_live(
        &self,
        app: Arc<App>,
        request: LiveRunRequest,
        queue: LiveRequestQueue,
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
        let conversation = Conversation { runner: self.clone(), app, key, request, queue, client: client.clone() };
        tokio::spawn(async move {
            let result = tokio::select! {
                result = conversation.run() => result,
                () = cancel.cancelled() => Err(RunError::Cancelled),
                // Nobody reads the answers.
                () = client.closed() => Err(RunError::Cancelled),
            };
            // A turn that is left does not go on.
            cancel.cancel();
            if let Err(error) = result {
                // Fails if the client is gone.
                let _ = client.send(Err(error)).await;
            }
        });
        Ok(Run { events, id: None, begun: None })
    }
}

/// A live run in progress.
struct Conversation {
    runner: Runner,
    /// The app as it was at the beginning.
    app: Arc<App>,
    key: SessionKey,
    request: LiveRunRequest,
    queue: LiveRequestQueue,
    client: EventSender,
}

/// The message of a turn, while its parts arrive.
#[derive(Default)]
struct PendingTurn {
    parts: Vec<Part>,
    state_delta: JsonMap,
    /// True between the start and the end of an activity: all that arrives in between is one message.
    is_open: bool,
}

/// What a turn begins with.
enum TurnInput {
    /// A message of the user, with changes of state.
    Message(Content, JsonMap),
    /// Another request, for a live agent.
    Request(LiveRequest),
}

impl Conversation {
    async fn run(self) -> Result<(), RunError> {
        let mut pending = PendingTurn::default();
        while let Some(request) = self.queue.next().await {
            let app = self.current_app();
            if let Some(input) = self.input(&app, &mut pending, request).await? {
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
        pending: &mut PendingTurn,
        request: LiveRequest,
    ) -> Result<Option<TurnInput>, RunError> {
        match request {
            LiveRequest::Content { content, partial, state_delta } => {
                pending.parts.extend(content.parts);
                pending.state_delta.extend(state_delta);
                Ok((!partial && !pending.is_open).then(|| pending.take()).flatten())
            }
            LiveRequest::ActivityEnd => {
                pending.is_open = false;
                Ok(pending.take())
            }
            LiveRequest::ActivityStart | LiveRequest::Blob(_) if !pending.is_open => {
                let agent = self.next_agent(app).await?;
                match request {
                    request if is_live(&app.tree, agent, self.runner.services().models.as_ref()) => {
                        Ok(Some(TurnInput::Request(request)))
                    }
                    LiveRequest::Blob(blob) => Err(not_live(app, agent, &blob)),
                    _ => {
                        pending.is_open = true;
                        Ok(None)
                    }
                }
            }
            LiveRequest::Blob(blob) if is_media_stream(&blob) => Err(not_live(app, self.next_agent(app).await?, &blob)),
            LiveRequest::Blob(blob) => {
                pending.parts.push(PartData::InlineData(blob).into());
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

    /// Runs a turn, and passes its events on.
    async fn run_turn(&self, app: Arc<App>, input: TurnInput) -> Result<(), RunError> {
        let LiveRunRequest { user, session, config, origin, cancel } = self.request.clone();
        let live = Some(config.live.clone().unwrap_or_default());
        let config = RunConfig { streaming_mode: StreamingMode::On, live, ..config };
        let (message, state_delta, first) = match input {
            TurnInput::Message(message, state_delta) => (Some(message), state_delta, None),
            TurnInput::Request(request) => (None, JsonMap::new(), Some(request)),
        };
        let new = RunRequest::new(user, session, Content::default());
        let request = RunRequest { message, state_delta, config, origin, cancel, ..new };
        let start = LiveStart { queue: self.queue.clone(), first };
        let mut run = self.runner.start(app.clone(), request, RunKind::Live(start)).await?;
        let mut last: Option<Arc<Event>> = None;
        let mut is_complete = false;
        while let Some(event) = run.next().await {
            let event = event?;
            is_complete |= event.turn_complete == Some(true);
            last = Some(event.clone());
            self.send(event).await?;
        }
        if is_complete {
            return Ok(());
        }
        let (invocation_id, author) = match last {
            Some(event) => (event.invocation_id.clone(), event.author.clone()),
            None => (run.id().unwrap_or_default().to_owned(), app.root().name.clone()),
        };
        let end = EventData { invocation_id, author, turn_complete: Some(true), ..EventData::default() };
        self.send(Event::new(end)).await
    }

    async fn send(&self, event: Arc<Event>) -> Result<(), RunError> {
        self.client.send(Ok(event)).await.map_err(|_| RunError::Cancelled)
    }
}

fn not_live(app: &App, agent: AgentId, blob: &Blob) -> RunError {
    let name = &app.tree.agent(agent).name;
    RunError::BadInput(format!("agent `{name}` has no live model and takes no `{}`; send text", blob.mime_type))
}

fn is_media_stream(blob: &Blob) -> bool {
    ["audio/", "video/"].iter().any(|kind| blob.mime_type.starts_with(kind))
}

impl PendingTurn {
    /// Removes and returns the message, unless it has no parts.
    fn take(&mut self) -> Option<TurnInput> {
        let Self { parts, state_delta, .. } = std::mem::take(self);
        (!parts.is_empty()).then(|| TurnInput::Message(Content::new(USER_AUTHOR, parts), state_delta))
    }
}

/// The requests of a live run, as its turn begins.
pub(super) struct LiveStart {
    queue: LiveRequestQueue,
    /// The request that begins the turn, if that is not a message.
    first: Option<LiveRequest>,
}

impl LiveStart {
    /// Returns the input of the run, whose messages are stored in `log`.
    pub(super) fn into_input(self, cx: &CallContext, log: &EventLog) -> LiveInput {
        let messages = Arc::new(LiveMessages { cx: cx.clone(), log: log.clone() });
        LiveInput { queue: self.queue, first: Mutex::new(self.first), messages }
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
        let message = Some(Arc::new(with_role(message, USER_AUTHOR)));
        let input = UserInput { message, state_delta: state, beginning: None };
        let stored = append_user_message(run, &self.cx, &self.log, input, false).await?;
        Ok(stored.and_then(|event| event.content.clone()).unwrap_or_default())
    }
}
