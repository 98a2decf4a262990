//! Models of components: one instance per answer, in its own task, because another guest may send the request,
//! and a Wasmtime store must not be polled inside another. The guest is at most one response ahead of its reader.
//! Dropping the answer ends the task.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures::{Sink, StreamExt, stream};
use hatchery_core::{
    LiveConnection, LlmRequest, LlmResponse, Model, ModelCapabilities, ModelError, ModelErrorKind, ResponseStream,
    StreamingMode,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::{PollSendError, PollSender};
use tracing::Instrument;
use wasmtime::Store;

use super::Component;
use super::exports::{LiveModelExports, ModelExports, Profile};
use super::live_model::LiveModel;
use crate::contract::bindings::exports::hatchery::agent::{guest_models, sync_guest_models};
use crate::contract::convert::{
    EstimateSize, FromWit, ITEM_SIZE, ParsedSize, ToWit, to_model_error, truncate_response_error, wit,
};
use crate::contract::stream::read_to_end;
use crate::error::CallError;
use crate::runtime::limits::Limit;
use crate::runtime::store::nesting::Nesting;
use crate::runtime::store::{CallOrigin, HostState};

/// Prefix of the names of components' models.
pub(crate) const PREFIX: &str = "component:";

pub(super) struct ComponentModel {
    pub(super) component: Arc<Component>,
    /// `None` if it is only live.
    pub(super) exports: Option<ModelExports>,
    /// `None` if it is not live.
    pub(super) live: Option<LiveModelExports>,
    pub(super) name: String,
}

#[async_trait]
impl Model for ComponentModel {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        request.progress.set_provider("component");
        let Some(exports) = self.exports.clone() else {
            let message = "it is a live model and answers no single requests; use it in a live run";
            return Err(ModelError::new(ModelErrorKind::BadRequest, self.full_name(), message));
        };
        let mut answer = self.begin(exports, &request, streaming_mode);
        // A failure before the first response is an error of the request.
        let first = answer.next().await.transpose()?;
        let rest = stream::unfold(answer, |mut answer| async { answer.next().await.map(|item| (item, answer)) });
        Ok(stream::iter(first.map(Ok)).chain(rest).boxed())
    }

    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        request.progress.set_provider("component");
        let Some(exports) = self.live.clone() else { return Err(ModelError::not_live(self.full_name())) };
        let model = LiveModel { component: self.component.clone(), exports, name: self.name.clone() };
        let connection = model.connect(&request, self.full_name()).await?;
        Ok(Box::new(connection))
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities { live: self.live.is_some(), ..ModelCapabilities::default() }
    }
}

impl ComponentModel {
    fn full_name(&self) -> String {
        format!("{PREFIX}{}/{}", self.component.name, self.name)
    }

    /// Starts the task of the guest.
    fn begin(&self, exports: ModelExports, request: &LlmRequest, streaming_mode: StreamingMode) -> GuestAnswer {
        let (sender, responses) = mpsc::channel(1);
        let model = self.full_name();
        let component = self.component.clone();
        let generate_call = GenerateCall { name: self.name.clone(), request: request.to_wit(), streaming_mode };
        let model_name = model.clone();
        // The task below is outside of the caller's.
        let calling_run = Nesting::calling_run();
        let run = async move {
            let response_sender = sender.clone();
            let call = component.sandbox.run(CallOrigin::Model(calling_run), |mut store, instance| {
                Box::pin(async move {
                    match exports {
                        Profile::Async(exports) => {
                            let guest = exports.load(&mut store, &instance)?;
                            run_to_end(store, guest, generate_call, response_sender).await
                        }
                        Profile::Sync(exports) => {
                            let guest = exports.load(&mut store, &instance)?;
                            run_sync_to_end(store, guest, generate_call, response_sender).await
                        }
                    }
                })
            });
            let failure = match call.await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => to_model_error(error, &model_name),
                Err(error) => error.into_model_error(&model_name),
            };
            // This fails if the answer was dropped.
            let _ = sender.send(Err(failure)).await;
        };
        let mut guest = JoinSet::new();
        guest.spawn(run.in_current_span());
        GuestAnswer {
            component: self.component.clone(),
            model,
            calling_run,
            streaming_mode,
            responses,
            guest,
            size: 0,
            state: AnswerState::Empty,
        }
    }
}

/// The arguments of `generate`.
struct GenerateCall {
    name: String,
    request: wit::LlmRequest,
    streaming_mode: StreamingMode,
}

/// Runs the guest until its stream has ended and it has no tasks left.
async fn run_to_end(
    mut store: Store<HostState>,
    guest: guest_models::Guest,
    call: GenerateCall,
    sender: mpsc::Sender<GuestResponse>,
) -> wasmtime::Result<Result<(), wit::Error>> {
    let sink = ItemSender::new(sender);
    let run = store.run_concurrent(async move |accessor| {
        let streamed = call.streaming_mode == StreamingMode::On;
        let responses = match guest.call_generate(accessor, call.name, call.request, streamed).await? {
            Ok(responses) => responses,
            Err(error) => return wasmtime::error::Ok(Err(error)),
        };
        read_to_end(accessor, responses, sink).await?;
        Ok(Ok(()))
    });
    run.await?
}

/// Asks the guest for responses until it has no more.
async fn run_sync_to_end(
    mut store: Store<HostState>,
    guest: sync_guest_models::Guest,
    call: GenerateCall,
    sender: mpsc::Sender<GuestResponse>,
) -> wasmtime::Result<Result<(), wit::Error>> {
    let streamed = call.streaming_mode == StreamingMode::On;
    let answer = match guest.call_generate(&mut store, &call.name, &call.request, streamed).await? {
        Ok(answer) => answer,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        match guest.response_stream().call_next(&mut store, answer).await? {
            Ok(Some(response)) => {
                // This fails if the answer was dropped.
                if sender.send(Ok(response)).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => return Ok(Err(error)),
        }
    }
    answer.resource_drop_async(&mut store).await?;
    Ok(Ok(()))
}

/// An item of the guest's stream, or the failure of its task, which is the last item.
pub(super) type GuestItem<T> = Result<T, ModelError>;

type GuestResponse = GuestItem<wit::LlmResponse>;

/// The sink of the guest's stream, with the room of its channel.
pub(super) struct ItemSender<T>(PollSender<GuestItem<T>>);

impl<T: Send + 'static> ItemSender<T> {
    pub(super) fn new(sender: mpsc::Sender<GuestItem<T>>) -> Self {
        Self(PollSender::new(sender))
    }
}

impl<T: Send + 'static> Sink<T> for ItemSender<T> {
    type Error = PollSendError<GuestItem<T>>;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_reserve(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, item: T) -> Result<(), Self::Error> {
        self.0.send_item(Ok(item))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }
}

/// An answer: checks the responses of the guest against the contract.
struct GuestAnswer {
    component: Arc<Component>,
    model: String,
    /// The key of the run whose code asked; `None` for other callers.
    calling_run: Option<usize>,
    streaming_mode: StreamingMode,
    responses: mpsc::Receiver<GuestResponse>,
    /// The guest's task, which is aborted on drop.
    guest: JoinSet<()>,
    /// Bytes of the responses so far.
    size: u64,
    state: AnswerState,
}

#[derive(PartialEq)]
enum AnswerState {
    Empty,
    /// Partial responses have arrived.
    Partial,
    /// A complete response has arrived; nothing may follow.
    Complete,
    Failed,
}

impl GuestAnswer {
    async fn next(&mut self) -> Option<Result<LlmResponse, ModelError>> {
        if self.state == AnswerState::Failed {
            return None;
        }
        let next = match self.responses.recv().await {
            Some(Ok(response)) => self.accept(response),
            Some(Err(error)) => Err(error),
            None => self.guest.join_next().await?.map(|()| None).map_err(|error| self.abort_error(&error.to_string())),
        };
        if next.is_err() {
            self.state = AnswerState::Failed;
            self.guest.abort_all();
        }
        next.transpose()
    }

    /// Converts a response, and checks that it may follow the ones before.
    fn accept(&mut self, response: wit::LlmResponse) -> Result<Option<LlmResponse>, ModelError> {
        let failed = |error: CallError| error.into_model_error(&self.model);
        let breach = |reason: &str| failed(CallError::Contract(reason.into()));
        self.size = self.size.saturating_add(ITEM_SIZE + response.estimated_size());
        let limits = &self.component.sandbox.limits;
        if self.size > limits.result {
            return Err(failed(limits.exceeded(Limit::Result).into()));
        }
        let _reservation = self.component.reserve_parsed(self.calling_run, response.parsed_size()).map_err(failed)?;
        let converted = LlmResponse::from_wit(truncate_response_error(response));
        let response = converted.map_err(|error| breach(&error.to_string()))?;
        if let Some(error) = self.failure(&response) {
            return Err(error);
        }
        // A final response without content, such as an error, may follow partial ones. A repetition of their content
        // may not.
        let is_complete = !response.partial && response.content.is_some() && response.error_code.is_none();
        match self.state {
            AnswerState::Complete | AnswerState::Failed => {
                return Err(breach("it answered again after its final response"));
            }
            AnswerState::Partial if is_complete => return Err(breach("it repeated its chunks in its final response")),
            AnswerState::Empty | AnswerState::Partial
                if response.partial && self.streaming_mode == StreamingMode::Off =>
            {
                return Err(breach("it streamed chunks although one response was requested"));
            }
            AnswerState::Empty | AnswerState::Partial => {}
        }
        self.state = if response.partial { AnswerState::Partial } else { AnswerState::Complete };
        Ok(Some(response))
    }

    /// Returns the failure that a response reports: it has no content, and the code of a model error.
    fn failure(&self, response: &LlmResponse) -> Option<ModelError> {
        let kind = ModelErrorKind::from_code(response.error_code.as_deref()?)?;
        let message = response.error_message.clone().unwrap_or_default();
        response.content.is_none().then(|| ModelError::new(kind, &self.model, message))
    }

    fn abort_error(&self, reason: &str) -> ModelError {
        ModelError::new(ModelErrorKind::Server, &self.model, format!("its call was aborted: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::{Content, FunctionCall, PartData};
    use serde_json::json;

    use super::*;
    use crate::contract::component::tests::{described, with_agents};
    use crate::runtime::limits::Limits;

    /// Returns the texts and errors of an answer with these responses.
    async fn collect(streaming_mode: StreamingMode, responses: Vec<LlmResponse>) -> Vec<Result<String, ModelError>> {
        collect_from(with_agents(Vec::new()).await, streaming_mode, responses).await
    }

    async fn collect_from(
        component: Arc<Component>,
        streaming_mode: StreamingMode,
        responses: Vec<LlmResponse>,
    ) -> Vec<Result<String, ModelError>> {
        let (sender, receiver) = mpsc::channel(1);
        let mut guest = JoinSet::new();
        guest.spawn(async move {
            for response in responses {
                if sender.send(Ok(response.to_wit())).await.is_err() {
                    return;
                }
            }
        });
        let model = "component:made/model".into();
        let mut answer = GuestAnswer {
            component,
            model,
            calling_run: None,
            streaming_mode,
            responses: receiver,
            guest,
            size: 0,
            state: AnswerState::Empty,
        };
        let mut collect = Vec::new();
        while let Some(item) = answer.next().await {
            collect.push(item.map(|response| response.content.map(|content| content.text()).unwrap_or_default()));
        }
        collect
    }

    fn complete(text: &str) -> LlmResponse {
        LlmResponse::text(text)
    }

    fn partial(text: &str) -> LlmResponse {
        LlmResponse { partial: true, ..complete(text) }
    }

    fn failed(code: &str) -> LlmResponse {
        LlmResponse { error_code: Some(code.into()), error_message: Some("too late".into()), ..LlmResponse::default() }
    }

    /// Returns the last item, which must be an error.
    fn error(mut collect: Vec<Result<String, ModelError>>) -> ModelError {
        collect.pop().expect("an item").expect_err("an error")
    }

    #[tokio::test]
    async fn an_answer_that_repeats_itself_is_refused() {
        let repeated = collect(StreamingMode::On, vec![partial("a "), partial("b"), complete("a b")]).await;
        assert_eq!(repeated.len(), 3);
        let error = error(repeated);
        assert_eq!(error.kind, ModelErrorKind::BadResponse);
        assert_eq!(
            error.to_string(),
            "model `component:made/model`: it broke the contract: it repeated its chunks in its final response"
        );
    }

    #[tokio::test]
    async fn a_request_without_streaming_gets_one_response() {
        let pieces = error(collect(StreamingMode::Off, vec![partial("a")]).await);
        assert!(pieces.to_string().ends_with("it streamed chunks although one response was requested"), "{pieces}");
        let twice = collect(StreamingMode::Off, vec![complete("a"), complete("b"), complete("c")]).await;
        assert_eq!(twice.len(), 2, "nothing follows an error");
        let twice = error(twice);
        assert!(twice.to_string().ends_with("it answered again after its final response"), "{twice}");
    }

    #[tokio::test]
    async fn the_end_of_a_streamed_answer_may_have_a_finish_reason() {
        let end = LlmResponse { finish_reason: Some("STOP".into()), ..LlmResponse::default() };
        let collect = collect(StreamingMode::On, vec![partial("a"), end]).await;
        assert_eq!(collect.into_iter().map(Result::unwrap).collect::<Vec<_>>(), ["a", ""]);
    }

    #[tokio::test]
    async fn an_error_in_the_middle_is_a_failure_if_its_code_is_a_model_error_and_otherwise_a_response() {
        let limited = error(collect(StreamingMode::On, vec![partial("a"), failed("MODEL_RATE_LIMITED")]).await);
        assert_eq!((limited.kind, limited.message.as_str()), (ModelErrorKind::RateLimited, "too late"));
        let own = collect(StreamingMode::On, vec![partial("a"), failed("SAFETY")]).await;
        assert!(own.iter().all(Result::is_ok) && own.len() == 2, "{own:?}");
        let apology = LlmResponse { content: Some(Content::model("sorry")), ..failed("MODEL_RATE_LIMITED") };
        assert_eq!(collect(StreamingMode::Off, vec![apology]).await[0].as_deref().unwrap(), "sorry");
    }

    #[tokio::test]
    async fn json_in_an_answer_counts_to_the_memory_as_it_is_after_parsing() {
        let limits = Limits { memory: 4 << 20, ..Limits::default() };
        let component = Arc::new(described("(component)", limits).await.unwrap());
        let calling = |args: serde_json::Value| {
            let args = args.as_object().cloned().unwrap_or_default();
            let call = PartData::FunctionCall(FunctionCall { name: "f".into(), args, ..FunctionCall::default() });
            LlmResponse { content: Some(Content::new("model", vec![call.into()])), ..LlmResponse::default() }
        };
        let text = calling(json!({"a": "x".repeat(400_000)}));
        let fits = collect_from(component.clone(), StreamingMode::Off, vec![text]).await;
        assert!(fits.iter().all(Result::is_ok) && fits.len() == 1, "{fits:?}");
        let numbers = calling(json!({"a": vec![0; 200_000]}));
        let refused = error(collect_from(component.clone(), StreamingMode::Off, vec![numbers]).await);
        assert_eq!(refused.kind, ModelErrorKind::Server);
        assert_eq!(refused.to_string(), "model `component:made/model`: it exceeded its limit of 4 MiB of memory");
        assert_eq!(component.sandbox.engine.memory_in_use(), 0, "nothing is charged after the answer");
    }

    #[tokio::test]
    async fn a_guest_that_is_aborted_is_an_error() {
        let mut guest = JoinSet::new();
        guest.spawn(std::future::pending());
        guest.abort_all();
        let (_, responses) = mpsc::channel(1);
        let (component, model) = (with_agents(Vec::new()).await, "component:made/model".into());
        let mut answer = GuestAnswer {
            component,
            model,
            calling_run: None,
            streaming_mode: StreamingMode::Off,
            responses,
            guest,
            size: 0,
            state: AnswerState::Empty,
        };
        let error = answer.next().await.expect("an item").unwrap_err();
        assert!(error.to_string().starts_with("model `component:made/model`: its call was aborted: "), "{error}");
        assert!(answer.next().await.is_none());
    }
}
