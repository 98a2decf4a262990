//! Server-sent events (SSE): decodes the bytes of a body into the responses of a model.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, Stream, StreamExt};
use hatchery_core::{LlmResponse, ModelError, ResponseStream};
use hatchery_egress::{SseError, sse_data};

use crate::failure::Origin;

/// Maximum size of one event.
const MAX_EVENT_BYTES: usize = 32 * 1024 * 1024;

/// Returns the data of each event, see [`sse_data`]. The last event counts even if no blank line ends it.
pub(crate) fn payloads(
    bytes: impl Stream<Item = Result<Bytes, ModelError>> + Send + 'static,
    origin: Arc<Origin>,
) -> impl Stream<Item = Result<String, ModelError>> + Send {
    let terminated = bytes.chain(stream::iter([Ok(Bytes::from_static(b"\n\n"))]));
    sse_data(terminated, MAX_EVENT_BYTES).map(move |data| {
        data.map_err(|error| match error {
            SseError::Body(error) => error,
            SseError::TooLarge(limit) => origin.bad_response(format!("one event is longer than {limit} bytes")),
            SseError::Invalid(reason) => origin.bad_response(reason),
        })
    })
}

/// Decodes the payloads of one stream into responses.
pub(crate) trait Decoder: Send + 'static {
    /// Decodes a payload. Returns the responses that it completes.
    fn decode(&mut self, payload: &str) -> Result<Vec<LlmResponse>, ModelError>;

    /// Returns the remaining responses at the end of the stream, or an error if the provider has not marked the answer
    /// as complete: a proxy may end a body early without an error.
    fn finish(&mut self) -> Result<Vec<LlmResponse>, ModelError>;

    /// Returns true if the rest of the body is to be ignored.
    fn is_done(&self) -> bool;
}

/// Returns the responses of an event stream. An error is the last item.
pub(crate) fn responses(
    payloads: impl Stream<Item = Result<String, ModelError>> + Send + 'static,
    decoder: impl Decoder,
) -> ResponseStream {
    let state = DecodedStream { payloads: Box::pin(payloads), decoder, ready: VecDeque::new(), is_ended: false };
    stream::unfold(state, |mut state| async move { Some((state.next().await?, state)) }).boxed()
}

struct DecodedStream<D> {
    payloads: Pin<Box<dyn Stream<Item = Result<String, ModelError>> + Send>>,
    decoder: D,
    ready: VecDeque<LlmResponse>,
    is_ended: bool,
}

impl<D: Decoder> DecodedStream<D> {
    async fn next(&mut self) -> Option<Result<LlmResponse, ModelError>> {
        loop {
            if let Some(response) = self.ready.pop_front() {
                return Some(Ok(response));
            }
            if self.is_ended {
                return None;
            }
            let decoded = match self.payloads.next().await {
                Some(Ok(payload)) => self.decoder.decode(&payload),
                Some(Err(error)) => Err(error),
                None => {
                    self.is_ended = true;
                    self.decoder.finish()
                }
            };
            if self.decoder.is_done() {
                self.is_ended = true;
                // The end of the body has usually arrived with this payload. A connection is only reused after its body
                // has been read to the end.
                let _ = self.payloads.next().now_or_never();
            }
            match decoded {
                Ok(responses) => self.ready.extend(responses),
                Err(error) => {
                    self.is_ended = true;
                    return Some(Err(error));
                }
            }
        }
    }
}
