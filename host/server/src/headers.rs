//! Security headers of every response: no content sniffing, framing, cross-origin use, referrer or caching.

use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue};

/// The content security policy of responses that are not pages.
const NO_CONTENT: &str = "default-src 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CONTENT_SECURITY_POLICY, NO_CONTENT),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Adds the headers that a response does not have.
pub(crate) fn add_missing(headers: &mut HeaderMap) {
    headers.reserve(HEADERS.len());
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_a_route_are_kept() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        add_missing(&mut headers);
        assert_eq!((headers[header::CACHE_CONTROL].to_str().unwrap(), headers.len()), ("no-cache", HEADERS.len()));
    }
}
