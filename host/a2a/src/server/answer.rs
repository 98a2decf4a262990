//! HTTP responses: JSON, streams of server-sent events, and cards.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::ErrorKind;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// How long clients, and the proxies before the host, may keep a card.
const PUBLIC_CARD: &str = "public, max-age=60";

/// How long clients may keep a card that needs credentials. A proxy would send it to others.
const PRIVATE_CARD: &str = "private, max-age=60";

fn with_status(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns JSON with a status.
pub(super) fn json(status: u16, value: &Value) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_status(status, "application/json", Full::from(value.to_string()).boxed_unsync())
}

/// Returns an error. The error of a busy host has a time for the next attempt.
pub(super) fn error(kind: ErrorKind, status: u16, body: &Value) -> Response<Body> {
    let mut response = json(status, body);
    if kind == ErrorKind::Busy {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Returns an answer without content.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = status;
    response
}

/// Returns values as server-sent events, one `data:` line each, with comments while there are none.
pub(super) fn events(values: BoxStream<'static, Value>, keep_alive: Duration) -> Response<Body> {
    let frames = futures::stream::unfold(values, move |mut values| async move {
        let text = match tokio::time::timeout(keep_alive, values.next()).await {
            Err(_) => ": keep-alive\n\n".to_owned(),
            Ok(Some(value)) => format!("data: {value}\n\n"),
            Ok(None) => return None,
        };
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), values))
    });
    let mut response = with_status(StatusCode::OK, "text/event-stream", StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Returns a card with a hash of it and the time of its last change, or only these if the client has the same card.
/// `is_public` is true if everybody may read it.
pub(super) fn card(card: &Value, changed: SystemTime, request: &HeaderMap, is_public: bool) -> Response<Body> {
    let text = card.to_string();
    let hash: String = Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let etag = format!("\"{hash}\"");
    let mut response = if is_known(&etag, changed, request) {
        empty(StatusCode::NOT_MODIFIED)
    } else {
        with_status(StatusCode::OK, "application/json", Full::from(text).boxed_unsync())
    };
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(ETAG, etag);
    }
    if let Ok(changed) = HeaderValue::from_str(&httpdate::fmt_http_date(changed)) {
        headers.insert(LAST_MODIFIED, changed);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(if is_public { PUBLIC_CARD } else { PRIVATE_CARD }));
    response
}

/// Returns true if a client has a document. Its hashes decide; the time counts for clients that send none.
fn is_known(etag: &str, changed: SystemTime, request: &HeaderMap) -> bool {
    let text = |name| request.get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(known) = text(IF_NONE_MATCH) {
        return known
            .split(',')
            .any(|known| matches!(known.trim().trim_start_matches("W/"), it if it == "*" || it == etag));
    }
    let since = text(IF_MODIFIED_SINCE).and_then(|since| httpdate::parse_http_date(since).ok());
    since.is_some_and(|since| changed <= since)
}
