//! Tools that fill the host's memory with requests that are never sent.

use std::mem;

use hatchery_guest::prelude::*;
use wasip2::http::types::{Fields, Method, OutgoingRequest, OutgoingResponse};

/// A number and a size.
#[derive(Deserialize, JsonSchema)]
pub struct Hoard {
    count: usize,
    bytes: usize,
}

/// Writes into the bodies of requests that are never sent. Returns how many bytes the host accepted.
#[tool]
pub async fn hoard_bodies(Hoard { count, bytes }: Hoard) -> Result<usize, ToolError> {
    let (mut held, mut held_bytes) = (Vec::new(), 0);
    let piece = vec![b'x'; bytes];
    for _ in 0..count {
        let request = OutgoingRequest::new(Fields::new());
        let body = request.body().map_err(|()| Error::new("BODY", "the request gets no body"))?;
        let stream = body.write().map_err(|()| Error::new("STREAM", "the body gets no stream"))?;
        if stream.write(&piece).is_ok() {
            held_bytes += bytes;
        }
        held.push((request, body, stream));
    }
    mem::forget(held);
    Ok(held_bytes)
}

/// Writes into the bodies of responses without a request. Returns how many bytes the host accepted.
#[tool]
pub async fn hoard_responses(Hoard { count, bytes }: Hoard) -> Result<usize, ToolError> {
    let (mut held, mut held_bytes) = (Vec::new(), 0);
    let piece = vec![b'x'; bytes];
    for _ in 0..count {
        let response = OutgoingResponse::new(Fields::new());
        let body = response.body().map_err(|()| Error::new("BODY", "the response gets no body"))?;
        let stream = body.write().map_err(|()| Error::new("STREAM", "the body gets no stream"))?;
        if stream.write(&piece).is_ok() {
            held_bytes += bytes;
        }
        held.push((response, body, stream));
    }
    mem::forget(held);
    Ok(held_bytes)
}

/// Fills headers of requests that are never made.
#[tool]
pub async fn hoard_fields(Hoard { count, bytes }: Hoard) -> Result<usize, ToolError> {
    let mut held = Vec::new();
    for _ in 0..count {
        let fields = Fields::new();
        fields.append("x-hoard", &vec![b'x'; bytes]).map_err(|error| Error::new("FIELDS", error.to_string()))?;
        held.push(fields);
    }
    Ok(held.len())
}

/// Sets a method, a path and a host of this many bytes. Returns which of them are accepted.
#[tool]
pub async fn long_texts(Hoard { bytes, .. }: Hoard) -> Value {
    let request = OutgoingRequest::new(Fields::new());
    let text = "x".repeat(bytes);
    json!({
        "method": request.set_method(&Method::Other(text.clone())).is_ok(),
        "path": request.set_path_with_query(Some(&format!("/{text}"))).is_ok(),
        "host": request.set_authority(Some(&text)).is_ok(),
    })
}

/// Requests this many random bytes at once. Returns the number of bytes received.
#[tool]
pub async fn chance(Hoard { bytes, .. }: Hoard) -> usize {
    wasip2::random::random::get_random_bytes(bytes as u64).len()
}
