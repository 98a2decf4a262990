//! The event log of one run: the only writer of its session. Storing an event, showing it in the session and sending it to the client
//! are one step, taken for one event at a time, and once begun it is finished even when the agent that emitted the event is cancelled.

use std::sync::{Arc, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use futures::poll;
use hatchery_core::{CallContext, Event, EventSink, RunError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex, mpsc};

use crate::plugins::Plugins;

type Client = mpsc::Sender<Result<Arc<Event>, RunError>>;

/// Where all events of a run end up. Clones are the same log.
#[derive(Clone)]
pub(super) struct EventLog(Arc<Log>);

struct Log {
    /// The run, as plugins see it.
    cx: CallContext,
    plugins: Plugins,
    client: Client,
    /// Held while an event is stored and sent: keeps the order of the store, the session and the client the same.
    writing: Mutex<Writing>,
}

/// Whether the log takes events.
#[derive(Clone, Copy, PartialEq)]
enum Writing {
    Open,
    Closed,
}

/// Who gets an event.
#[derive(Clone, Copy, PartialEq)]
enum Audience {
    /// The session only: what the user said.
    Session,
    /// The client too.
    Client,
}

impl EventLog {
    pub(super) fn new(cx: CallContext, plugins: Plugins, client: Client) -> Self {
        Self(Arc::new(Log { cx, plugins, client, writing: Mutex::new(Writing::Open) }))
    }

    /// Stores an event that the client does not get.
    pub(super) async fn record(&self, event: Arc<Event>) -> Result<(), RunError> {
        self.write(event, Audience::Session).await
    }

    /// Waits for an event that is being stored, and takes no more.
    pub(super) async fn close(&self) {
        *self.0.writing.lock().await = Writing::Closed;
    }

    async fn write(&self, event: Arc<Event>, audience: Audience) -> Result<(), RunError> {
        let mut step = Box::pin(self.0.clone().step(event, audience));
        match poll!(&mut step) {
            Poll::Ready(result) => result,
            // From here on the step may be half done, so it must not depend on whoever waits for it.
            Poll::Pending => tokio::spawn(step).await.unwrap_or(Err(RunError::Cancelled)),
        }
    }
}

#[async_trait]
impl EventSink for EventLog {
    async fn emit(&self, event: Arc<Event>) -> Result<(), RunError> {
        self.write(event, Audience::Client).await
    }
}

impl Log {
    async fn step(self: Arc<Self>, event: Arc<Event>, audience: Audience) -> Result<(), RunError> {
        let writing = self.writing.lock().await;
        if *writing == Writing::Closed {
            return Err(RunError::Stopped);
        }
        let event = match audience {
            Audience::Client if !self.plugins.is_empty() => {
                self.plugins.on_event(&self.cx, &event).await?.unwrap_or(event)
            }
            Audience::Client | Audience::Session => event,
        };
        if !event.partial {
            self.store(&event).await?;
        }
        if audience == Audience::Client {
            self.send(event).await;
        }
        Ok(())
    }

    async fn store(&self, event: &Arc<Event>) -> Result<(), RunError> {
        let sessions = &self.cx.invocation.services.sessions;
        let revision = sessions.append(&self.cx.invocation.session_key, event).await?;
        let mut session = self.cx.invocation.session.write().unwrap_or_else(PoisonError::into_inner);
        session.state.apply(&event.actions.state_delta);
        session.last_update_time = event.timestamp;
        session.revision = revision;
        session.events.push_back(event.clone());
        Ok(())
    }

    /// Waits for a slow client, but not for one that has gone, nor when the run is cancelled.
    async fn send(&self, event: Arc<Event>) {
        match self.client.try_send(Ok(event)) {
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(event)) => {
                let _ = self.cx.invocation.cancel.run_until_cancelled(self.client.send(event)).await;
            }
        }
    }
}
