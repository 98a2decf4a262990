//! A component's model: one instance per answer, in a task of its own, because a model may be asked by another guest and a store must
//! not be polled inside another. The guest is at most one response ahead of its reader, and dropping the answer ends it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use hatchery_core::{LlmRequest, LlmResponse, Model, ModelError, ModelErrorKind, ResponseStream, StreamingMode};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::PollSender;
use tracing::Instrument;
use wasmtime::component::{Source, StreamConsumer, StreamResult};
use wasmtime::{Store, StoreContextMut};

use super::Component;
use crate::contract::bindings::exports::hatchery::agent::guest_models::{Guest, GuestIndices};
use crate::contract::convert::{FromWit, ITEM, ToWit, Weigh, bounded_response, model_error, wit};
use crate::error::CallError;
use crate::runtime::limits::Limit;
use crate::runtime::store::{Caller, HostState};

/// What the names of components' models begin with.
pub(crate) const PREFIX: &str = "component:";

pub(super) struct ComponentModel {
    pub(super) component: Arc<Component>,
    pub(super) exports: GuestIndices,
    pub(super) name: String,
}

#[async_trait]
impl Model for ComponentModel {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let mut answer = self.begin(&request, streaming_mode);
        // What goes wrong before the first response is an error of the request.
        let first = answer.next().await.transpose()?;
        let rest = stream::unfold(answer, |mut answer| async { answer.next().await.map(|item| (item, answer)) });
        Ok(stream::iter(first.map(Ok)).chain(rest).boxed())
    }
}

impl ComponentModel {
    /// Starts the guest.
    fn begin(&self, request: &LlmRequest, streaming_mode: StreamingMode) -> Answer {
        let (sender, responses) = mpsc::channel(1);
        let model = format!("{PREFIX}{}/{}", self.component.name, self.name);
        let (component, exports) = (self.component.clone(), self.exports.clone());
        let asked = Asked { name: self.name.clone(), request: request.to_wit(), streaming_mode };
        let called_as = model.clone();
        let run = async move {
            let piped = sender.clone();
            let call = component.sandbox.run(Caller::Model, |mut store, instance| async move {
                let guest = exports.load(&mut store, &instance)?;
                run_to_end(store, guest, asked, piped).await
            });
            let failure = match call.await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => model_error(error, &called_as),
                Err(error) => error.into_model_error(&called_as),
            };
            // Whoever has dropped the answer does not want to know.
            let _ = sender.send(Err(failure)).await;
        };
        let mut guest = JoinSet::new();
        guest.spawn(run.in_current_span());
        Answer {
            component: self.component.clone(),
            model,
            streaming_mode,
            responses,
            guest,
            weight: 0,
            state: State::Begun,
        }
    }
}

/// What the guest is asked.
struct Asked {
    name: String,
    request: wit::LlmRequest,
    streaming_mode: StreamingMode,
}

/// Runs the guest until its stream has ended and nothing of it is left to do.
async fn run_to_end(
    mut store: Store<HostState>,
    guest: Guest,
    asked: Asked,
    sender: mpsc::Sender<Said>,
) -> wasmtime::Result<Result<(), wit::Error>> {
    let (open, closed) = oneshot::channel::<()>();
    let run = store.run_concurrent(async move |accessor| {
        let streamed = asked.streaming_mode == StreamingMode::On;
        let stream = match guest.call_generate(accessor, asked.name, asked.request, streamed).await? {
            Ok(stream) => stream,
            Err(error) => return wasmtime::error::Ok(Err(error)),
        };
        accessor.with(|access| stream.pipe(access, Piped { sender: PollSender::new(sender), _open: open }))?;
        // An error says that the stream's end, the sender, was dropped.
        let _ = closed.await;
        poll_fn(|cx| accessor.poll_no_interesting_tasks(cx)).await;
        Ok(Ok(()))
    });
    run.await?
}

/// What comes from the guest's task: responses, and at most one failure, which is the last.
type Said = Result<wit::LlmResponse, ModelError>;

/// The reading end of the guest's stream, with a sign that the stream is open.
struct Piped {
    sender: PollSender<Said>,
    _open: oneshot::Sender<()>,
}

impl StreamConsumer<HostState> for Piped {
    type Item = wit::LlmResponse;

    fn poll_consume(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        store: StoreContextMut<HostState>,
        mut source: Source<'_, Self::Item>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        let nothing = if finish { Poll::Ready(Ok(StreamResult::Cancelled)) } else { Poll::Pending };
        match self.sender.poll_reserve(cx) {
            Poll::Pending => return nothing,
            Poll::Ready(Err(_)) => return Poll::Ready(Ok(StreamResult::Dropped)),
            Poll::Ready(Ok(())) => {}
        }
        let mut next = None;
        source.read(store, &mut next)?;
        let Some(response) = next else { return nothing };
        let sent = self.sender.send_item(Ok(response));
        Poll::Ready(Ok(if sent.is_ok() { StreamResult::Completed } else { StreamResult::Dropped }))
    }
}

/// The answer of a model on its way to whoever asked.
struct Answer {
    component: Arc<Component>,
    model: String,
    streaming_mode: StreamingMode,
    responses: mpsc::Receiver<Said>,
    /// The guest's task; ends when this is dropped.
    guest: JoinSet<()>,
    /// Bytes of the responses so far.
    weight: u64,
    state: State,
}

/// How far an answer has come.
#[derive(PartialEq)]
enum State {
    /// Nothing has been said.
    Begun,
    /// Pieces have come.
    InPieces,
    /// A whole response has come: nothing may follow.
    Whole,
    /// It has failed.
    Failed,
}

impl Answer {
    async fn next(&mut self) -> Option<Result<LlmResponse, ModelError>> {
        if self.state == State::Failed {
            return None;
        }
        let next = match self.responses.recv().await {
            Some(Ok(response)) => self.accept(response),
            Some(Err(error)) => Err(error),
            None => self.guest.join_next().await?.map(|()| None).map_err(|error| self.broke_off(&error.to_string())),
        };
        if next.is_err() {
            self.state = State::Failed;
            self.guest.abort_all();
        }
        next.transpose()
    }

    /// Understands a response, and checks that it may come now.
    fn accept(&mut self, response: wit::LlmResponse) -> Result<Option<LlmResponse>, ModelError> {
        let failed = |error: CallError| error.into_model_error(&self.model);
        let breach = |what: &str| failed(CallError::Contract(what.into()));
        self.weight = self.weight.saturating_add(ITEM + response.weigh());
        let limits = &self.component.sandbox.limits;
        if self.weight > limits.result {
            return Err(failed(limits.hit(Limit::Result).into()));
        }
        let understood = LlmResponse::from_wit(bounded_response(response));
        let response = understood.map_err(|error| breach(&error.to_string()))?;
        if let Some(error) = self.failure(&response) {
            return Err(error);
        }
        // What ends an answer, such as an error, may come after its pieces; what it said may not come again.
        let is_whole = !response.partial && response.content.is_some() && response.error_code.is_none();
        match self.state {
            State::Whole | State::Failed => return Err(breach("it answered again after a whole response")),
            State::InPieces if is_whole => return Err(breach("it repeated its pieces in a whole response")),
            State::Begun | State::InPieces if response.partial && self.streaming_mode == StreamingMode::Off => {
                return Err(breach("it answered in pieces when asked for one response"));
            }
            State::Begun | State::InPieces => {}
        }
        self.state = if response.partial { State::InPieces } else { State::Whole };
        Ok(Some(response))
    }

    /// The failure that a response stands for: one that says nothing but the error of a model.
    fn failure(&self, response: &LlmResponse) -> Option<ModelError> {
        let kind = ModelErrorKind::from_code(response.error_code.as_deref()?)?;
        let message = response.error_message.clone().unwrap_or_default();
        response.content.is_none().then(|| ModelError::new(kind, &self.model, message))
    }

    fn broke_off(&self, reason: &str) -> ModelError {
        ModelError::new(ModelErrorKind::Server, &self.model, format!("its call broke off: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::Content;

    use super::*;
    use crate::contract::component::tests::with_agents;

    /// What becomes of an answer of these responses, as texts and errors.
    async fn heard(streaming_mode: StreamingMode, responses: Vec<LlmResponse>) -> Vec<Result<String, ModelError>> {
        let (sender, receiver) = mpsc::channel(1);
        let mut guest = JoinSet::new();
        guest.spawn(async move {
            for response in responses {
                if sender.send(Ok(response.to_wit())).await.is_err() {
                    return;
                }
            }
        });
        let component = with_agents(Vec::new()).await;
        let model = "component:made/model".into();
        let mut answer =
            Answer { component, model, streaming_mode, responses: receiver, guest, weight: 0, state: State::Begun };
        let mut heard = Vec::new();
        while let Some(item) = answer.next().await {
            heard.push(item.map(|response| response.content.map(|content| content.text()).unwrap_or_default()));
        }
        heard
    }

    fn whole(text: &str) -> LlmResponse {
        LlmResponse::text(text)
    }

    fn piece(text: &str) -> LlmResponse {
        LlmResponse { partial: true, ..whole(text) }
    }

    fn failed(code: &str) -> LlmResponse {
        LlmResponse { error_code: Some(code.into()), error_message: Some("too late".into()), ..LlmResponse::default() }
    }

    /// The last of what was heard, which is an error.
    fn error(mut heard: Vec<Result<String, ModelError>>) -> ModelError {
        heard.pop().expect("an item").expect_err("an error")
    }

    #[tokio::test]
    async fn an_answer_that_repeats_itself_is_refused() {
        let repeated = heard(StreamingMode::On, vec![piece("a "), piece("b"), whole("a b")]).await;
        assert_eq!(repeated.len(), 3);
        let error = error(repeated);
        assert_eq!(error.kind, ModelErrorKind::BadResponse);
        assert_eq!(
            error.to_string(),
            "model `component:made/model`: it broke the contract: it repeated its pieces in a whole response"
        );
    }

    #[tokio::test]
    async fn who_asks_for_one_response_gets_one() {
        let pieces = error(heard(StreamingMode::Off, vec![piece("a")]).await);
        assert!(pieces.to_string().ends_with("it answered in pieces when asked for one response"), "{pieces}");
        let twice = heard(StreamingMode::Off, vec![whole("a"), whole("b"), whole("c")]).await;
        assert_eq!(twice.len(), 2, "nothing follows an error");
        let twice = error(twice);
        assert!(twice.to_string().ends_with("it answered again after a whole response"), "{twice}");
    }

    #[tokio::test]
    async fn the_end_of_a_streamed_answer_may_say_why_it_ended() {
        let end = LlmResponse { finish_reason: Some("STOP".into()), ..LlmResponse::default() };
        let heard = heard(StreamingMode::On, vec![piece("a"), end]).await;
        assert_eq!(heard.into_iter().map(Result::unwrap).collect::<Vec<_>>(), ["a", ""]);
    }

    #[tokio::test]
    async fn an_error_in_the_middle_is_a_failure_if_its_code_is_that_of_a_model_and_else_a_response() {
        let limited = error(heard(StreamingMode::On, vec![piece("a"), failed("MODEL_RATE_LIMITED")]).await);
        assert_eq!((limited.kind, limited.message.as_str()), (ModelErrorKind::RateLimited, "too late"));
        let own = heard(StreamingMode::On, vec![piece("a"), failed("SAFETY")]).await;
        assert!(own.iter().all(Result::is_ok) && own.len() == 2, "{own:?}");
        let said = LlmResponse { content: Some(Content::model("sorry")), ..failed("MODEL_RATE_LIMITED") };
        assert_eq!(heard(StreamingMode::Off, vec![said]).await[0].as_deref().unwrap(), "sorry");
    }

    #[tokio::test]
    async fn a_guest_that_breaks_off_is_an_error() {
        let mut guest = JoinSet::new();
        guest.spawn(std::future::pending());
        guest.abort_all();
        let (_, responses) = mpsc::channel(1);
        let (component, model) = (with_agents(Vec::new()).await, "component:made/model".into());
        let streaming_mode = StreamingMode::Off;
        let mut answer = Answer { component, model, streaming_mode, responses, guest, weight: 0, state: State::Begun };
        let error = answer.next().await.expect("an item").unwrap_err();
        assert!(error.to_string().starts_with("model `component:made/model`: its call broke off: "), "{error}");
        assert!(answer.next().await.is_none());
    }
}
