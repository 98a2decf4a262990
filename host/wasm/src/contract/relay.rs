//! Sub agents of a custom agent in a component: their events wait at the border until the guest has decided what becomes of them.
//!
//! A sub agent's event is offered to the guest under its id. When the guest yields an event of that id, the original goes on to the
//! session and the sub agent may take its next step; when the guest reads on instead, the event is dropped. A failure of the sub agent is
//! offered like an event: yielded, it ends the run as it would have without the guest; not yielded, the guest has dealt with it.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use hatchery_core::{AgentContext, Event, EventData, EventSink, RunError, new_event_id};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::Instrument;
use wasmtime::StoreContextMut;
use wasmtime::component::{Destination, StreamProducer, StreamResult};

use crate::contract::convert::{ToWit, wit};
use crate::policy::Grants;
use crate::runtime::store::nesting::Nesting;

/// What the guest holds back: sub agents' events that it has read but not yielded, and the runs that wait for them. Dropping it ends
/// those runs.
#[derive(Default)]
pub(crate) struct Relay(Mutex<State>);

#[derive(Default)]
struct State {
    held: HashMap<String, Held>,
    runs: JoinSet<()>,
}

/// Something that the guest has read and may yield.
pub(crate) enum Held {
    /// An event, and where to say that it is stored.
    Event(Arc<Event>, Fate),
    /// The failure of a sub agent.
    Failure(RunError),
}

/// Tells a waiting sub agent that it may go on; dropped, that it must stop.
pub(crate) struct Fate(oneshot::Sender<Arc<Event>>);

impl Fate {
    /// The event was stored as this one, or dropped.
    pub(crate) fn decided(self, event: Arc<Event>) {
        // A sub agent that was stopped meanwhile does not wait for it.
        let _ = self.0.send(event);
    }
}

impl Relay {
    /// Takes what the guest yields under this id, if it came from a sub agent.
    pub(crate) fn claim(&self, id: &str) -> Option<Held> {
        self.state().held.remove(id)
    }

    /// Starts the sub agent, which sees the changes of state that the guest has made; gives its events once there is a first one, or it
    /// has ended.
    ///
    /// # Errors
    /// When it fails before its first event.
    pub(crate) async fn start(
        self: &Arc<Self>,
        cx: &AgentContext,
        name: String,
        grants: Arc<Grants>,
        nesting: Nesting,
        place: OwnedSemaphorePermit,
    ) -> Result<SubAgent, RunError> {
        let host = cx.call.host()?.clone();
        let cx = cx.clone();
        let (sender, mut offers) = mpsc::channel(1);
        let sub_agent = name.clone();
        // Storing the changes may run anything, so it happens in the task and not in the guest's store.
        let run = async move {
            let _place = place;
            let sink: Arc<dyn EventSink> = Arc::new(Sink(sender.clone()));
            let ended = match cx.flush().await {
                Ok(()) => host.run_sub_agent(&cx.call, &sub_agent, sink).await,
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                // A guest that has dropped the stream does not want to know.
                let _ = sender.send(Offer::Failure(error)).await;
            }
        };
        {
            let mut state = self.state();
            while state.runs.try_join_next().is_some() {}
            state.runs.spawn(nesting.scope(run).in_current_span());
        }
        let first = match offers.recv().await {
            Some(Offer::Failure(error)) => return Err(error),
            other => other,
        };
        Ok(SubAgent { name, first, offers, relay: self.clone(), grants, shown: None })
    }

    fn hold(&self, id: String, held: Held) {
        self.state().held.insert(id, held);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a sub agent has for the guest.
enum Offer {
    Event(Arc<Event>, Fate),
    Failure(RunError),
}

/// Where a sub agent's events go.
struct Sink(mpsc::Sender<Offer>);

#[async_trait]
impl EventSink for Sink {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        let (fate, decided) = oneshot::channel();
        self.0.send(Offer::Event(event, Fate(fate))).await.map_err(|_| RunError::Stopped)?;
        decided.await.map_err(|_| RunError::Stopped)
    }
}

/// The events of a running sub agent, one per read.
pub struct SubAgent {
    name: String,
    first: Option<Offer>,
    offers: mpsc::Receiver<Offer>,
    relay: Arc<Relay>,
    /// Those of the guest, which does not see all state.
    grants: Arc<Grants>,
    /// The id of the event that the guest read last.
    shown: Option<String>,
}

impl SubAgent {
    /// The next event, as the guest is shown it; nothing when the sub agent has ended.
    pub(crate) async fn next(&mut self) -> Option<wit::Event> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<wit::Event>> {
        self.drop_shown();
        let offer = match self.first.take() {
            Some(first) => Some(first),
            None => ready!(self.offers.poll_recv(cx)),
        };
        Poll::Ready(offer.map(|offer| self.show(offer)))
    }

    /// The guest reads on: what it has read and not yielded is dropped.
    fn drop_shown(&mut self) {
        if let Some(Held::Event(event, fate)) = self.shown.take().and_then(|id| self.relay.claim(&id)) {
            fate.decided(event);
        }
    }

    /// Notes the offer as read, and gives the event that stands for it.
    fn show(&mut self, offer: Offer) -> wit::Event {
        let (id, event, held) = match offer {
            Offer::Event(event, fate) => {
                (event.id.clone(), self.grants.visible(event.to_wit()), Held::Event(event, fate))
            }
            Offer::Failure(error) => {
                let data = EventData {
                    id: new_event_id(),
                    author: self.name.clone(),
                    error_code: Some(error.code().into()),
                    error_message: Some(error.to_string()),
                    ..EventData::default()
                };
                (data.id.clone(), data.to_wit(), Held::Failure(error))
            }
        };
        self.shown = Some(id.clone());
        self.relay.hold(id, held);
        event
    }
}

impl<D> StreamProducer<D> for SubAgent {
    type Item = wit::Event;
    type Buffer = Option<wit::Event>;

    fn poll_produce<'a>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut store: StoreContextMut<'a, D>,
        mut destination: Destination<'a, Self::Item, Self::Buffer>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        if destination.remaining(&mut store) == Some(0) {
            return Poll::Ready(Ok(StreamResult::Completed));
        }
        match self.poll_next(cx) {
            Poll::Pending if finish => Poll::Ready(Ok(StreamResult::Cancelled)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(Ok(StreamResult::Dropped)),
            Poll::Ready(event) => {
                destination.set_buffer(event);
                Poll::Ready(Ok(StreamResult::Completed))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::RwLock;

    use hatchery_core::{
        AgentHost, CallContext, Caller, CallerOrigin, Content, Invocation, JsonMap, Model, ModelError, ModelResolver,
        RunConfig, Services, Session, SessionKey, State as SessionState, Timestamp, ToolAuthorizer, ToolError,
    };
    use hatchery_stores::{KeywordMemory, MemoryArtifacts, MemorySessions};
    use serde_json::{Value, json};
    use tokio_util::sync::CancellationToken;

    use super::*;

    struct NoModels;

    impl ModelResolver for NoModels {
        fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
            Err(ModelError::new(hatchery_core::ModelErrorKind::UnknownModel, name, "there is none"))
        }
    }

    /// Keeps the events that reach the session.
    #[derive(Default)]
    struct Stored(Mutex<Vec<Arc<Event>>>);

    #[async_trait]
    impl EventSink for Stored {
        async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
            self.0.lock().unwrap().push(event.clone());
            Ok(event)
        }
    }

    /// Its sub agent says the state that was stored before it began, and then the event that was stored for that.
    struct Teller(Arc<Stored>);

    #[async_trait]
    impl AgentHost for Teller {
        async fn run_sub_agent(&self, _: &CallContext, _: &str, sink: Arc<dyn EventSink>) -> Result<(), RunError> {
            let deltas = self.0.0.lock().unwrap().iter().map(|event| event.actions.state_delta.clone()).collect();
            let said = |text: String| EventData { author: text, ..EventData::default() };
            let delta: Vec<JsonMap> = deltas;
            let stored = sink.emit(Event::new(said(json!(delta).to_string()))).await?;
            sink.emit(Event::new(said(format!("stored as {}", stored.author)))).await?;
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

    /// A context for a call, of which nothing is stored.
    pub(crate) fn call() -> CallContext {
        context(&Arc::default()).call
    }

    fn context(stored: &Arc<Stored>) -> AgentContext {
        let key = SessionKey::new("app", "user", "session");
        let services = Services {
            sessions: Arc::new(MemorySessions::new()),
            artifacts: Arc::new(MemoryArtifacts::new()),
            memory: Arc::new(KeywordMemory::default()),
            models: Arc::new(NoModels),
        };
        let now = Timestamp::now();
        let session = Session {
            key: key.clone(),
            state: SessionState::default(),
            events: Default::default(),
            revision: 0,
            created: now,
            last_update_time: now,
        };
        let invocation = Invocation {
            id: "e-test".into(),
            caller: Caller::claimed("user", CallerOrigin::InProcess),
            session_key: key,
            user_content: RwLock::new(Arc::new(Content::user("hello"))),
            run_config: RunConfig::default(),
            services,
            cancel: CancellationToken::new(),
            session: RwLock::new(session),
            spent: Arc::default(),
            depth: 0,
            signer: Default::default(),
        };
        let call = CallContext::new(Arc::new(invocation), "agent", None).with_host(Arc::new(Teller(stored.clone())));
        AgentContext { call, sink: stored.clone() }
    }

    async fn start(cx: &AgentContext) -> SubAgent {
        let nesting = Nesting::current();
        let place = nesting.place().unwrap();
        Arc::new(Relay::default()).start(cx, "teller".into(), Arc::default(), nesting, place).await.unwrap()
    }

    #[tokio::test]
    async fn changes_of_the_guest_are_stored_before_its_sub_agent_begins() {
        let stored = Arc::new(Stored::default());
        let cx = context(&stored);
        cx.call.set_state("at", json!(1));
        let sub_agent = start(&cx).await;
        match sub_agent.first {
            Some(Offer::Event(event, _)) => assert_eq!(event.author, r#"[{"at":1}]"#),
            Some(Offer::Failure(error)) => panic!("{error}"),
            None => panic!("it said nothing"),
        }
    }

    #[tokio::test]
    async fn a_sub_agent_is_told_the_event_that_was_stored_in_place_of_its_own() {
        let stored = Arc::new(Stored::default());
        let mut sub_agent = start(&context(&stored)).await;
        let Some(Offer::Event(_, fate)) = sub_agent.first.take() else { panic!("no event") };
        fate.decided(Event::new(EventData { author: "another".into(), ..EventData::default() }));
        match sub_agent.offers.recv().await {
            Some(Offer::Event(event, _)) => assert_eq!(event.author, "stored as another"),
            Some(Offer::Failure(error)) => panic!("{error}"),
            None => panic!("it said nothing"),
        }
    }
}
