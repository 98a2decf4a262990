//! A remote agent as an agent of this host.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, CustomAgent, CustomAgentSpec, Event, EventData, Invocation, JsonMap,
    RunError, StreamingMode, hash_arguments,
};
use tokio::time::{Duration, Instant, sleep};

use super::agents::AgentReports;
use super::connection::{Connection, ReceivedMessage};
use super::inbound::AnswerConverter;
use super::outbound::{History, OutboundMessage};
use super::peer::Peer;
use super::{ClientError, RemoteAgentConfig};
use crate::model::{Message, Operation, Role, SendRequest, Update};

/// Initial delay before a task in progress is requested again, doubled each time.
const FIRST_DELAY: Duration = Duration::from_millis(250);
const LAST_DELAY: Duration = Duration::from_secs(5);

/// Maximum time for cancelling a task.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);

/// An agent of another host, which answers over A2A. As a sub-agent it continues the conversation; as the tool of
/// another agent it gets a request.
#[derive(Clone)]
pub struct RemoteAgent {
    peer: Arc<Peer>,
    /// Receiver of its errors, with the name in the configuration.
    reports: Option<(Arc<str>, AgentReports)>,
}

impl RemoteAgent {
    /// Creates an agent. Its card is read when it is first needed.
    pub fn new(config: RemoteAgentConfig) -> Self {
        Self { peer: Peer::new(config), reports: None }
    }

    pub(super) fn with_reports(self, name: &str, reports: &AgentReports) -> Self {
        Self { reports: Some((name.into(), reports.clone())), ..self }
    }

    /// Reports the end of an exchange. A task that has failed is not a problem of the connection.
    fn report(&self, result: &Result<(), ExchangeError>) {
        let Some((name, reports)) = &self.reports else { return };
        match result {
            Ok(()) | Err(ExchangeError::Client(ClientError::Task { .. })) => reports.set(name, None),
            Err(ExchangeError::Client(error)) => reports.set(name, Some(error)),
            Err(ExchangeError::Run(_)) => {}
        }
    }

    /// Returns the behaviour, to be used by an agent with any name.
    pub fn kind(&self) -> AgentKind {
        AgentKind::Custom(CustomAgentSpec { code: Arc::new(self.clone()), model: None, tools: Vec::new() })
    }

    /// Returns an agent of this host with a name and a description, which other agents read.
    pub fn agent(&self, name: impl Into<String>, description: impl Into<String>) -> Agent {
        Agent::new(name, description, self.kind())
    }
}

#[async_trait]
impl CustomAgent for RemoteAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        // Replays the events that were received before the run was interrupted.
        let mut is_continued = false;
        while cx.call.host()?.is_replaying(&cx.call) {
            cx.emit(EventData::default()).await?;
            is_continued = true;
        }
        let events = visible_events(&cx.call);
        let history = History { events: &events, agent: &cx.call.agent };
        let inbound = AnswerConverter::new(history.artifact_ids(), self.peer.config.limits.max_answer);
        let config = &self.peer.config;
        let exchange = async {
            let connection = self.peer.connection().await?;
            let continued = history.last_task().filter(|_| is_continued && !history.has_answer());
            let mut exchange =
                Exchange { cx: &cx, connection: AbandonedTask::new(connection, &cx.call.invocation), inbound };
            match continued {
                Some(task) => exchange.rejoin(task).await,
                None if is_continued && !history.has_answer() => Ok(()),
                None => exchange.send(history.outbound(config.aggregation), message_id(&cx.call, &events)).await,
            }
        };
        let timeout = config.limits.max_time;
        let result = match tokio::time::timeout(timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(ClientError::TooLong(timeout).into()),
        };
        self.report(&result);
        result.map_err(|error| match error {
            ExchangeError::Client(error) => {
                if !matches!(error, ClientError::Task { .. }) {
                    self.peer.reset();
                }
                let (agent, code) = (cx.call.agent.to_string(), error.code());
                tracing::warn!(agent, code, "the remote agent: {error}");
                RunError::Agent {
                    agent,
                    code: code.into(),
                    message: format!("the remote agent: {}", error.for_callers()),
                }
            }
            ExchangeError::Run(error) => error,
        })
    }
}

/// Returns the events that the agent sees: the events of its own branch and of the enclosing branches.
fn visible_events(cx: &CallContext) -> Vec<Arc<Event>> {
    let is_visible = |event: &Arc<Event>| match (event.branch.as_deref(), cx.branch.as_deref()) {
        (None, _) => true,
        (Some(branch), Some(own)) => own == branch || own.starts_with(&format!("{branch}.")),
        (Some(_), None) => false,
    };
    cx.invocation.events().into_iter().filter(is_visible).collect()
}

/// Returns the id of the next message. It is the same if the message is sent again because this host died.
fn message_id(cx: &CallContext, events: &[Arc<Event>]) -> String {
    let own = events.iter().filter(|event| event.author == *cx.agent).count();
    format!("{}-{}", cx.invocation.id, hash_arguments(&(&cx.agent, &cx.branch, own)))
}

/// An error of the remote agent, or of this host.
enum ExchangeError {
    Client(ClientError),
    Run(RunError),
}

impl From<ClientError> for ExchangeError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<RunError> for ExchangeError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

/// One message and its answer.
struct Exchange<'a> {
    cx: &'a AgentContext,
    connection: AbandonedTask,
    inbound: AnswerConverter,
}

impl Exchange<'_> {
    async fn send(&mut self, outbound: OutboundMessage, id: String) -> Result<(), ExchangeError> {
        let OutboundMessage { parts, context_id, task_id } = outbound;
        if parts.is_empty() {
            tracing::debug!(agent = &*self.cx.call.agent, "there is nothing to tell a remote agent");
            return Ok(());
        }
        let message = Message {
            id,
            context_id,
            task_id,
            role: Role::User,
            parts,
            metadata: JsonMap::new(),
            ..Message::default()
        };
        let connection = self.connection.open.clone();
        // Without a stream the task is asked for, which does not depend on how long the agent lets a request wait.
        let returns_immediately = !connection.is_streaming;
        let request = Box::new(SendRequest { message, returns_immediately, ..SendRequest::default() });
        if connection.is_streaming {
            self.stream(&connection, Operation::Stream(request)).await?;
        } else {
            self.accept(connection.send(Operation::Send(request)).await?).await?;
        }
        self.follow(&connection).await
    }

    /// Continues a task that was sent before this host died.
    async fn rejoin(&mut self, task: String) -> Result<(), ExchangeError> {
        let connection = self.connection.open.clone();
        self.read_task(&connection, task).await?;
        self.follow(&connection).await
    }

    /// Waits for the end of a task whose answer was no stream, or whose stream has ended early.
    async fn follow(&mut self, connection: &Connection) -> Result<(), ExchangeError> {
        let (mut delay, mut last_success) = (FIRST_DELAY, Instant::now());
        let mut can_subscribe = connection.is_streaming;
        while !self.inbound.has_ended() {
            let Some(id) = self.inbound.task_id.clone() else {
                return Err(ClientError::Response("it ended without an answer".into()).into());
            };
            sleep(delay).await;
            delay = (delay * 2).min(LAST_DELAY);
            match self.read_task(connection, id.clone()).await {
                Err(ExchangeError::Client(error)) if error.is_transient() => {
                    if last_success.elapsed() >= connection.limits.read_timeout {
                        return Err(error.into());
                    }
                    tracing::debug!(agent = &*self.cx.call.agent, "the task of a remote agent was not read: {error}");
                    continue;
                }
                result => result?,
            }
            last_success = Instant::now();
            if can_subscribe && !self.inbound.has_ended() {
                match self.stream(connection, Operation::Subscribe { id }).await {
                    Err(ExchangeError::Client(ClientError::Peer { code, message })) => {
                        // It has ended since, or cannot be subscribed to, so its state is read.
                        tracing::debug!(code, "a remote agent refused a subscription: {message}");
                        can_subscribe = false;
                    }
                    result => result?,
                }
            }
        }
        for event in self.inbound.finish() {
            self.cx.emit(event).await?;
        }
        self.connection.task = None;
        Ok(())
    }

    async fn read_task(&mut self, connection: &Connection, id: String) -> Result<(), ExchangeError> {
        let ReceivedMessage { message, bytes } =
            connection.task(Operation::Get { id, history_length: Some(0) }).await?;
        self.accept(ReceivedMessage { message: Update::Task(message), bytes }).await
    }

    /// Receives a stream. One that is lost after the task is known is not an error yet.
    async fn stream(&mut self, connection: &Connection, operation: Operation) -> Result<(), ExchangeError> {
        let mut updates = match connection.stream(operation).await {
            Ok(updates) => updates,
            Err(error) => stream::iter([Err(error)]).boxed(),
        };
        while let Some(update) = updates.next().await {
            match update {
                Ok(update) => self.accept(update).await?,
                Err(error) if error.is_transient() && self.inbound.task_id.is_some() => {
                    tracing::debug!(agent = &*self.cx.call.agent, "the stream of a remote agent was lost: {error}");
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
            if self.inbound.has_ended() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Emits the events of an update.
    async fn accept(&mut self, update: ReceivedMessage<Update>) -> Result<(), ExchangeError> {
        let events = self.inbound.accept(update);
        self.connection.task.clone_from(&self.inbound.task_id);
        if matches!(events, Err(ClientError::Task { .. })) || self.inbound.has_ended() {
            // There is nothing left to cancel.
            self.connection.task = None;
        }
        let invocation = &self.cx.call.invocation;
        for event in events? {
            if event.partial && invocation.run_config.streaming_mode == StreamingMode::Off {
                continue;
            }
            if invocation.is_in_tool && !event.long_running_tool_ids.is_empty() {
                let message = "it needs input from the user, which is not possible inside of a tool call".into();
                return Err(ClientError::Task { state: "waits", message }.into());
            }
            self.cx.emit(event).await?;
        }
        Ok(())
    }
}

/// Guard that cancels a task if it is dropped before the task has ended: the run was cancelled, has failed or took too
/// long. Does not cancel the task of a run that can be continued.
struct AbandonedTask {
    open: Arc<Connection>,
    invocation: Arc<Invocation>,
    task: Option<String>,
}

impl AbandonedTask {
    fn new(open: Arc<Connection>, invocation: &Arc<Invocation>) -> Self {
        Self { open, invocation: invocation.clone(), task: None }
    }
}

impl Drop for AbandonedTask {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.task.take(), tokio::runtime::Handle::try_current()) else { return };
        if self.invocation.is_interrupted() {
            return;
        }
        let connection = self.open.clone();
        runtime.spawn(async move {
            let cancel = tokio::time::timeout(CANCEL_TIMEOUT, connection.task(Operation::Cancel { id }));
            match cancel.await.unwrap_or(Err(ClientError::TooLong(CANCEL_TIMEOUT))) {
                Ok(_) => {}
                Err(error) => tracing::debug!("the task of a remote agent was not canceled: {error}"),
            }
        });
    }
}
