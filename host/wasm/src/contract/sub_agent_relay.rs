//! Relay of sub-agent events: the events of a custom agent's sub-agents wait in the host until the guest emits or drops
//! them.
//!
//! The guest reads a sub-agent's event under its id. If the guest yields an event with that id, the original goes to
//! the session and the sub-agent continues. If the guest reads on instead, the event is dropped. A failure of the
//! sub-agent is read like an event: yielded, it ends the run as it would have without the guest; not yielded, it
//! counts as handled. If the guest drops the stream, the sub-agent stops, and its last event can still be yielded.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use futures::Stream;
use hatchery_core::sync::MutexExt;
use hatchery_core::{AgentContext, Event, EventData, EventSink, RunError, new_event_id};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::contract::convert::{ToWit, wit};
use crate::policy::Grants;
use crate::runtime::store::nesting::Nesting;

/// Maximum number of events of dropped streams that the guest can still yield.
const MAX_DETACHED: usize = 16;

/// Sub-agents' events that the guest has read but not yielded, and the runs that wait for them. Dropping it ends
/// those runs.
#[derive(Default)]
pub(crate) struct SubAgentRelay(Mutex<RelayState>);

#[derive(Default)]
struct RelayState {
    pending: HashMap<String, PendingEvent>,
    /// Ids of the last events of dropped streams, oldest first. Some may have been yielded.
    detached: VecDeque<String>,
    runs: JoinSet<()>,
}

/// An item that the guest has read and may yield.
pub(crate) enum PendingEvent {
    /// An event with the acknowledgement that resumes its sub-agent. `None` if the stream was dropped, which has
    /// stopped the sub-agent.
    Event(Arc<Event>, Option<Ack>),
    Failure(RunError),
}

/// Resumes the sub-agent that waits for its event. If dropped, the sub-agent stops.
pub(crate) struct Ack(oneshot::Sender<Arc<Event>>);

impl Ack {
    /// Resumes the sub-agent with the event as it was stored, or with the original if it was dropped.
    pub(crate) fn acknowledge(self, event: Arc<Event>) {
        // A stopped sub-agent does not wait for it.
        let _ = self.0.send(event);
    }
}

impl SubAgentRelay {
    /// Takes the pending event with this id, if it came from a sub-agent.
    pub(crate) fn take_pending(&self, id: &str) -> Option<PendingEvent> {
        self.state().pending.remove(id)
    }

    /// Starts a sub-agent, which sees the state changes of the guest. Returns when its first event has arrived or it
    /// has ended.
    ///
    /// # Errors
    /// If it fails before its first event.
    pub(crate) async fn start(
        self: &Arc<Self>,
        cx: &AgentContext,
        name: String,
        grants: Arc<Grants>,
        nesting: Nesting,
        permit: OwnedSemaphorePermit,
    ) -> Result<SubAgent, RunError> {
        let host = cx.call.host()?.clone();
        let cx = cx.clone();
        let (sender, mut items) = mpsc::channel(1);
        let sub_agent = name.clone();
        // Storing the changes may run other components, so it runs in the task and not in the guest's store.
        let run = async move {
            let _permit = permit;
            let sink: Arc<dyn EventSink> = Arc::new(RelaySink(sender.clone()));
            let outcome = match cx.flush().await {
                Ok(()) => host.run_sub_agent(&cx.call, &sub_agent, sink).await,
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                // A guest that has dropped the stream ignores the failure.
                let _ = sender.send(SubAgentItem::Failure(error)).await;
            }
        };
        {
            let mut state = self.state();
            while state.runs.try_join_next().is_some() {}
            state.runs.spawn(nesting.scope(run).in_current_span());
        }
        let first = match items.recv().await {
            Some(SubAgentItem::Failure(error)) => return Err(error),
            other => other,
        };
        Ok(SubAgent { name, first, items, relay: self.clone(), grants, last_read: None })
    }

    /// Stops the sub-agent that waits for an event, because its stream is dropped. The event can still be yielded.
    fn detach(&self, id: String) {
        let mut state = self.state();
        match state.pending.get_mut(&id) {
            Some(PendingEvent::Event(_, ack)) => *ack = None,
            Some(PendingEvent::Failure(_)) => {}
            None => return,
        }
        state.detached.push_back(id);
        if state.detached.len() > MAX_DETACHED
            && let Some(oldest) = state.detached.pop_front()
        {
            state.pending.remove(&oldest);
        }
    }

    fn add_pending(&self, id: String, pending: PendingEvent) {
        self.state().pending.insert(id, pending);
    }

    fn state(&self) -> MutexGuard<'_, RelayState> {
        self.0.lock_unpoisoned()
    }
}

/// An item of a sub-agent for the guest.
enum SubAgentItem {
    Event(Arc<Event>, Ack),
    Failure(RunError),
}

/// The event sink of a sub-agent.
struct RelaySink(mpsc::Sender<SubAgentItem>);

#[async_trait]
impl EventSink for RelaySink {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        let (ack, decided) = oneshot::channel();
        self.0.send(SubAgentItem::Event(event, Ack(ack))).await.map_err(|_| RunError::Stopped)?;
        decided.await.map_err(|_| RunError::Stopped)
    }
}

/// The stream of a sub-agent's events. Dropping it stops the sub-agent.
pub struct SubAgent {
    name: String,
    first: Option<SubAgentItem>,
    items: mpsc::Receiver<SubAgentItem>,
    relay: Arc<SubAgentRelay>,
    /// The grants of the guest, which may not see all state.
    grants: Arc<Grants>,
    /// The id of the event that the guest has read last.
    last_read: Option<String>,
}

impl SubAgent {
    /// Drops the last event if the guest has not yielded it.
    fn drop_last_read(&mut self) {
        let last_read = self.last_read.take().and_then(|id| self.relay.take_pending(&id));
        if let Some(PendingEvent::Event(event, Some(ack))) = last_read {
            ack.acknowledge(event);
        }
    }

    /// Adds an item to the pending events. Returns the event that represents it.
    fn register(&mut self, item: SubAgentItem) -> wit::Event {
        let (id, event, pending) = match item {
            SubAgentItem::Event(event, ack) => {
                (event.id.clone(), self.grants.redact_state(event.to_wit()), PendingEvent::Event(event, Some(ack)))
            }
            SubAgentItem::Failure(error) => {
                let data = EventData {
                    id: new_event_id(),
                    author: self.name.clone(),
                    error_code: Some(error.code().into()),
                    error_message: Some(error.client_message()),
                    ..EventData::default()
                };
                (data.id.clone(), data.to_wit(), PendingEvent::Failure(error))
            }
        };
        self.last_read = Some(id.clone());
        self.relay.add_pending(id, pending);
        event
    }
}

impl Drop for SubAgent {
    fn drop(&mut self) {
        if let Some(id) = self.last_read.take() {
            self.relay.detach(id);
        }
    }
}

impl Stream for SubAgent {
    type Item = wit::Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<wit::Event>> {
        self.drop_last_read();
        let item = match self.first.take() {
            Some(first) => Some(first),
            None => ready!(self.items.poll_recv(cx)),
        };
        Poll::Ready(item.map(|item| self.register(item)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use futures::StreamExt;
    use hatchery_core::{
        AgentHost, CallContext, Content, Invocation, JsonMap, Model, ModelError, ModelResolver, NewInvocation,
        RunConfig, Services, Session, SessionKey, State as SessionState, Timestamp, ToolAuthorizer, ToolError,
    };
    use hatchery_stores::{KeywordMemory, MemoryArtifacts, MemoryCredentials, MemorySessions};
    use serde_json::{Value, json};

    use super::*;

    struct NoModels;

    impl ModelResolver for NoModels {
        fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
            Err(ModelError::new(hatchery_core::ModelErrorKind::UnknownModel, name, "there is none"))
        }
    }

    /// Records the events that reach the session.
    #[derive(Default)]
    struct RecordingSink(Mutex<Vec<Arc<Event>>>);

    #[async_trait]
    impl EventSink for RecordingSink {
        async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
            self.0.lock().unwrap().push(event.clone());
            Ok(event)
        }
    }

    /// Its sub-agent emits the state that was stored before it began, and then the author of the event as it was
    /// stored.
    struct EchoHost(Arc<RecordingSink>);

    #[async_trait]
    impl AgentHost for EchoHost {
        async fn run_sub_agent(&self, _: &CallContext, _: &str, sink: Arc<dyn EventSink>) -> Result<(), RunError> {
            let deltas = self.0.0.lock().unwrap().iter().map(|event| event.actions.state_delta.clone()).collect();
            let event = |text: String| EventData { author: text, ..EventData::default() };
            let delta: Vec<JsonMap> = deltas;
            let stored = sink.emit(Event::new(event(json!(delta).to_string()))).await?;
            sink.emit(Event::new(event(format!("stored as {}", stored.author)))).await?;
            Ok(())
        }

        async fn call_checked_tool(
            &self,
            _: &CallContext,
            name: &str,
            _: JsonMap,
            _: ToolAuthorizer<'_>,
        ) -> Result<Value, ToolError> {
            Err(ToolError::Recoverable(name.into()))
        }

        fn model(&self, _: &CallContext) -> Result<(String, Arc<dyn Model>), RunError> {
            Err(RunError::Stopped)
        }
    }

    /// Returns the context of a call that stores nothing.
    pub(crate) fn call() -> CallContext {
        context(&Arc::default()).call
    }

    /// Returns the context of a call in a run with these settings.
    pub(crate) fn call_with(run_config: RunConfig) -> CallContext {
        context_with(&Arc::default(), run_config).call
    }

    fn context(stored: &Arc<RecordingSink>) -> AgentContext {
        context_with(stored, RunConfig::default())
    }

    fn context_with(stored: &Arc<RecordingSink>, run_config: RunConfig) -> AgentContext {
        let key = SessionKey::new("app", "user", "session");
        let services = Services {
            sessions: Arc::new(MemorySessions::new()),
            artifacts: Arc::new(MemoryArtifacts::new()),
            memory: Arc::new(KeywordMemory::default()),
            credentials: Arc::new(MemoryCredentials::default()),
            models: Arc::new(NoModels),
        };
        let now = Timestamp::now();
        let session = Session {
            key,
            state: SessionState::default(),
            events: Default::default(),
            revision: 0,
            created: now,
            last_update_time: now,
        };
        let new = NewInvocation::new(session, services);
        let user_content = Arc::new(Content::user("hello"));
        let (invocation, _) = Invocation::new(NewInvocation { user_content, run_config, ..new });
        let call = CallContext::new(invocation, "agent", None).with_host(Arc::new(EchoHost(stored.clone())));
        AgentContext { call, sink: stored.clone() }
    }

    async fn start(cx: &AgentContext) -> SubAgent {
        start_in(&Arc::default(), cx).await
    }

    async fn start_in(relay: &Arc<SubAgentRelay>, cx: &AgentContext) -> SubAgent {
        let nesting = Nesting::current();
        let permit = nesting.try_acquire().unwrap();
        relay.start(cx, "echo".into(), Arc::default(), nesting, permit).await.unwrap()
    }

    #[tokio::test]
    async fn changes_of_the_guest_are_stored_before_its_sub_agent_begins() {
        let stored = Arc::new(RecordingSink::default());
        let cx = context(&stored);
        cx.call.set_state("at", json!(1));
        let mut sub_agent = start(&cx).await;
        match sub_agent.first.take() {
            Some(SubAgentItem::Event(event, _)) => assert_eq!(event.author, r#"[{"at":1}]"#),
            Some(SubAgentItem::Failure(error)) => panic!("{error}"),
            None => panic!("no event"),
        }
    }

    #[tokio::test]
    async fn a_sub_agent_stops_when_its_stream_is_dropped_and_its_last_event_can_be_yielded_for_a_while() {
        let (relay, cx) = (Arc::<SubAgentRelay>::default(), context(&Arc::default()));
        let mut ids = Vec::new();
        for _ in 0..=MAX_DETACHED {
            let event = start_in(&relay, &cx).await.next().await.unwrap();
            ids.push(event.id);
            tokio::task::yield_now().await;
            assert!(relay.state().runs.try_join_next().is_some(), "the sub-agent has not ended");
        }
        assert!(relay.take_pending(&ids[0]).is_none(), "the oldest is dropped");
        for id in &ids[1..] {
            assert!(matches!(relay.take_pending(id), Some(PendingEvent::Event(_, None))));
        }
        assert!(relay.state().pending.is_empty());
    }

    #[tokio::test]
    async fn a_sub_agent_gets_the_event_that_was_stored_instead_of_its_own() {
        let stored = Arc::new(RecordingSink::default());
        let mut sub_agent = start(&context(&stored)).await;
        let Some(SubAgentItem::Event(_, ack)) = sub_agent.first.take() else { panic!("no event") };
        ack.acknowledge(Event::new(EventData { author: "another".into(), ..EventData::default() }));
        match sub_agent.items.recv().await {
            Some(SubAgentItem::Event(event, _)) => assert_eq!(event.author, "stored as another"),
            Some(SubAgentItem::Failure(error)) => panic!("{error}"),
            None => panic!("no event"),
        }
    }
}
