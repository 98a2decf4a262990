//! Request bodies: limits of size, time and total memory.

mod json;
mod memory;
mod timer;
mod upload;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use futures::TryStreamExt;

use crate::error::ApiError;
use hatchery::ByteSize;
use hatchery::ServerConfig;
pub(crate) use memory::{BodyBudget, BodyMemory, hold_until_sent};
use timer::BodyTimer;
pub(crate) use upload::Upload;

/// Maximum number of bytes of a rejected body that are read and discarded before the response. A client that is still
/// writing when the connection closes sees a connection error instead of the response.
const MAX_DISCARDED: usize = 64 << 20;

/// Maximum number of bytes that are allocated for an announced content length.
const MAX_PREALLOCATED: usize = 64 << 10;

/// Marks routes whose bodies have content. Their limit is `server.body_limit`; the limit of all other routes is
/// `server.small_body_limit`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LargeBody;

/// The size limit of a body, and its key in the configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Limit {
    bytes: usize,
    key: &'static str,
}

impl Limit {
    fn for_route(route: &Extensions, config: &ServerConfig) -> Self {
        let (large, small) = (config.body_limit.bytes(), config.small_body_limit.bytes());
        if route.get::<LargeBody>().is_some() || large < small {
            Self { bytes: large, key: "server.body_limit" }
        } else {
            Self { bytes: small, key: "server.small_body_limit" }
        }
    }

    fn for_uploads(config: &ServerConfig) -> Self {
        Self { bytes: config.upload_limit.bytes(), key: "server.upload_limit" }
    }

    fn too_large(self) -> ApiError {
        let detail = format!("the body is larger than {}", ByteSize(self.bytes));
        let error = ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", detail);
        error.advise(format_args!("raise {} in hatchery.yaml to allow more", self.key))
    }
}

/// Receives a JSON body without parsing it. Its memory is reserved until the response is sent.
///
/// # Errors
/// 408 if it is received too slowly, 413 if it is too large, 503 if other bodies use all of the memory.
pub(crate) async fn read(parts: &Parts, body: Body, config: &ServerConfig) -> Result<Bytes, ApiError> {
    let limit = Limit::for_route(&parts.extensions, config);
    let memory = parts.extensions.get::<BodyMemory>();
    let announced = announced_length(&parts.headers);
    let (mut chunks, mut timer) = (body.into_data_stream(), BodyTimer::start(config));
    if announced.is_some_and(|length| length > limit.bytes) {
        // With `Expect: 100-continue` the client has sent nothing yet, and reading would make it send.
        if !parts.headers.contains_key(header::EXPECT) {
            discard(chunks, timer).await;
        }
        return Err(limit.too_large());
    }
    let mut bytes = Vec::with_capacity(announced.unwrap_or_default().min(MAX_PREALLOCATED));
    while let Some(chunk) = timer.wait(chunks.try_next()).await?.map_err(ended_early)? {
        timer.add_received(chunk.len());
        let length = bytes.len() + chunk.len();
        let error = if length > limit.bytes { Some(limit.too_large()) } else { reserve(memory, length).err() };
        if let Some(error) = error {
            discard(chunks, timer).await;
            return Err(error);
        }
        bytes.extend_from_slice(&chunk);
    }
    reserve(memory, bytes.len() + json::parsed_size(&bytes)?)?;
    Ok(bytes.into())
}

fn announced_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn ended_early(error: axum::Error) -> ApiError {
    ApiError::bad_input(format!("the body ended early: {error}"))
}

/// Reserves the memory of a JSON message that is not a body, received and parsed, until the result is dropped.
///
/// # Errors
/// 413 if it has too many values, 503 if bodies use all of the memory.
pub(crate) fn reserve_message(budget: &BodyBudget, json: &[u8]) -> Result<BodyMemory, ApiError> {
    let memory = BodyMemory::new(budget.clone());
    memory.grow_to(json.len() + json::parsed_size(json)?)?;
    Ok(memory)
}

/// Reserves the memory of a response that is sent from an artifact of `len` bytes.
///
/// # Errors
/// 413 if it is larger than the total memory of bodies, 503 if other requests use that memory.
pub(crate) fn reserve_response(memory: &BodyMemory, len: u64) -> Result<(), ApiError> {
    memory.grow_to(usize::try_from(len).unwrap_or(usize::MAX))
}

fn reserve(memory: Option<&BodyMemory>, bytes: usize) -> Result<(), ApiError> {
    memory.map_or(Ok(()), |memory| memory.grow_to(bytes))
}

async fn discard(mut chunks: BodyDataStream, mut timer: BodyTimer) {
    let mut discarded = 0;
    while let Ok(Ok(Some(chunk))) = timer.wait(chunks.try_next()).await {
        timer.add_received(chunk.len());
        discarded += chunk.len();
        if discarded > MAX_DISCARDED {
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
        assert_eq!(Limit::for_route(&route, &config), Limit { bytes: 1 << 20, key: "server.small_body_limit" });
        let tight = ServerConfig { body_limit: ByteSize(9), ..ServerConfig::default() };
        assert_eq!(Limit::for_route(&route, &tight), Limit { bytes: 9, key: "server.body_limit" });
        route.insert(LargeBody);
        assert_eq!(Limit::for_route(&route, &config), Limit { bytes: 16 << 20, key: "server.body_limit" });
    }
}
