//! Server-sent events (SSE) in the bodies of responses.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::stream::{Stream, StreamExt};
use sse_stream::SseByteStream;

/// The error at the end of an event stream.
#[derive(Debug)]
pub enum SseError<E> {
    /// An error of the body.
    Body(E),
    /// An event is larger than this limit.
    TooLarge(usize),
    /// The body is not an event stream.
    Invalid(String),
}

/// The error of a body whose events are limited.
#[derive(Debug)]
enum LimitedError<E> {
    Body(E),
    TooLarge,
}

impl<E: fmt::Display> fmt::Display for LimitedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(error) => error.fmt(f),
            Self::TooLarge => f.write_str("an event is too large"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> Error for LimitedError<E> {}

/// Returns the data of each event of a body. Events without data, such as keep-alives, are skipped, and so is an event
/// at the end without a blank line after it. Events after an error have no meaning.
pub fn sse_data<E: Error + Send + Sync + 'static>(
    bytes: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    max_event: usize,
) -> impl Stream<Item = Result<String, SseError<E>>> + Send {
    let received = Arc::new(AtomicUsize::new(0));
    let counter = received.clone();
    let limited = bytes.map(move |chunk| -> Result<Bytes, LimitedError<E>> {
        let chunk = chunk.map_err(LimitedError::Body)?;
        // A chunk may have several events, so only the bytes before it certainly belong to one event.
        if counter.fetch_add(chunk.len(), Ordering::Relaxed) > max_event {
            Err(LimitedError::TooLarge)
        } else {
            Ok(chunk)
        }
    });
    SseByteStream::new(Box::pin(limited)).filter_map(move |event| {
        received.store(0, Ordering::Relaxed);
        let data = match event {
            Ok(event) => event
                .data
                .filter(|data| !data.is_empty())
                .map(|data| if data.len() > max_event { Err(SseError::TooLarge(max_event)) } else { Ok(data) }),
            Err(sse_stream::Error::Body(error)) => Some(Err(match error.downcast::<LimitedError<E>>() {
                Ok(error) => match *error {
                    LimitedError::Body(error) => SseError::Body(error),
                    LimitedError::TooLarge => SseError::TooLarge(max_event),
                },
                Err(error) => SseError::Invalid(error.to_string()),
            })),
            Err(error) => Some(Err(SseError::Invalid(error.to_string()))),
        };
        std::future::ready(data)
    })
}
