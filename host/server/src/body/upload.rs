//! Bodies that are passed on in chunks.

use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::header;
use axum::http::request::Parts;
use futures::{StreamExt, TryStreamExt, stream};
use hatchery::ServerConfig;
use hatchery_core::{ByteStream, StoreError};

use super::{BodyMemory, BodyTimer, Limit, announced_length, discard, ended_early, reserve};
use crate::error::ApiError;

/// A body of any type, within the limits of size and time.
pub(crate) struct Upload {
    body: BodyDataStream,
    timer: BodyTimer,
    limit: Limit,
    received: usize,
    memory: Option<BodyMemory>,
    /// The most bytes that are in memory at a time; `None` if all are.
    buffer: Option<usize>,
    announced: Option<usize>,
    /// True if the client sends the body only once it is read.
    is_expected: bool,
    /// The error in the body.
    error: Option<ApiError>,
}

impl Upload {
    /// Starts to receive a body for a consumer that holds at most `buffer` bytes of it, or all of them. They are
    /// reserved until the response is sent.
    pub(crate) fn start(parts: &Parts, body: Body, config: &ServerConfig, buffer: Option<usize>) -> Self {
        Self {
            body: body.into_data_stream(),
            timer: BodyTimer::start(config),
            limit: Limit::for_uploads(config),
            received: 0,
            memory: parts.extensions.get::<BodyMemory>().cloned(),
            buffer,
            announced: announced_length(&parts.headers),
            is_expected: parts.headers.contains_key(header::EXPECT),
            error: None,
        }
    }

    /// Returns the chunks of the body. The stream fails if the body is too large, is received too slowly or ends early.
    pub(crate) fn chunks(&mut self) -> ByteStream<'_> {
        stream::try_unfold(self, |upload| async move {
            match upload.next().await {
                Ok(chunk) => Ok(chunk.map(|chunk| (chunk, upload))),
                Err(error) => {
                    let refusal = StoreError::InvalidRequest(error.detail.clone());
                    upload.error = Some(error);
                    Err(refusal)
                }
            }
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        if self.announced.is_some_and(|length| length > self.limit.bytes) {
            return Err(self.limit.too_large());
        }
        loop {
            let Some(chunk) = self.timer.wait(self.body.try_next()).await?.map_err(ended_early)? else {
                return Ok(None);
            };
            self.timer.add_received(chunk.len());
            self.received += chunk.len();
            if self.received > self.limit.bytes {
                return Err(self.limit.too_large());
            }
            reserve(self.memory.as_ref(), self.buffer.map_or(self.received, |buffer| buffer.min(self.received)))?;
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
        }
    }

    /// Returns the error of an upload that was not stored: the error in its body, or else `error`. Discards some of
    /// the rest of the body, so that the client reads the response.
    pub(crate) async fn reject(self, error: ApiError) -> ApiError {
        let Self { body, timer, received, is_expected, error: of_body, .. } = self;
        if received > 0 || !is_expected {
            discard(body, timer).await;
        }
        of_body.unwrap_or(error)
    }
}
