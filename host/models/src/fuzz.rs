//! Entry points for fuzzing the parsers of response bodies. Not part of the public API; it may change at any time.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};

use crate::failure::Origin;
use crate::service::Service;
use crate::{anthropic, gemini, openai, responses, sse};

/// Parses a body as an event stream of each provider, in chunks of `chunk` bytes. Returns the number of responses.
pub async fn read_event_streams(body: &[u8], chunk: usize) -> usize {
    let origin = Arc::new(Origin {
        model: "fuzz".into(),
        service: Service::OpenAi.info(),
        secrets: Vec::new(),
        credentials: None,
    });
    let chunks: Vec<Bytes> = body.chunks(chunk.max(1)).map(Bytes::copy_from_slice).collect();
    let payloads = || sse::payloads(stream::iter(chunks.clone()).map(Ok), origin.clone());
    let gemini = sse::responses(payloads(), gemini::decoder(origin.clone()));
    let openai = sse::responses(payloads(), openai::decoder(origin.clone()));
    let anthropic = sse::responses(payloads(), anthropic::decoder(origin.clone()));
    let responses = sse::responses(payloads(), responses::decoder(origin.clone()));
    gemini.count().await + openai.count().await + anthropic.count().await + responses.count().await
}
