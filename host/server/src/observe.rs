//! Request ids and the request log.

use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use tracing::Span;
use tracing::level_filters::LevelFilter;
use uuid::Uuid;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The log of one request. Its id is the client's `x-request-id` if it has at most 128 bytes. It is in the response and
/// in all log lines.
pub(crate) struct RequestLog {
    id: HeaderValue,
    span: Span,
    start: Instant,
}

impl RequestLog {
    pub(crate) fn begin(request: &Request) -> Self {
        let id = request.headers().get(&REQUEST_ID).filter(|id| !id.is_empty() && id.len() <= 128).cloned();
        let id = id.or_else(new_id).unwrap_or(HeaderValue::from_static("-"));
        let span = tracing::info_span!(
            "request",
            id = id.to_str().unwrap_or("-"),
            method = %request.method(),
            path = request.uri().path(),
            client = tracing::field::Empty
        );
        Self { id, span, start: Instant::now() }
    }

    /// Returns the span of the request.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Adds the id to the response, and logs its status: from 500 as a warning, from 400 as info, others as debug.
    pub(crate) fn end(self, response: &mut Response) {
        let Self { id, span, start } = self;
        let status = response.status().as_u16();
        // Entering a span costs more than finding that the line is filtered out.
        if status >= 400 || LevelFilter::current() >= LevelFilter::DEBUG {
            let ms = (start.elapsed().as_secs_f64() * 1e6).round() / 1e3;
            span.in_scope(|| match status {
                500.. => tracing::warn!(status, ms, "request"),
                400.. => tracing::info!(status, ms, "request"),
                _ => tracing::debug!(status, ms, "request"),
            });
        }
        response.headers_mut().insert(REQUEST_ID, id);
    }
}

fn new_id() -> Option<HeaderValue> {
    HeaderValue::from_str(Uuid::new_v4().hyphenated().encode_lower(&mut Uuid::encode_buffer())).ok()
}
