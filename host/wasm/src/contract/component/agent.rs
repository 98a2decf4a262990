//! A component's custom agent: one instance per run.
//!
//! The guest's stream of events is read one by one, and the next is taken when the one before is stored: a slow client slows the guest
//! down, and nothing piles up. Events are emitted outside of the store's own polling, because emitting may run anything.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use hatchery_core::{AgentContext, CustomAgent, EventData, RunError, Timestamp, new_event_id};
use tokio::sync::{mpsc, oneshot};
use wasmtime::component::{Source, StreamConsumer, StreamResult};
use wasmtime::{Store, StoreContextMut};

use super::Component;
use super::exports::AgentExports;
use super::sync_agent;
use crate::contract::bindings::exports::hatchery::agent::guest_agents::Guest;
use crate::contract::convert::{FromWit, bounded, bounded_event, wit};
use crate::contract::relay::{Held, Relay};
use crate::error::CallError;
use crate::policy::{Access, Permission};
use crate::runtime::store::{Caller, HostState, Sandbox};

pub(super) struct ComponentAgent {
    pub(super) component: Arc<Component>,
    pub(super) exports: AgentExports,
    pub(super) name: String,
}

#[async_trait]
impl CustomAgent for ComponentAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let relay = Arc::new(Relay::default());
        let (sender, mut yielded) = mpsc::channel(1);
        let name = self.name.clone();
        let caller = Caller::Agent(cx.clone(), relay.clone());
        let guest = self.component.sandbox.run(caller, |mut store, instance| async move {
            match &self.exports {
                AgentExports::Async(exports) => {
                    let guest = exports.load(&mut store, &instance)?;
                    run_to_end(store, guest, name, Events { sender, relay, taken: None }).await
                }
                AgentExports::Sync(exports) => {
                    let guest = exports.load(&mut store, &instance)?;
                    sync_agent::run_to_end(store, guest, name, sender, &relay).await
                }
            }
        });
        let emitting = self.emit_all(&cx, &mut yielded);
        tokio::pin!(guest, emitting);
        // Whoever ends first with an error ends the other by dropping it. What the guest yielded before it failed is kept.
        let ended = tokio::select! {
            biased;
            emitted = &mut emitting => {
                emitted?;
                guest.await
            }
            ended = &mut guest => {
                emitting.await?;
                ended
            }
        };
        match ended.map_err(|error| error.into_run_error(&self.component.name))? {
            Ok(()) => Ok(()),
            Err(error) => {
                let wit::Error { code, message } = bounded(error);
                Err(RunError::Agent { agent: self.name.clone(), code: code.into(), message })
            }
        }
    }
}

/// Runs the guest until its stream has ended and nothing of it is left to do.
async fn run_to_end(
    mut store: Store<HostState>,
    guest: Guest,
    name: String,
    events: Events,
) -> wasmtime::Result<Result<(), wit::Error>> {
    let (open, closed) = oneshot::channel::<()>();
    let run = store.run_concurrent(async move |accessor| {
        let stream = match guest.call_run(accessor, name).await? {
            Ok(stream) => stream,
            Err(error) => return wasmtime::error::Ok(Err(error)),
        };
        accessor.with(|access| stream.pipe(access, Piped { events, _open: open }))?;
        // An error says that the stream's end, the sender, was dropped.
        let _ = closed.await;
        poll_fn(|cx| accessor.poll_no_interesting_tasks(cx)).await;
        Ok(Ok(()))
    });
    run.await?
}

impl ComponentAgent {
    /// Emits what the guest yields until its stream ends.
    async fn emit_all(&self, cx: &AgentContext, yielded: &mut mpsc::Receiver<Yielded>) -> Result<(), RunError> {
        let mut streaming = None;
        while let Some(Yielded { event, held, done }) = yielded.recv().await {
            match held {
                Some(Held::Event(original, fate)) => {
                    let stored = cx.sink.emit(original).await?;
                    fate.decided(stored);
                }
                Some(Held::Failure(error)) => return Err(error),
                None => self.emit_new(cx, event, &mut streaming).await?,
            }
            // A guest that has cancelled its write does not wait for it.
            let _ = done.send(());
        }
        Ok(())
    }

    /// Emits an event that the guest made. Pieces get the id of the whole event that follows them.
    async fn emit_new(
        &self,
        cx: &AgentContext,
        event: wit::Event,
        streaming: &mut Option<String>,
    ) -> Result<(), RunError> {
        let failed = |error: CallError| error.into_run_error(&self.component.name);
        let data = self.component.accept(event, |event| EventData::from_wit(bounded_event(event))).map_err(failed)?;
        for key in data.actions.state_delta.keys() {
            let Sandbox { grants, component, .. } = &self.component.sandbox;
            grants.check(component, Permission::State(Access::Write, key)).map_err(|denial| denial.end(&cx.call))?;
        }
        if data.actions.compaction.is_some() {
            return Err(self.refuse_compaction(cx));
        }
        let id = if data.partial {
            streaming.get_or_insert_with(new_event_id).clone()
        } else {
            streaming.take().unwrap_or_default()
        };
        let error = data.error_code.clone().map(|code| (code, data.error_message.clone().unwrap_or_default()));
        // The time is the host's, too: windows of a session and summaries go by it.
        cx.emit(EventData { id, timestamp: Timestamp::default(), ..data }).await?;
        match error {
            Some((code, message)) => Err(RunError::AlreadyReported { code, message }),
            None => Ok(()),
        }
    }
}

impl ComponentAgent {
    /// Refuses an event that would take the place of events of others in what models see.
    fn refuse_compaction(&self, cx: &AgentContext) -> RunError {
        let (component, invocation) = (&*self.component.name, &cx.call.invocation);
        tracing::warn!(
            target: "hatchery::audit", component, session = &*invocation.session_key.id, invocation = invocation.id,
            action = "compact the session's history", "denied"
        );
        let message = format!(
            "component `{component}` may not compact the session's history; to have it summed up, offer a summarizer, which \
             `compaction` of an app in hatchery.yaml names"
        );
        RunError::Agent { agent: cx.call.agent.to_string(), code: "DENIED".into(), message }
    }
}

/// An event of the guest on its way out.
pub(super) struct Yielded {
    pub(super) event: wit::Event,
    /// What it stands for, if the guest got it from a sub agent.
    pub(super) held: Option<Held>,
    pub(super) done: oneshot::Sender<()>,
}

/// The reading end of the guest's stream.
struct Events {
    sender: mpsc::Sender<Yielded>,
    relay: Arc<Relay>,
    /// Told when the event that was taken last is stored.
    taken: Option<oneshot::Receiver<()>>,
}

/// [`Events`] with a sign that the stream is open.
struct Piped {
    events: Events,
    _open: oneshot::Sender<()>,
}

impl StreamConsumer<HostState> for Piped {
    type Item = wit::Event;

    fn poll_consume(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        store: StoreContextMut<HostState>,
        mut source: Source<'_, Self::Item>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        let events = &mut self.events;
        if events.taken.is_none() {
            let mut next = None;
            source.read(store, &mut next)?;
            let Some(event) = next else {
                return if finish { Poll::Ready(Ok(StreamResult::Cancelled)) } else { Poll::Pending };
            };
            let held = events.relay.claim(&event.id);
            let (done, taken) = oneshot::channel();
            // The channel has room for one, and the one before has been taken out.
            if events.sender.try_send(Yielded { event, held, done }).is_err() {
                return Poll::Ready(Ok(StreamResult::Dropped));
            }
            events.taken = Some(taken);
        }
        let Some(taken) = &mut events.taken else { return Poll::Pending };
        let stored = ready!(Pin::new(taken).poll(cx));
        events.taken = None;
        let result = if stored.is_ok() { StreamResult::Completed } else { StreamResult::Dropped };
        Poll::Ready(Ok(result))
    }
}
