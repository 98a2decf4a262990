//! The event log of one run: the only writer of its session.
//!
//! Storing an event, applying it to the session in memory and sending it to the client are one step. Steps run one at a
//! time, and a step that has begun is completed even if the agent that emitted the event is cancelled.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Content, Event, EventSink, EventWindow, InvocationWriter, RevisionGap, RunError, TimeKind,
};
use tokio::sync::mpsc::error::{SendTimeoutError, TrySendError};
use tokio::sync::{Mutex, mpsc};

use super::run_bus::FrameSender;
use crate::deadline::Deadline;
use crate::plugins::Plugins;
use crate::tasks::run_to_completion;

/// An event for the client of a run, and the session's revision after it; `None` for a partial event, which is not
/// stored.
pub(super) type SentEvent = (Option<u64>, Arc<Event>);

/// The channel to a run's client.
pub(super) type EventSender = mpsc::Sender<Result<SentEvent, RunError>>;

/// Time for which a run waits for a client that does not read. Then it continues without the client, which gets the id
/// of its last event.
const CLIENT_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends stored events to a client. Returns false if it is gone or does not read.
pub(super) async fn deliver(client: &EventSender, events: Vec<SentEvent>) -> bool {
    for event in events {
        if client.send_timeout(Ok(event), CLIENT_STALL_TIMEOUT).await.is_err() {
            return false;
        }
    }
    true
}

/// Returns the channel to a client that is gone.
pub(super) fn closed_channel() -> EventSender {
    mpsc::channel(1).0
}

/// The outermost [`EventSink`] of a run. Clones are the same log.
#[derive(Clone)]
pub(super) struct EventLog(Arc<EventLogInner>);

struct EventLogInner {
    /// The context that plugins get.
    cx: CallContext,
    writer: InvocationWriter,
    plugins: Plugins,
    deadline: Deadline,
    frames: FrameSender,
    /// Ids of the events that were stored before the run was interrupted. When they are replayed, only agents see them.
    delivered_ids: HashSet<String>,
    /// Held while an event is stored and sent, so that the service, the session and the client have the same order.
    state: Mutex<LogState>,
}

enum LogState {
    /// Events go into the session and to the client.
    Open {
        client: EventSender,
        /// The id of the last event that was sent.
        last_event_id: String,
    },
    /// Events go into the session only: the client has missed one and must not get later ones.
    Detached,
    /// The run has ended: events are rejected.
    Closed,
}

#[derive(Clone, Copy, PartialEq)]
enum EventOrigin {
    /// The user. The client does not get the event.
    User,
    /// An agent. Rejected once the run has ended.
    Agent,
    /// The run itself. Accepted after its agents have ended.
    Run,
    /// The runner's report of a failure. Stored and sent even if the run is cancelled or a plugin fails.
    Failure,
}

impl EventLog {
    pub(super) fn new(
        cx: CallContext,
        writer: InvocationWriter,
        plugins: Plugins,
        deadline: Deadline,
        client: EventSender,
        frames: FrameSender,
        delivered_ids: HashSet<String>,
    ) -> Self {
        let state = Mutex::new(LogState::Open { client, last_event_id: String::new() });
        Self(Arc::new(EventLogInner { cx, writer, plugins, deadline, frames, delivered_ids, state }))
    }

    /// Replaces the user's message, before it is stored.
    pub(super) fn set_user_content(&self, content: Arc<Content>) {
        self.0.writer.set_user_content(content);
    }

    /// Stores an event of the user.
    pub(super) async fn append_user_event(&self, event: Arc<Event>) -> Result<(), RunError> {
        self.append(event, EventOrigin::User).await.map(|_| ())
    }

    /// Stores and sends an event of the run itself, even if the run has ended.
    pub(super) async fn append_run_event(&self, event: Arc<Event>) -> Result<(), RunError> {
        match self.append(event, EventOrigin::Run).await {
            Ok(_) | Err(RunError::Stopped) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Stores and sends the report of a failure.
    pub(super) async fn append_failure(&self, event: Arc<Event>) -> Result<(), RunError> {
        self.append(event, EventOrigin::Failure).await.map(|_| ())
    }

    /// Waits for an event that is being stored, and rejects all later ones.
    pub(super) async fn close(&self) {
        *self.0.state.lock().await = LogState::Closed;
    }

    async fn append(&self, event: Arc<Event>, origin: EventOrigin) -> Result<Arc<Event>, RunError> {
        run_to_completion(self.0.clone().append(event, origin)).await
    }
}

#[async_trait]
impl EventSink for EventLog {
    /// Stores and sends the event of an agent. An event that ends the run is stored, too, and then stops its agent.
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        self.append(event, EventOrigin::Agent).await
    }
}

impl EventLogInner {
    async fn append(self: Arc<Self>, event: Arc<Event>, origin: EventOrigin) -> Result<Arc<Event>, RunError> {
        let mut state = self.state.lock().await;
        if matches!(*state, LogState::Closed) {
            return Err(RunError::Stopped);
        }
        if origin != EventOrigin::Failure && self.cx.invocation.cancel.is_cancelled() {
            return Err(RunError::Cancelled);
        }
        if origin == EventOrigin::Agent && self.cx.invocation.is_ended() {
            return Err(RunError::Stopped);
        }
        if self.delivered_ids.contains(&event.id) {
            return Ok(event);
        }
        let event = match origin {
            EventOrigin::User => event,
            EventOrigin::Agent | EventOrigin::Run => self.replacement(&event).await?.unwrap_or(event),
            EventOrigin::Failure => self.replacement(&event).await.unwrap_or_default().unwrap_or(event),
        };
        if matches!(origin, EventOrigin::Agent | EventOrigin::Run) {
            self.cx.invocation.count_event(&event)?;
        }
        let mut revision = None;
        if !event.partial {
            revision = self.store(&event).await?;
            if revision.is_none() {
                return Ok(event);
            }
        }
        if origin != EventOrigin::User {
            self.frames.publish(revision, &event);
        }
        if origin != EventOrigin::User
            && let LogState::Open { client, last_event_id } = &mut *state
        {
            match self.send(client, (revision, event.clone())).await {
                Delivery::Sent => last_event_id.clone_from(&event.id),
                Delivery::Stalled => {
                    report_stop(client.clone(), std::mem::take(last_event_id));
                    *state = LogState::Detached;
                }
                Delivery::Failed => *state = LogState::Detached,
            }
        }
        if !event.partial && event.actions.end_invocation == Some(true) { Err(RunError::Stopped) } else { Ok(event) }
    }

    /// Returns the event of a plugin that replaces `event`. A hook that does not return would block the log for the
    /// report of the run's failure.
    async fn replacement(&self, event: &Event) -> Result<Option<Arc<Event>>, RunError> {
        tokio::select! {
            biased;
            replacement = self.plugins.on_event(&self.cx, event) => replacement,
            () = self.deadline.wait_for_report_end() => Err(RunError::Cancelled),
        }
    }

    /// Appends the event to the session service and to the run's session. Returns the session's revision with it;
    /// `None` if it is there already.
    async fn store(&self, event: &Arc<Event>) -> Result<Option<u64>, RunError> {
        let invocation = &self.cx.invocation;
        event.check_storable().map_err(|error| {
            let (key, agent) = (&invocation.session_key, &event.author);
            tracing::warn!(
                target: "hatchery::audit", app = &*key.app, user = &*key.user, session = &*key.id,
                invocation = invocation.id, action = "store an event", agent, detail = %error, "denied"
            );
            let message = format!("it emitted an event that cannot be stored: {error}");
            RunError::Agent { agent: agent.clone(), code: "INVALID_EVENT".into(), message }
        })?;
        let sessions = &invocation.services.sessions;
        let started = invocation.span.is_recorded().then(Instant::now);
        let revision = match &invocation.lease {
            Some(lease) => lease.append(event).await?,
            None => sessions.append(&invocation.session_key, event).await?,
        };
        if let Some(started) = started {
            invocation.span.add_time(TimeKind::Store, started.elapsed());
        }
        let known = match self.writer.append(event, revision) {
            Ok(is_new) => return Ok(is_new.then_some(revision)),
            Err(RevisionGap { known }) => known,
        };
        // Events outside of a turn were appended since, such as a change of state by a client.
        let window = EventWindow::AfterRevision(known);
        if let Some(now) = sessions.get(&invocation.session_key, window).await? {
            self.writer.catch_up(now, event);
        }
        Ok(Some(revision))
    }

    /// Sends an event, and waits if the client is slow.
    async fn send(&self, client: &EventSender, event: SentEvent) -> Delivery {
        match client.try_send(Ok(event)) {
            Ok(()) => Delivery::Sent,
            Err(TrySendError::Closed(_)) => Delivery::Failed,
            Err(TrySendError::Full(event)) => {
                let sending = client.send_timeout(event, CLIENT_STALL_TIMEOUT);
                match self.cx.invocation.cancel.run_until_cancelled(sending).await {
                    Some(Ok(())) => Delivery::Sent,
                    Some(Err(SendTimeoutError::Timeout(_))) => Delivery::Stalled,
                    Some(Err(SendTimeoutError::Closed(_))) | None => Delivery::Failed,
                }
            }
        }
    }
}

/// Whether an event has reached the client's queue.
enum Delivery {
    Sent,
    /// The client has not read for [`CLIENT_STALL_TIMEOUT`].
    Stalled,
    /// The client is gone, or the run is cancelled.
    Failed,
}

/// Sends the client, once it reads again, the id of the last event that it gets.
fn report_stop(client: EventSender, last_event_id: String) {
    tokio::spawn(async move {
        // Fails if the client is gone.
        let _ = client.send(Err(RunError::ReaderTooSlow { last_event_id })).await;
    });
}
