//! The event log of one run: the only writer of its session. Storing an event, showing it in the session and sending it to the client
//! are one step, taken for one event at a time, and once begun it is finished even when the agent that emitted the event is cancelled.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{CallContext, Content, Event, EventSink, EventWindow, InvocationWriter, RevisionGap, RunError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex, mpsc};

use crate::plugins::Plugins;
use crate::tasks::finished;

/// Who hears of a run's events.
pub(super) type Client = mpsc::Sender<Result<Arc<Event>, RunError>>;

/// How long a run waits for a client that does not read. After that the client counts as gone, and the run goes on without it.
const STALLED: Duration = Duration::from_secs(30);

/// Where all events of a run end up. Clones are the same log.
#[derive(Clone)]
pub(super) struct EventLog(Arc<Log>);

struct Log {
    /// The run, as plugins see it.
    cx: CallContext,
    writer: InvocationWriter,
    plugins: Plugins,
    /// Ids of events that were stored before the run was interrupted: they are told again to the agents only.
    told: HashSet<String>,
    /// Held while an event is stored and sent: keeps the order of the store, the session and the client the same.
    writing: Mutex<Writing>,
}

/// Where events go.
enum Writing {
    /// Into the session and to the client.
    Open(Client),
    /// Into the session only: the client has missed one, and must not get those after it.
    Detached,
    /// Nowhere: the run is over.
    Closed,
}

/// What an event is to the log.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// What the user said: the client does not get it.
    Message,
    /// What an agent says.
    Said,
    /// What went wrong: stored and sent also when the run is cancelled or a plugin fails.
    Failure,
}

impl EventLog {
    pub(super) fn new(
        cx: CallContext,
        writer: InvocationWriter,
        plugins: Plugins,
        client: Client,
        told: HashSet<String>,
    ) -> Self {
        Self(Arc::new(Log { cx, writer, plugins, told, writing: Mutex::new(Writing::Open(client)) }))
    }

    /// Replaces the user's message, before it is stored.
    pub(super) fn set_user_content(&self, content: Arc<Content>) {
        self.0.writer.set_user_content(content);
    }

    /// Stores what the user said.
    pub(super) async fn record_message(&self, event: Arc<Event>) -> Result<(), RunError> {
        self.write(event, Kind::Message).await.map(|_| ())
    }

    /// Stores and sends what went wrong.
    pub(super) async fn record_failure(&self, event: Arc<Event>) -> Result<(), RunError> {
        self.write(event, Kind::Failure).await.map(|_| ())
    }

    /// Waits for an event that is being stored, and takes no more.
    pub(super) async fn close(&self) {
        *self.0.writing.lock().await = Writing::Closed;
    }

    async fn write(&self, event: Arc<Event>, kind: Kind) -> Result<Arc<Event>, RunError> {
        finished(self.0.clone().step(event, kind)).await
    }
}

#[async_trait]
impl EventSink for EventLog {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        self.write(event, Kind::Said).await
    }
}

impl Log {
    async fn step(self: Arc<Self>, event: Arc<Event>, kind: Kind) -> Result<Arc<Event>, RunError> {
        let mut writing = self.writing.lock().await;
        if matches!(*writing, Writing::Closed) {
            return Err(RunError::Stopped);
        }
        if kind != Kind::Failure && self.cx.invocation.cancel.is_cancelled() {
            return Err(RunError::Cancelled);
        }
        if self.told.contains(&event.id) {
            return Ok(event);
        }
        let event = match kind {
            Kind::Message => event,
            Kind::Said => self.plugins.on_event(&self.cx, &event).await?.unwrap_or(event),
            Kind::Failure => self.plugins.on_event(&self.cx, &event).await.unwrap_or_default().unwrap_or(event),
        };
        if kind == Kind::Said {
            self.cx.invocation.count_event(&event)?;
        }
        if !event.partial {
            self.store(&event).await?;
        }
        if kind != Kind::Message
            && let Writing::Open(client) = &*writing
            && !self.send(client, event.clone()).await
        {
            *writing = Writing::Detached;
        }
        Ok(event)
    }

    async fn store(&self, event: &Arc<Event>) -> Result<(), RunError> {
        let invocation = &self.cx.invocation;
        event.check_storable().map_err(|error| {
            let (key, agent) = (&invocation.session_key, &event.author);
            tracing::warn!(
                target: "hatchery::audit", app = &*key.app, user = &*key.user, session = &*key.id,
                invocation = invocation.id, action = "store an event", agent, detail = %error, "denied"
            );
            let message = format!("an event of it cannot be stored: {error}");
            RunError::Agent { agent: agent.clone(), code: "INVALID_EVENT".into(), message }
        })?;
        let sessions = &invocation.services.sessions;
        let revision = sessions.append(&invocation.session_key, event).await?;
        let Err(RevisionGap { known }) = self.writer.append(event, revision) else { return Ok(()) };
        // Others have appended events meanwhile, such as a client that has changed the state.
        let window = EventWindow::AfterRevision(known);
        if let Some(now) = sessions.get(&invocation.session_key, window).await? {
            self.writer.catch_up(now, event);
        }
        Ok(())
    }

    /// Waits for a slow client. False when the event cannot be delivered: the client has gone or does not read, or the run is cancelled.
    async fn send(&self, client: &Client, event: Arc<Event>) -> bool {
        match client.try_send(Ok(event)) {
            Ok(()) => true,
            Err(TrySendError::Closed(_)) => false,
            Err(TrySendError::Full(event)) => {
                let sent = self.cx.invocation.cancel.run_until_cancelled(client.send_timeout(event, STALLED)).await;
                matches!(sent, Some(Ok(())))
            }
        }
    }
}
