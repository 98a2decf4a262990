//! Custom agents of components: one instance per run.
//!
//! The guest continues after an event when it is stored, so a slow client slows the guest down. Small partial events,
//! which are not stored, may be a few ahead of the client. Events are emitted outside of the polling of the Wasmtime
//! store, because emit may run other components.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use futures::Sink;
use hatchery_core::{AgentContext, CustomAgent, EventData, RunError, Timestamp, new_event_id};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::PollSender;
use wasmtime::Store;

use super::Component;
use super::exports::{AgentExports, Profile};
use super::sync_agent;
use crate::contract::bindings::exports::hatchery::agent::guest_agents::Guest;
use crate::contract::convert::{EstimateSize, FromWit, truncate_error, truncate_event_error, wit};
use crate::contract::stream;
use crate::contract::sub_agent_relay::{PendingEvent, SubAgentRelay};
use crate::error::CallError;
use crate::policy::{Access, Permission};
use crate::runtime::store::{CallOrigin, HostState, Sandbox};

/// Maximum number of partial events that a guest may be ahead of the emitted ones.
const MAX_AHEAD: usize = 16;

/// Partial events of more bytes are waited for, so that the events ahead take little memory.
const MAX_SIZE_AHEAD: u64 = 4 << 10;

pub(super) struct ComponentAgent {
    pub(super) component: Arc<Component>,
    pub(super) exports: AgentExports,
    pub(super) name: String,
}

#[async_trait]
impl CustomAgent for ComponentAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let relay = Arc::new(SubAgentRelay::default());
        let (sender, mut events) = mpsc::channel(MAX_AHEAD);
        let name = self.name.clone();
        let origin = CallOrigin::Agent(cx.clone(), relay.clone());
        let guest = self.component.sandbox.run(origin, |mut store, instance| {
            Box::pin(async move {
                match &self.exports {
                    Profile::Async(exports) => {
                        let guest = exports.load(&mut store, &instance)?;
                        run_to_end(store, guest, name, EventSender::new(sender, relay)).await
                    }
                    Profile::Sync(exports) => {
                        let guest = exports.load(&mut store, &instance)?;
                        sync_agent::run_to_end(store, guest, name, sender, &relay).await
                    }
                }
            })
        });
        let emit = self.emit_all(&cx, &mut events);
        tokio::pin!(guest, emit);
        // The side that ends first with an error ends the other by dropping it. Events that the guest yielded before
        // it failed are kept.
        let outcome = tokio::select! {
            biased;
            result = &mut emit => {
                result?;
                guest.await
            }
            outcome = &mut guest => {
                emit.await?;
                outcome
            }
        };
        match outcome.map_err(|error| error.into_run_error(&self.component.name))? {
            Ok(()) => Ok(()),
            Err(error) => {
                let wit::Error { code, message } = truncate_error(error);
                Err(RunError::Agent { agent: self.name.clone(), code: code.into(), message })
            }
        }
    }
}

/// Runs the guest until its stream has ended and it has no tasks left.
async fn run_to_end(
    mut store: Store<HostState>,
    guest: Guest,
    name: String,
    events: EventSender,
) -> wasmtime::Result<Result<(), wit::Error>> {
    let run = store.run_concurrent(async move |accessor| {
        let stream = match guest.call_run(accessor, name).await? {
            Ok(stream) => stream,
            Err(error) => return wasmtime::error::Ok(Err(error)),
        };
        stream::read_to_end(accessor, stream, events).await?;
        Ok(Ok(()))
    });
    run.await?
}

impl ComponentAgent {
    /// Emits the events of the guest until its stream ends.
    async fn emit_all(&self, cx: &AgentContext, events: &mut mpsc::Receiver<YieldedEvent>) -> Result<(), RunError> {
        let mut partial_id = None;
        while let Some(YieldedEvent { event, pending, done }) = events.recv().await {
            match pending {
                Some(PendingEvent::Event(original, ack)) => {
                    let stored = cx.sink.emit(original).await?;
                    if let Some(ack) = ack {
                        ack.acknowledge(stored);
                    }
                }
                Some(PendingEvent::Failure(error)) => return Err(error),
                None => self.emit_new(cx, event, &mut partial_id).await?,
            }
            if let Some(done) = done {
                // A guest that has cancelled its write does not wait for it.
                let _ = done.send(());
            }
        }
        Ok(())
    }

    /// Emits an event made by the guest. Partial events get the id of the complete event that follows them.
    async fn emit_new(
        &self,
        cx: &AgentContext,
        event: wit::Event,
        partial_id: &mut Option<String>,
    ) -> Result<(), RunError> {
        let failed = |error: CallError| error.into_run_error(&self.component.name);
        let data = self
            .component
            .convert(&cx.call, event, |event| EventData::from_wit(truncate_event_error(event)))
            .map_err(failed)?;
        for key in data.actions.state_delta.keys() {
            let Sandbox { grants, component, .. } = &self.component.sandbox;
            grants
                .check(component, Permission::State(Access::Write, key))
                .map_err(|denial| denial.run_error(&cx.call))?;
        }
        if data.actions.compaction.is_some() {
            return Err(self.refuse_compaction(cx));
        }
        let id = if data.partial {
            partial_id.get_or_insert_with(new_event_id).clone()
        } else {
            partial_id.take().unwrap_or_default()
        };
        let error = data.error_code.clone().map(|code| (code, data.error_message.clone().unwrap_or_default()));
        let is_stored = !data.partial;
        // The host sets the time, because sessions and summaries depend on it.
        cx.emit(EventData { id, timestamp: Timestamp::default(), ..data }).await?;
        match error {
            Some((code, message)) if is_stored => Err(RunError::AlreadyReported { code, message }),
            Some((code, message)) => Err(RunError::Agent { agent: self.name.clone(), code: code.into(), message }),
            None => Ok(()),
        }
    }
}

impl ComponentAgent {
    /// Returns the error for an event with a compaction, which would replace events of others in prompts.
    fn refuse_compaction(&self, cx: &AgentContext) -> RunError {
        let (component, invocation) = (&*self.component.name, &cx.call.invocation);
        tracing::warn!(
            target: "hatchery::audit", component, session = &*invocation.session_key.id, invocation = invocation.id,
            action = "compact the session's history", "denied"
        );
        let message = format!("component `{component}` may not compact the session's history");
        tracing::warn!(
            "{message}; to summarize it, export a summarizer, which `compaction` of an app in hatchery.yaml names"
        );
        RunError::Agent { agent: cx.call.agent.to_string(), code: "DENIED".into(), message }
    }
}

/// An event of the guest on its way to the session.
pub(super) struct YieldedEvent {
    event: wit::Event,
    /// The original, if the guest got it from a sub-agent.
    pending: Option<PendingEvent>,
    /// `None` if the guest does not wait until the event is emitted.
    done: Option<oneshot::Sender<()>>,
}

impl YieldedEvent {
    /// Returns the event. If the guest must wait until the event is emitted, also returns a receiver that resolves
    /// then.
    pub(super) fn new(event: wit::Event, relay: &SubAgentRelay) -> (Self, Option<oneshot::Receiver<()>>) {
        let pending = relay.take_pending(&event.id);
        let may_be_ahead = event.partial && pending.is_none() && event.estimated_size() <= MAX_SIZE_AHEAD;
        let (done, emitted) = if may_be_ahead {
            (None, None)
        } else {
            let (done, emitted) = oneshot::channel();
            (Some(done), Some(emitted))
        };
        (Self { event, pending, done }, emitted)
    }
}

/// The sink of the guest's stream. An event is flushed when the guest may continue.
struct EventSender {
    sender: PollSender<YieldedEvent>,
    relay: Arc<SubAgentRelay>,
    /// Resolves when the last event is emitted. `None` if it need not be waited for.
    emitted: Option<oneshot::Receiver<()>>,
}

impl EventSender {
    fn new(sender: mpsc::Sender<YieldedEvent>, relay: Arc<SubAgentRelay>) -> Self {
        Self { sender: PollSender::new(sender), relay, emitted: None }
    }
}

/// The run does not take events any more.
struct RunEnded;

impl Sink<wit::Event> for EventSender {
    type Error = RunEnded;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), RunEnded>> {
        self.sender.poll_reserve(cx).map_err(|_| RunEnded)
    }

    fn start_send(mut self: Pin<&mut Self>, event: wit::Event) -> Result<(), RunEnded> {
        let (event, emitted) = YieldedEvent::new(event, &self.relay);
        self.emitted = emitted;
        self.sender.send_item(event).map_err(|_| RunEnded)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), RunEnded>> {
        let Some(emitted) = &mut self.emitted else { return Poll::Ready(Ok(())) };
        let result = ready!(Pin::new(emitted).poll(cx));
        self.emitted = None;
        Poll::Ready(result.map_err(|_| RunEnded))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), RunEnded>> {
        self.poll_flush(cx)
    }
}
