//! Sub agents of a custom agent in a component: their events wait at the border until the guest has decided what becomes of them.
//!
//! A sub agent's event is offered to the guest under its id. When the guest yields an event of that id, the original goes on to the
//! session and the sub agent may take its next step; when the guest reads on instead, the event is dropped. A failure of the sub agent is
//! offered like an event: yielded, it ends the run as it would have without the guest; not yielded, the guest has dealt with it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use hatchery_core::event::new_event_id;
use hatchery_core::{AgentContext, Event, EventData, EventSink, RunError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::Instrument;
use wasmtime::StoreContextMut;
use wasmtime::component::{Destination, StreamProducer, StreamResult};

use crate::convert::{ToWit, wit};

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
pub(crate) struct Fate(oneshot::Sender<()>);

impl Fate {
    /// The event was stored or dropped.
    pub(crate) fn decided(self) {
        // A sub agent that was stopped meanwhile does not wait for it.
        let _ = self.0.send(());
    }
}

impl Relay {
    /// Takes what the guest yields under this id, if it came from a sub agent.
    pub(crate) fn claim(&self, id: &str) -> Option<Held> {
        self.state().held.remove(id)
    }

    /// Starts the sub agent; gives its events once there is a first one, or it has ended.
    ///
    /// # Errors
    /// When it fails before its first event.
    pub(crate) async fn start(self: &Arc<Self>, cx: &AgentContext, name: String) -> Result<SubAgent, RunError> {
        let host = cx.call.host()?.clone();
        let call = cx.call.clone();
        let (sender, mut offers) = mpsc::channel(1);
        let sub_agent = name.clone();
        let run = async move {
            let sink: Arc<dyn EventSink> = Arc::new(Sink(sender.clone()));
            if let Err(error) = host.run_sub_agent(&call, &sub_agent, sink).await {
                // A guest that has dropped the stream does not want to know.
                let _ = sender.send(Offer::Failure(error)).await;
            }
        };
        {
            let mut state = self.state();
            while state.runs.try_join_next().is_some() {}
            state.runs.spawn(run.in_current_span());
        }
        let first = match offers.recv().await {
            Some(Offer::Failure(error)) => return Err(error),
            other => other,
        };
        Ok(SubAgent { name, first, offers, relay: self.clone(), shown: None })
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
    async fn emit(&self, event: Arc<Event>) -> Result<(), RunError> {
        let (fate, decided) = oneshot::channel();
        self.0.send(Offer::Event(event, Fate(fate))).await.map_err(|_| RunError::Stopped)?;
        decided.await.map_err(|_| RunError::Stopped)
    }
}

/// The events of a running sub agent, one per read.
pub(crate) struct SubAgent {
    name: String,
    first: Option<Offer>,
    offers: mpsc::Receiver<Offer>,
    relay: Arc<Relay>,
    /// The id of the event that the guest read last.
    shown: Option<String>,
}

impl SubAgent {
    /// The guest reads on: what it has read and not yielded is dropped.
    fn drop_shown(&mut self) {
        if let Some(Held::Event(_, fate)) = self.shown.take().and_then(|id| self.relay.claim(&id)) {
            fate.decided();
        }
    }

    /// Notes the offer as read, and gives the event that stands for it.
    fn show(&mut self, offer: Offer) -> wit::Event {
        let (id, event, held) = match offer {
            Offer::Event(event, fate) => (event.id.clone(), event.to_wit(), Held::Event(event, fate)),
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
        self.drop_shown();
        let offer = match self.first.take() {
            Some(first) => Some(first),
            None => match self.offers.poll_recv(cx) {
                Poll::Pending if finish => return Poll::Ready(Ok(StreamResult::Cancelled)),
                pending_or_offer => ready!(pending_or_offer),
            },
        };
        let Some(offer) = offer else { return Poll::Ready(Ok(StreamResult::Dropped)) };
        destination.set_buffer(Some(self.show(offer)));
        Poll::Ready(Ok(StreamResult::Completed))
    }
}
