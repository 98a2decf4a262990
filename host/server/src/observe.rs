//! Request ids, request log and panic handling.

use std::any::Any;
use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument;

use crate::error::ApiError;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Assigns an id to a request and logs its result. The id is the client's `x-request-id` if it has at most 128 bytes.
/// It is in the response and in all log lines. Results from 500 are logged as warnings, from 400 as info, others as
/// debug.
pub(crate) async fn log_request(request: Request, next: Next) -> Response {
    let id = request.headers().get(&REQUEST_ID).filter(|id| !id.is_empty() && id.len() <= 128).cloned();
    let id = id.or_else(|| uuid::Uuid::new_v4().to_string().parse().ok()).unwrap_or(HeaderValue::from_static("-"));
    let span = tracing::info_span!(
        "request",
        id = id.to_str().unwrap_or("-"),
        method = %request.method(),
        path = request.uri().path()
    );
    let start = Instant::now();
    let mut response = next.run(request).instrument(span.clone()).await;
    span.in_scope(|| {
        let status = response.status();
        let ms = start.elapsed().as_secs_f64() * 1e3;
        match status.as_u16() {
            500.. => tracing::warn!(status = status.as_u16(), ms, "request"),
            400.. => tracing::info!(status = status.as_u16(), ms, "request"),
            _ => tracing::debug!(status = status.as_u16(), ms, "request"),
        }
    });
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Returns the response for a panic in a handler.
pub(crate) fn panic_response(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("no message"), "a handler panicked");
    ApiError::internal().into_response()
}
