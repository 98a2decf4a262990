//! The event log of one run: the only writer of its session. Storing an event, showing it in the session and sending it to the client
//! are one step, taken for one event at a time, and once begun it is finished even when the agent that emitted the event is cancelled.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::sync::RwLockExt;
use hatchery_core::{CallContext, Event, EventSink, EventWindow, RunError, Session, StateScope};
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
    pub(super) fn new(cx: CallContext, plugins: Plugins, client: Client, told: HashSet<String>) -> Self {
        Self(Arc::new(Log { cx, plugins, told, writing: Mutex::new(Writing::Open(client)) }))
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
        let known = {
            let mut session = invocation.session.write_unpoisoned();
            if revision == session.revision + 1 {
                session.state.apply(&event.actions.state_delta);
                session.last_update_time = event.timestamp;
                session.revision = revision;
                session.events.push_back(event.clone());
                return Ok(());
            }
            session.revision
        };
        // Others have appended events meanwhile, such as a client that has changed the state.
        let window = EventWindow::AfterRevision(known);
        if let Some(now) = sessions.get(&invocation.session_key, window).await? {
            let mut session = invocation.session.write_unpoisoned();
            catch_up(&mut session, now, event);
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

/// Adds what has come since `session` was read. Its own event stays the very object that was stored; `temp:` state stays.
fn catch_up(session: &mut Session, now: Session, own: &Arc<Event>) {
    let mut state = now.state;
    for (key, value) in session.state.iter().filter(|(key, _)| StateScope::of(key).0 == StateScope::Temp) {
        state.set(key, value.clone());
    }
    session.state = state;
    session.revision = now.revision;
    session.last_update_time = now.last_update_time;
    for event in now.events {
        session.events.push_back(if event.id == own.id { own.clone() } else { event });
    }
}
