//! HTTP requests, to the hosts that the operator grants in `hatchery.yaml`.
//!
//! ```no_run
//! # use hatchery_guest::prelude::*;
//! use hatchery_guest::http;
//!
//! # async fn example() -> Result<(), Error> {
//! let page = http::get("https://example.com/").await?.text().await?;
//! let made: Value = http::Request::post("https://api.example.com/items")
//!     .header("accept", "application/json")
//!     .json(&json!({ "name": "lamp" }))
//!     .send()
//!     .await?
//!     .json()
//!     .await?;
//! # Ok(()) }
//! ```
//!
//! A request to a host that is not granted fails with the code `DENIED`, and the host's log has the lines that would
//! allow it. A limit of the component has the code `LIMIT_REACHED`, any other failure `HTTP_FAILED`. Up to five
//! redirects are followed; each one is a separate request, allowed or denied like any other. The host adds secrets that
//! the operator configures: code sets no header for them.
//!
//! Requests that are awaited together, for example with `join`, run concurrently. While all code of the component waits
//! and a request is running, other results from the host (of models and tools) wait for the next chunk of that request.
//!
//! In unit tests, `hatchery_guest::testing::Host::http` answers the requests.

#[cfg(not(target_family = "wasm"))]
mod native;
mod url;
#[cfg(target_family = "wasm")]
mod wasi;

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
#[cfg(not(target_family = "wasm"))]
use native as transport;
use url::Url;
#[cfg(target_family = "wasm")]
use wasi as transport;

/// Code of errors that are neither denials nor limits.
const HTTP_FAILED: &str = "HTTP_FAILED";

/// Maximum number of redirects to follow.
const MAX_REDIRECTS: usize = 5;

/// Sends a GET request.
///
/// # Errors
/// If there is no response; see the module. A status such as 404 is not an error.
pub async fn get(url: impl Into<String>) -> Result<Response, Error> {
    Request::get(url).send().await
}

/// An HTTP request builder.
#[derive(Debug, Clone)]
#[must_use = "a request is sent by `send`"]
pub struct Request {
    method: String,
    url: String,
    headers: Headers,
    body: Vec<u8>,
    timeout: Option<Duration>,
    /// The first error in building the request.
    build_error: Option<String>,
}

/// Header names in lower case with their values.
type Headers = Vec<(String, Vec<u8>)>;

/// A request to the transport.
struct Call<'a> {
    method: &'a str,
    url: &'a Url,
    headers: &'a [(String, Vec<u8>)],
    body: &'a [u8],
    timeout: Option<Duration>,
}

/// A response from the transport.
struct Reply {
    status: u16,
    headers: Headers,
    body: transport::Body,
}

impl Request {
    /// Creates a request with any method.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        let (method, url) = (method.into().to_ascii_uppercase(), url.into());
        Self { method, url, headers: Vec::new(), body: Vec::new(), timeout: None, build_error: None }
    }

    /// Creates a GET request.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// Creates a POST request.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new("POST", url)
    }

    /// Creates a PUT request.
    pub fn put(url: impl Into<String>) -> Self {
        Self::new("PUT", url)
    }

    /// Creates a DELETE request.
    pub fn delete(url: impl Into<String>) -> Self {
        Self::new("DELETE", url)
    }

    /// Adds a header.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.as_ref().to_ascii_lowercase(), value.as_ref().to_vec()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets a JSON body and the `content-type` header.
    pub fn json(mut self, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => self.body = body,
            Err(error) => self.build_error = Some(format!("the body cannot be JSON: {error}")),
        }
        self.header("content-type", "application/json")
    }

    /// Sets the timeout for connecting, for the first byte, and between two chunks of the response, each. Shorter
    /// limits of the operator take precedence.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends the request and follows redirects. The body of the response is read later.
    ///
    /// # Errors
    /// If there is no response; see the module. A status such as 404 is not an error.
    pub async fn send(mut self) -> Result<Response, Error> {
        if let Some(build_error) = self.build_error.take() {
            return Err(http_error(build_error));
        }
        let mut url = Url::parse(&self.url)?;
        for _ in 0..=MAX_REDIRECTS {
            let call = Call {
                method: &self.method,
                url: &url,
                headers: &self.headers,
                body: &self.body,
                timeout: self.timeout,
            };
            let Reply { status, headers, body } = transport::exchange(call).await?;
            let response = Response { status, headers, url: url.to_string(), body };
            match redirect(&response, &url)? {
                None => return Ok(response),
                Some(next) => {
                    self.follow(status, &url, &next);
                    url = next;
                }
            }
        }
        Err(http_error(format!("{} was redirected more than {MAX_REDIRECTS} times", self.url)))
    }

    /// Turns this request into the one that follows a redirect.
    fn follow(&mut self, status: u16, from: &Url, to: &Url) {
        let becomes_get = match status {
            303 => self.method != "HEAD",
            301 | 302 => self.method == "POST",
            _ => false,
        };
        if becomes_get {
            self.method = "GET".into();
            self.body.clear();
            self.headers.retain(|(name, _)| !name.starts_with("content-"));
        }
        if from.origin() != to.origin() {
            // Credentials for one host must not be sent to another.
            self.headers.retain(|(name, _)| name != "authorization" && name != "cookie");
        }
    }
}

/// Returns the target of a redirect.
fn redirect(response: &Response, url: &Url) -> Result<Option<Url>, Error> {
    match (response.status, response.header("location")) {
        (301 | 302 | 303 | 307 | 308, Some(location)) => url.join(location).map(Some),
        _ => Ok(None),
    }
}

/// An HTTP response.
pub struct Response {
    /// Status code.
    pub status: u16,
    headers: Headers,
    url: String,
    body: transport::Body,
}

impl Response {
    /// Returns true for a status of 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns this response if its status is 200 to 299.
    ///
    /// # Errors
    /// If the status is another one.
    pub fn error_for_status(self) -> Result<Self, Error> {
        if self.is_success() {
            Ok(self)
        } else {
            Err(http_error(format!("{} answered with status {}", self.url, self.status)))
        }
    }

    /// Returns the URL of the response, after all redirects.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the header names, in lower case, with their values.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Returns the first header with this name, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// Returns the next chunk of the body. `None` after the last one.
    ///
    /// # Errors
    /// If the connection breaks, or a limit is reached.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.body.chunk().await
    }

    /// Reads the complete body.
    ///
    /// # Errors
    /// See [`Response::chunk`].
    pub async fn bytes(mut self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while let Some(mut chunk) = self.chunk().await? {
            bytes.append(&mut chunk);
        }
        Ok(bytes)
    }

    /// Reads the complete body as text. Invalid UTF-8 is replaced.
    ///
    /// # Errors
    /// See [`Response::chunk`].
    pub async fn text(self) -> Result<String, Error> {
        let bytes = self.bytes().await?;
        Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Reads the complete body as JSON.
    ///
    /// # Errors
    /// See [`Response::chunk`]; also if the body is not JSON for a `T`.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        let url = self.url.clone();
        let bytes = self.bytes().await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| http_error(format!("{url} answered with unexpected JSON: {error}")))
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response").field("status", &self.status).field("url", &self.url).finish_non_exhaustive()
    }
}

fn http_error(message: impl Into<String>) -> Error {
    Error::new(HTTP_FAILED, message)
}

/// Converts the host's error text, which begins with the code for denials and limits (`DENIED: …`, `LIMIT_REACHED: …`).
#[cfg_attr(not(target_family = "wasm"), allow(dead_code, reason = "only used with a real host"))]
fn from_host_text(text: &str) -> Error {
    for code in ["DENIED", "LIMIT_REACHED"] {
        if let Some((_, message)) = text.split_once(&format!("{code}: ")) {
            return Error::new(code, message);
        }
    }
    http_error(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_text_contains_the_code() {
        let denied = from_host_text("DENIED: component `web` may not send requests");
        assert_eq!(
            (denied.code.as_str(), denied.message.as_str()),
            ("DENIED", "component `web` may not send requests")
        );
        assert_eq!(from_host_text("internal error: LIMIT_REACHED: it needs more").code, "LIMIT_REACHED");
        assert_eq!(from_host_text("the connection broke").code, "HTTP_FAILED");
    }

    #[test]
    fn a_redirect_changes_method_body_and_headers() {
        let follow = |status, to: &str| {
            let mut request = Request::post("https://a.com/x")
                .header("Authorization", "mine")
                .header("Content-Type", "text/plain")
                .header("Accept", "*/*")
                .body("body");
            request.follow(status, &Url::parse("https://a.com/x").unwrap(), &Url::parse(to).unwrap());
            let names: Vec<_> = request.headers.iter().map(|(name, _)| name.clone()).collect();
            (request.method, request.body.len(), names.join(" "))
        };
        assert_eq!(follow(302, "https://a.com/y"), ("GET".into(), 0, "authorization accept".into()));
        assert_eq!(follow(307, "https://a.com/y"), ("POST".into(), 4, "authorization content-type accept".into()));
        assert_eq!(follow(308, "https://b.com/"), ("POST".into(), 4, "content-type accept".into()));
        assert_eq!(follow(303, "http://a.com/"), ("GET".into(), 0, "accept".into()));
    }

    #[test]
    fn without_a_host_a_request_fails() {
        let error = futures::executor::block_on(get("https://a.com")).unwrap_err();
        assert_eq!(error.code, "HTTP_FAILED");
        assert!(error.message.starts_with("there is no host here:"), "{error}");
        let error = futures::executor::block_on(get("a.com")).unwrap_err();
        assert_eq!(error.message, "`a.com` is not a URL; write it as `https://host/path`");
    }
}
