//! `model`: language models. The guest reads a model's stream at its own pace; nothing is buffered here.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use hatchery_core::{LlmRequest, LlmResponse, ResponseStream, RunError, StreamingMode, UsageMetadata};
use hatchery_engine::llm::Aggregator;
use wasmtime::StoreContextMut;
use wasmtime::component::{Destination, HasSelf, StreamProducer, StreamReader, StreamResult};

use super::{Access, Reach, allowed, context, fault, hold};
use crate::contract::bindings::hatchery::agent::model::{Host, HostWithStore};
use crate::contract::convert::{FromWit, ToWit, Weigh, wit};
use crate::policy::Permission;
use crate::runtime::store::HostState;
use crate::runtime::store::memory::Held;
use crate::runtime::store::tally::Tally;

impl Host for HostState {}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn generate(
        accessor: &Access<T>,
        request: wit::LlmRequest,
        streamed: bool,
    ) -> Result<StreamReader<wit::LlmResponse>, wit::Error> {
        let answer = ask(accessor, request, streamed).await?;
        accessor
            .with(|access| StreamReader::new(access, answer))
            .map_err(|error| fault("LIMIT_REACHED", format!("no further stream can be opened: {error:#}")))
    }
}

/// Asks the model that the request names, or the agent's own.
pub(super) async fn ask(mut store: impl Reach, request: wit::LlmRequest, streamed: bool) -> Result<Answer, wit::Error> {
    let cx = context(&mut store)?;
    let held = hold(&mut store, request.weigh())?;
    let mut request = LlmRequest::from_wit(request)?;
    let model = if request.model.is_empty() {
        let (name, model) = cx.host()?.model(&cx)?;
        allowed(&mut store, Permission::Model(&name))?;
        request.model = name;
        model
    } else {
        allowed(&mut store, Permission::Model(&request.model))?;
        cx.invocation.services.models.model(&request.model).map_err(RunError::Model)?
    };
    let tally = store.reach(|state| state.tally.clone());
    tally.model_call().map_err(|hit| fault("LIMIT_REACHED", hit.to_string()))?;
    let streaming_mode = if streamed { StreamingMode::On } else { StreamingMode::Off };
    let pieces = cx.invocation.generate(&cx.agent, &*model, request, streaming_mode).await?;
    Ok(Answer {
        pieces: Some(pieces),
        whole: streamed.then(Aggregator::default),
        tally,
        counted: 0,
        said: 0,
        _held: held,
    })
}

/// A model's answer on its way to the guest: the pieces, then the whole.
pub struct Answer {
    /// `None` once it has ended.
    pieces: Option<ResponseStream>,
    /// Adds up the pieces, when there are pieces.
    whole: Option<Aggregator>,
    /// Counts the tokens.
    tally: Arc<Tally>,
    /// Tokens that have been counted.
    counted: u64,
    /// Bytes of text so far.
    said: u64,
    /// The request, which the model may still look at.
    _held: Held,
}

impl Answer {
    /// The next response; nothing after the whole.
    pub(super) async fn next(&mut self) -> Option<LlmResponse> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<LlmResponse>> {
        let Some(pieces) = &mut self.pieces else { return Poll::Ready(None) };
        match ready!(Pin::new(pieces).poll_next(cx)) {
            Some(Ok(piece)) => {
                // Each piece tells the tokens of the call so far.
                let total = piece.usage_metadata.as_ref().map_or(0, UsageMetadata::total);
                self.tally.tokens(total.saturating_sub(self.counted));
                self.counted = self.counted.max(total);
                self.said += piece.content.as_ref().map_or(0, |content| content.text().len() as u64);
                if let Some(whole) = &mut self.whole {
                    whole.push(piece.clone());
                }
                Poll::Ready(Some(piece))
            }
            Some(Err(error)) => {
                self.pieces = None;
                Poll::Ready(Some(LlmResponse {
                    error_code: Some(error.kind.code().into()),
                    error_message: Some(error.to_string()),
                    ..LlmResponse::default()
                }))
            }
            None => {
                self.pieces = None;
                Poll::Ready(self.whole.take().and_then(Aggregator::finish))
            }
        }
    }
}

impl Drop for Answer {
    /// An answer that is not read to its end may not have told its tokens; some four bytes are one.
    fn drop(&mut self) {
        if self.pieces.is_some() {
            self.tally.tokens((self.said / 4).saturating_sub(self.counted));
        }
    }
}

impl<D> StreamProducer<D> for Answer {
    type Item = wit::LlmResponse;
    type Buffer = Option<wit::LlmResponse>;

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
            Poll::Ready(Some(response)) => {
                destination.set_buffer(Some(response.to_wit()));
                Poll::Ready(Ok(StreamResult::Completed))
            }
        }
    }
}
