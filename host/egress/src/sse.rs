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

/// Finds the ends of events in a body. Comments, such as keep-alives, end like events, but the parser does not report
/// them.
#[derive(Debug, Default)]
pub struct EventEnds {
    /// The last bytes of the body so far.
    tail: Vec<u8>,
}

impl EventEnds {
    /// Returns true if an event or a comment ends with this chunk, which is the next one of the body: by an empty line.
    pub fn are_after(&mut self, chunk: &[u8]) -> bool {
        const EMPTY_LINES: [&[u8]; 3] = [b"\n\n", b"\n\r\n", b"\r\r"];
        const MAX_LEN: usize = 3;
        self.tail.extend_from_slice(chunk.get(chunk.len().saturating_sub(MAX_LEN)..).unwrap_or(chunk));
        self.tail.drain(..self.tail.len().saturating_sub(MAX_LEN));
        EMPTY_LINES.iter().any(|line| self.tail.ends_with(line))
    }
}

/// Returns the data of each event of a body. Skips events without data, such as keep-alives, and an event at the end
/// without a blank line after it. Events after an error have no meaning.
pub fn sse_data<E: Error + Send + Sync + 'static>(
    bytes: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    max_event: usize,
) -> impl Stream<Item = Result<String, SseError<E>>> + Send {
    let received = Arc::new(AtomicUsize::new(0));
    let (counter, mut ends) = (received.clone(), EventEnds::default());
    let limited = bytes.map(move |chunk| -> Result<Bytes, LimitedError<E>> {
        let chunk = chunk.map_err(LimitedError::Body)?;
        // A chunk may have several events, so only the bytes before it certainly belong to one event.
        if counter.fetch_add(chunk.len(), Ordering::Relaxed) > max_event {
            return Err(LimitedError::TooLarge);
        }
        if ends.are_after(&chunk) {
            counter.store(0, Ordering::Relaxed);
        }
        Ok(chunk)
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

#[cfg(test)]
mod tests {
    use std::io;

    use futures::stream;

    use super::*;

    async fn read(chunks: impl IntoIterator<Item = Vec<u8>>, max_event: usize) -> Vec<Option<String>> {
        let chunks: Vec<io::Result<Bytes>> = chunks.into_iter().map(|chunk| Ok(chunk.into())).collect();
        sse_data(stream::iter(chunks), max_event).map(Result::ok).collect().await
    }

    #[tokio::test]
    async fn keep_alives_do_not_count_as_a_part_of_an_event() {
        for keep_alive in [": ping\n\n", ":\r\n\r\n", ": ping\r\r"] {
            let body = [keep_alive.repeat(1_000), "data: x\n\n".to_owned()].concat().into_bytes();
            for size in [keep_alive.len(), 1] {
                let chunks = body.chunks(size).map(<[u8]>::to_vec);
                assert_eq!(read(chunks, 100).await, [Some("x".to_owned())], "{keep_alive:?} {size}");
            }
        }
    }

    #[tokio::test]
    async fn an_event_whose_end_does_not_come_is_too_large() {
        let endless = std::iter::repeat_n(b"data: xxxxx\n".to_vec(), 1_000);
        assert_eq!(read(endless, 100).await, [None::<String>]);
    }
}
