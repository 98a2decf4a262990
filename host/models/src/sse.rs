//! Event streams: from the bytes of a body to the responses of a model.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, Stream, StreamExt};
use hatchery_core::{LlmResponse, ModelError, ResponseStream};
use sse_stream::SseByteStream;

use crate::failure::Origin;

/// The most bytes of one event.
const MOST_EVENT_BYTES: usize = 32 * 1024 * 1024;

/// The data of each event. An error is the last item; events without data (keep-alives) are passed over, and a last event that no blank
/// line ends counts too.
pub(crate) fn payloads(
    bytes: impl Stream<Item = Result<Bytes, ModelError>> + Send + 'static,
    origin: Arc<Origin>,
) -> impl Stream<Item = Result<String, ModelError>> + Send {
    let since_event = Arc::new(AtomicUsize::new(0));
    let counter = since_event.clone();
    let too_long = origin.clone();
    let counted = bytes.map(move |chunk| {
        let chunk = chunk?;
        match counter.fetch_add(chunk.len(), Ordering::Relaxed) > MOST_EVENT_BYTES {
            true => Err(too_long.bad_response(format!("one event is longer than {MOST_EVENT_BYTES} bytes"))),
            false => Ok(chunk),
        }
    });
    let ended = counted.chain(stream::iter([Ok(Bytes::from_static(b"\n\n"))]));
    SseByteStream::new(Box::pin(ended)).filter_map(move |event| {
        since_event.store(0, Ordering::Relaxed);
        let payload = match event {
            Ok(event) => event.data.map(Ok),
            Err(sse_stream::Error::Body(error)) => Some(Err(match error.downcast::<ModelError>() {
                Ok(error) => *error,
                Err(error) => origin.bad_response(error),
            })),
            Err(error) => Some(Err(origin.bad_response(error))),
        };
        std::future::ready(payload.filter(|payload| !matches!(payload, Ok(data) if data.is_empty())))
    })
}

/// Turns a provider's payloads into responses.
pub(crate) trait Decoder: Send + 'static {
    /// The responses that a payload completes.
    fn payload(&mut self, payload: &str) -> Result<Vec<LlmResponse>, ModelError>;

    /// The responses that are still to come when the stream ends.
    fn end(&mut self) -> Result<Vec<LlmResponse>, ModelError>;

    /// True when nothing counts any more, whether or not the body goes on.
    fn is_done(&self) -> bool;
}

/// The responses of an event stream. An error is the last item.
pub(crate) fn responses(
    payloads: impl Stream<Item = Result<String, ModelError>> + Send + 'static,
    decoder: impl Decoder,
) -> ResponseStream {
    let state = Decoding { payloads: Box::pin(payloads), decoder, ready: VecDeque::new(), ended: false };
    stream::unfold(state, |mut state| async move { Some((state.next().await?, state)) }).boxed()
}

struct Decoding<D> {
    payloads: Pin<Box<dyn Stream<Item = Result<String, ModelError>> + Send>>,
    decoder: D,
    ready: VecDeque<LlmResponse>,
    ended: bool,
}

impl<D: Decoder> Decoding<D> {
    async fn next(&mut self) -> Option<Result<LlmResponse, ModelError>> {
        loop {
            if let Some(response) = self.ready.pop_front() {
                return Some(Ok(response));
            }
            if self.ended {
                return None;
            }
            let decoded = match self.payloads.next().await {
                Some(Ok(payload)) => self.decoder.payload(&payload),
                Some(Err(error)) => Err(error),
                None => {
                    self.ended = true;
                    self.decoder.end()
                }
            };
            if self.decoder.is_done() {
                self.ended = true;
                // The end of the body has mostly come with this payload; a body read to its end leaves the connection for the next call.
                let _ = self.payloads.next().now_or_never();
            }
            match decoded {
                Ok(responses) => self.ready.extend(responses),
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
    }
}
