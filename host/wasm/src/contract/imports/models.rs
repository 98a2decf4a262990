//! `models`: language models. The guest reads a model's stream at its own pace; nothing is buffered here.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use hatchery_core::{Aggregator, LlmRequest, LlmResponse, ResponseStream, RunError, StreamingMode, TokenCounter};
use wasmtime::component::{HasSelf, StreamReader};

use super::{Access, StoreAccess, check_permission, context, reserve, reserve_value, wit_error};
use crate::contract::bindings::hatchery::agent::models::{Host, HostWithStore};
use crate::contract::convert::{EstimateSize, FromWit, ToWit, wit};
use crate::contract::stream;
use crate::policy::Permission;
use crate::runtime::store::HostState;
use crate::runtime::store::call_usage::CallUsage;
use crate::runtime::store::memory::MemoryReservation;

/// Maximum number of texts that are embedded at a time and count as one model call.
const MAX_EMBEDDED_TEXTS: usize = 100;

impl Host for HostState {
    fn list(&mut self) -> Result<Vec<String>, wit::Error> {
        self.context()?;
        Ok(self.grants.models.iter().map(ToString::to_string).collect())
    }
}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn generate(
        accessor: &Access<T>,
        request: wit::LlmRequest,
        streaming: bool,
    ) -> Result<StreamReader<wit::LlmResponse>, wit::Error> {
        let answer = generate(accessor, request, streaming).await?;
        stream::open(accessor, answer)
    }

    async fn embed(accessor: &Access<T>, model: String, texts: Vec<String>) -> Result<Vec<Vec<f32>>, wit::Error> {
        embed(accessor, model, texts).await
    }
}

/// Embeds texts with the embedder of this name. The vectors count as memory of the guest until they are passed on.
pub(super) async fn embed(
    mut store: impl StoreAccess,
    model: String,
    texts: Vec<String>,
) -> Result<Vec<Vec<f32>>, wit::Error> {
    let cx = check_permission(&mut store, Permission::Model(&model))?;
    let _reservation = reserve(&mut store, texts.estimated_size())?;
    let usage = store.with_state(|state| state.usage.clone());
    // A call without texts counts, too.
    for _ in 0..texts.len().div_ceil(MAX_EMBEDDED_TEXTS).max(1) {
        usage.count_model_call().map_err(|exceeded| wit_error("LIMIT_REACHED", exceeded.for_callers()))?;
        cx.invocation.count_llm_call(&cx.agent)?;
    }
    cx.invocation.ensure_turn().await?;
    let embedder = cx.invocation.services.models.embedder(&model).map_err(RunError::Model)?;
    let (mut vectors, mut reservations) = (Vec::new(), Vec::new());
    for batch in texts.chunks(MAX_EMBEDDED_TEXTS) {
        let embedded = embedder.embed(batch.to_vec()).await.map_err(RunError::Model)?;
        let bytes = embedded.iter().map(|vector| size_of_val(vector.as_slice()) as u64).sum();
        reservations.push(reserve(&mut store, bytes)?);
        vectors.extend(embedded);
    }
    Ok(vectors)
}

/// Sends a request to the model that it names, or to the agent's own.
pub(super) async fn generate(
    mut store: impl StoreAccess,
    request: wit::LlmRequest,
    streaming: bool,
) -> Result<ModelAnswer, wit::Error> {
    let cx = context(&mut store)?;
    let reservation = reserve_value(&mut store, &request)?;
    let mut request = LlmRequest::from_wit(request)?;
    let own = if request.model.is_empty() {
        let (name, model) = cx.host()?.model(&cx)?;
        request.model = name;
        Some(model)
    } else {
        None
    };
    check_permission(&mut store, Permission::Model(&request.model))?;
    store.with_state(|state| {
        let checked = state.grants.check_model_tools(&state.component, &request.model_tools, &[]);
        checked.map_err(|denial| denial.report(&state.log))
    })?;
    // Unknown models count as well: each attempt writes to the log.
    let usage = store.with_state(|state| state.usage.clone());
    usage.count_model_call().map_err(|exceeded| wit_error("LIMIT_REACHED", exceeded.for_callers()))?;
    let model = match own {
        Some(model) => model,
        None => cx.invocation.services.models.model(&request.model).map_err(RunError::Model)?,
    };
    let streaming_mode = if streaming { StreamingMode::On } else { StreamingMode::Off };
    // A model of a component shares the memory of the run.
    let nesting = store.with_state(|state| state.nesting.clone().for_model_call(state.run_key()));
    let responses = nesting.scope(cx.generate(&*model, request, streaming_mode)).await?;
    Ok(ModelAnswer {
        responses: Some(responses),
        aggregator: streaming.then(Aggregator::default),
        usage,
        counted_tokens: TokenCounter::default(),
        text_bytes: 0,
        _request: reservation,
    })
}

/// A model's answer on its way to the guest: the partial responses, then the complete one.
pub struct ModelAnswer {
    /// `None` after its end.
    responses: Option<ResponseStream>,
    /// Aggregates the partial responses; `None` if the request is not streamed.
    aggregator: Option<Aggregator>,
    usage: Arc<CallUsage>,
    /// Tokens that were added to `usage`.
    counted_tokens: TokenCounter,
    /// Bytes of text so far.
    text_bytes: u64,
    /// Memory of the request, which the model may still use.
    _request: MemoryReservation,
}

impl Stream for ModelAnswer {
    type Item = wit::LlmResponse;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<wit::LlmResponse>> {
        self.poll_response(cx).map(|response| response.map(|response| response.to_wit()))
    }
}

impl ModelAnswer {
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Option<LlmResponse>> {
        let Some(responses) = &mut self.responses else { return Poll::Ready(None) };
        match ready!(Pin::new(responses).poll_next(cx)) {
            Some(Ok(response)) => {
                self.usage.add_tokens(self.counted_tokens.add(&response));
                self.text_bytes += response.content.as_ref().map_or(0, |content| content.text().len() as u64);
                if let Some(aggregator) = &mut self.aggregator {
                    aggregator.push(response.clone());
                }
                Poll::Ready(Some(response))
            }
            Some(Err(error)) => {
                self.responses = None;
                Poll::Ready(Some(LlmResponse {
                    error_code: Some(error.kind.code().into()),
                    error_message: Some(RunError::Model(error).redact()),
                    ..LlmResponse::default()
                }))
            }
            None => {
                self.responses = None;
                Poll::Ready(self.aggregator.take().and_then(Aggregator::finish))
            }
        }
    }
}

impl Drop for ModelAnswer {
    /// An answer that is dropped before its end may not have reported its tokens, so they are estimated as one per
    /// four bytes.
    fn drop(&mut self) {
        if self.responses.is_some() {
            self.usage.add_tokens((self.text_bytes / 4).saturating_sub(self.counted_tokens.total()));
        }
    }
}
