//! Reading the bodies of requests: within a size, a time and the memory that all bodies may take together.

mod json;
mod memory;
mod pace;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::request::Parts;
use axum::http::{Extensions, StatusCode, header};
use futures::TryStreamExt;

use crate::error::ApiError;
use hatchery::byte_size::ByteSize;
use hatchery::config::ServerConfig;
use memory::BodyMemory;
pub(crate) use memory::{BodyBudget, hold};
use pace::Pace;

/// How much of a body that is refused is read and thrown away before the answer. A client that is still writing when the connection
/// closes sees a broken connection in place of the answer.
const MOST_DISCARDED: usize = 64 << 20;

/// How much memory a body's announced length takes before the body is there.
const MOST_RESERVED: usize = 64 << 10;

/// Marks routes whose bodies carry content: `server.body_limit` holds for them, `server.small_body_limit` for all others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LargeBody;

/// The most bytes of a body, and the key that says so.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Limit {
    bytes: usize,
    key: &'static str,
}

impl Limit {
    fn of(route: &Extensions, config: &ServerConfig) -> Self {
        let (large, small) = (config.body_limit.bytes(), config.small_body_limit.bytes());
        if route.get::<LargeBody>().is_some() || large < small {
            Self { bytes: large, key: "server.body_limit" }
        } else {
            Self { bytes: small, key: "server.small_body_limit" }
        }
    }

    fn exceeded(self) -> ApiError {
        let detail = format!(
            "the body is larger than {}; raise {} in hatchery.yaml to allow more",
            ByteSize(self.bytes),
            self.key
        );
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", detail)
    }
}

/// Reads a body of JSON, which is not parsed yet. Its memory is held until the request is answered.
///
/// # Errors
/// 408 when it comes too slowly, 413 when it is too large, 503 when other bodies have taken all the memory.
pub(crate) async fn read(parts: &Parts, body: Body, config: &ServerConfig) -> Result<Bytes, ApiError> {
    let limit = Limit::of(&parts.extensions, config);
    let memory = parts.extensions.get::<BodyMemory>();
    let announced = parts.headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let (mut chunks, mut pace) = (body.into_data_stream(), Pace::start(config));
    if announced.is_some_and(|length| length > limit.bytes) {
        // A client that asked first has sent nothing yet: reading would make it send.
        if !parts.headers.contains_key(header::EXPECT) {
            discard(chunks, pace).await;
        }
        return Err(limit.exceeded());
    }
    let mut bytes = Vec::with_capacity(announced.unwrap_or_default().min(MOST_RESERVED));
    while let Some(chunk) = pace
        .wait(chunks.try_next())
        .await?
        .map_err(|error| ApiError::bad_input(format!("the body ended early: {error}")))?
    {
        pace.received(chunk.len());
        let length = bytes.len() + chunk.len();
        let refused = if length > limit.bytes { Some(limit.exceeded()) } else { hold_memory(memory, length).err() };
        if let Some(error) = refused {
            discard(chunks, pace).await;
            return Err(error);
        }
        bytes.extend_from_slice(&chunk);
    }
    hold_memory(memory, bytes.len() + json::parsed_size(&bytes)?)?;
    Ok(bytes.into())
}

fn hold_memory(memory: Option<&BodyMemory>, bytes: usize) -> Result<(), ApiError> {
    memory.map_or(Ok(()), |memory| memory.grow_to(bytes))
}

async fn discard(mut chunks: BodyDataStream, mut pace: Pace) {
    let mut discarded = 0;
    while let Ok(Ok(Some(chunk))) = pace.wait(chunks.try_next()).await {
        pace.received(chunk.len());
        discarded += chunk.len();
        if discarded > MOST_DISCARDED {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_without_content_have_the_smaller_limit() {
        let config = ServerConfig::default();
        let mut route = Extensions::new();
        assert_eq!(Limit::of(&route, &config), Limit { bytes: 1 << 20, key: "server.small_body_limit" });
        let tight = ServerConfig { body_limit: ByteSize(9), ..ServerConfig::default() };
        assert_eq!(Limit::of(&route, &tight), Limit { bytes: 9, key: "server.body_limit" });
        route.insert(LargeBody);
        assert_eq!(Limit::of(&route, &config), Limit { bytes: 16 << 20, key: "server.body_limit" });
    }
}
