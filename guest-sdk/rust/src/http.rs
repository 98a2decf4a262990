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
//! A host that is not granted is an error with the code `DENIED`, whose message has the lines that would allow it; a limit of the component
//! has the code `LIMIT_REACHED`, anything else `HTTP_FAILED`. Up to five redirects are followed; each is a request of its own to the host,
//! allowed or denied like any other. Secrets are added by the host when the operator says so: code sets no header for them.
//!
//! Requests of one component run at the same time when they are awaited together, as with `join`. While all of its code waits and one
//! of them is under way, other answers of the host (of models and tools) wait for the next piece of that request.
//!
//! In unit tests `hatchery_guest::testing::Host::http` answers.

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

/// The code of an error that is neither a denial nor a limit.
const HTTP_FAILED: &str = "HTTP_FAILED";

/// How many redirects are followed.
const MOST_REDIRECTS: usize = 5;

/// Gets a URL.
///
/// # Errors
/// When it cannot be fetched; see the module. A status such as 404 is not an error.
pub async fn get(url: impl Into<String>) -> Result<Response, Error> {
    Request::get(url).send().await
}

/// A request that is being made.
#[derive(Debug, Clone)]
#[must_use = "a request is sent by `send`"]
pub struct Request {
    method: String,
    url: String,
    headers: Headers,
    body: Vec<u8>,
    timeout: Option<Duration>,
    /// What was wrong with a part of it.
    trouble: Option<String>,
}

/// Names in lower case, and values.
type Headers = Vec<(String, Vec<u8>)>;

/// What goes over to the host at once.
struct Call<'a> {
    method: &'a str,
    url: &'a Url,
    headers: &'a [(String, Vec<u8>)],
    body: &'a [u8],
    timeout: Option<Duration>,
}

/// The beginning of what comes back.
struct Reply {
    status: u16,
    headers: Headers,
    body: transport::Body,
}

impl Request {
    /// A request with any method.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        let (method, url) = (method.into().to_ascii_uppercase(), url.into());
        Self { method, url, headers: Vec::new(), body: Vec::new(), timeout: None, trouble: None }
    }

    /// A GET request.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// A POST request.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new("POST", url)
    }

    /// A PUT request.
    pub fn put(url: impl Into<String>) -> Self {
        Self::new("PUT", url)
    }

    /// A DELETE request.
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

    /// Sets the body to JSON, and says so in `content-type`.
    pub fn json(mut self, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => self.body = body,
            Err(error) => self.trouble = Some(format!("the body cannot be JSON: {error}")),
        }
        self.header("content-type", "application/json")
    }

    /// How long to wait for a connection, for the first byte and between two pieces of the response, each. The operator's limits count when
    /// they are shorter.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends it, and follows redirects. The body of the response is yet to come.
    ///
    /// # Errors
    /// When there is no response; see the module. A status such as 404 is not an error.
    pub async fn send(mut self) -> Result<Response, Error> {
        if let Some(trouble) = self.trouble.take() {
            return Err(failed(trouble));
        }
        let mut url = Url::parse(&self.url)?;
        for _ in 0..=MOST_REDIRECTS {
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
        Err(failed(format!("{} was redirected more than {MOST_REDIRECTS} times", self.url)))
    }

    /// Makes this the request that follows a redirect.
    fn follow(&mut self, status: u16, from: &Url, to: &Url) {
        let is_get_now = match status {
            303 => self.method != "HEAD",
            301 | 302 => self.method == "POST",
            _ => false,
        };
        if is_get_now {
            self.method = "GET".into();
            self.body.clear();
            self.headers.retain(|(name, _)| !name.starts_with("content-"));
        }
        if from.origin() != to.origin() {
            // What was meant for the one host is not for the other.
            self.headers.retain(|(name, _)| name != "authorization" && name != "cookie");
        }
    }
}

/// Where a response sends us on to.
fn redirect(response: &Response, url: &Url) -> Result<Option<Url>, Error> {
    match (response.status, response.header("location")) {
        (301 | 302 | 303 | 307 | 308, Some(location)) => url.join(location).map(Some),
        _ => Ok(None),
    }
}

/// What came back.
pub struct Response {
    /// The status, such as 200.
    pub status: u16,
    headers: Headers,
    url: String,
    body: transport::Body,
}

impl Response {
    /// True for a status of 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// This response, if its status is one of success.
    ///
    /// # Errors
    /// When it is another.
    pub fn error_for_status(self) -> Result<Self, Error> {
        if self.is_success() {
            Ok(self)
        } else {
            Err(failed(format!("{} answered with status {}", self.url, self.status)))
        }
    }

    /// Where it came from, after all redirects.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Names, in lower case, and values of its headers.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The first header of this name, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// The next piece of the body; nothing after the last.
    ///
    /// # Errors
    /// When it breaks off, or a limit is reached.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.body.chunk().await
    }

    /// The body.
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

    /// The body as text; what is not UTF-8 is replaced.
    ///
    /// # Errors
    /// See [`Response::chunk`].
    pub async fn text(self) -> Result<String, Error> {
        let bytes = self.bytes().await?;
        Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The body read as JSON.
    ///
    /// # Errors
    /// See [`Response::chunk`]; also when it is not JSON of this kind.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        let url = self.url.clone();
        let bytes = self.bytes().await?;
        serde_json::from_slice(&bytes).map_err(|error| failed(format!("{url} answered with other JSON: {error}")))
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response").field("status", &self.status).field("url", &self.url).finish_non_exhaustive()
    }
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(HTTP_FAILED, message)
}

/// The error that the host's text tells of: `DENIED: …` and `LIMIT_REACHED: …` begin with their code.
#[cfg_attr(not(target_family = "wasm"), allow(dead_code, reason = "only the host says such texts"))]
fn told(text: &str) -> Error {
    for code in ["DENIED", "LIMIT_REACHED"] {
        if let Some((_, message)) = text.split_once(&format!("{code}: ")) {
            return Error::new(code, message);
        }
    }
    failed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_text_tells_the_code() {
        let denied = told("DENIED: component `web` may not send requests");
        assert_eq!(
            (denied.code.as_str(), denied.message.as_str()),
            ("DENIED", "component `web` may not send requests")
        );
        assert_eq!(told("internal error: LIMIT_REACHED: it needs more").code, "LIMIT_REACHED");
        assert_eq!(told("the connection broke").code, "HTTP_FAILED");
    }

    #[test]
    fn a_redirect_changes_what_it_has_to() {
        let followed = |status, to: &str| {
            let mut request = Request::post("https://a.com/x")
                .header("Authorization", "mine")
                .header("Content-Type", "text/plain")
                .header("Accept", "*/*")
                .body("body");
            request.follow(status, &Url::parse("https://a.com/x").unwrap(), &Url::parse(to).unwrap());
            let names: Vec<_> = request.headers.iter().map(|(name, _)| name.clone()).collect();
            (request.method, request.body.len(), names.join(" "))
        };
        assert_eq!(followed(302, "https://a.com/y"), ("GET".into(), 0, "authorization accept".into()));
        assert_eq!(followed(307, "https://a.com/y"), ("POST".into(), 4, "authorization content-type accept".into()));
        assert_eq!(followed(308, "https://b.com/"), ("POST".into(), 4, "content-type accept".into()));
        assert_eq!(followed(303, "http://a.com/"), ("GET".into(), 0, "accept".into()));
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
