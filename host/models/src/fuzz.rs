//! Entry points for fuzzing the parsers of response bodies. Not part of the public API; it may change at any time.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};

use crate::anthropic::MessagesFormat;
use crate::failure::Origin;
use crate::gemini::GeminiFormat;
use crate::http_model::WireFormat;
use crate::openai::ChatFormat;
use crate::responses::ResponsesFormat;
use crate::service::Service;
use crate::sse;

/// Parses a body as an event stream of each provider, in chunks of `chunk` bytes. Returns the number of responses.
pub async fn read_event_streams(body: &[u8], chunk: usize) -> usize {
    let origin = Arc::new(Origin {
        model: "fuzz".into(),
        service: Service::OpenAi.info(),
        secrets: Vec::new(),
        credentials: None,
    });
    let chunks: Vec<Bytes> = body.chunks(chunk.max(1)).map(Bytes::copy_from_slice).collect();
    read_event_stream::<GeminiFormat>(&chunks, &origin).await
        + read_event_stream::<ChatFormat>(&chunks, &origin).await
        + read_event_stream::<MessagesFormat>(&chunks, &origin).await
        + read_event_stream::<ResponsesFormat>(&chunks, &origin).await
}

async fn read_event_stream<F: WireFormat>(chunks: &[Bytes], origin: &Arc<Origin>) -> usize {
    let payloads = sse::payloads(stream::iter(chunks.to_vec()).map(Ok), origin.clone());
    sse::responses(payloads, F::decoder(origin.clone())).count().await
}
