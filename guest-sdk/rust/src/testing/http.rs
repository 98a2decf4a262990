//! Mock HTTP: the requests that code sends, and the responses of a test.

use std::time::Duration;

use serde_json::Value;

/// A request that code has sent. Each redirect is a separate request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpRequest {
    /// Method in upper case, such as `GET`.
    pub method: String,
    /// URL as sent: with a path, without a fragment.
    pub url: String,
    /// Header names in lower case with their values. Headers that a host adds, such as secrets, are not included.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body of the request.
    pub body: Vec<u8>,
    /// The timeout that the code has set.
    pub timeout: Option<Duration>,
}

impl HttpRequest {
    /// Returns the first header with this name, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// Returns the body as text. Invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON. `None` if it is not JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// The response of a test to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl HttpResponse {
    /// Creates a response without a body.
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    /// Creates a text response with status 200.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(200).header("content-type", "text/plain; charset=utf-8").body(text.into())
    }

    /// Creates a JSON response with status 200.
    #[allow(clippy::needless_pass_by_value, reason = "so that a test says `HttpResponse::json(json!(…))`")]
    pub fn json(value: Value) -> Self {
        Self::new(200).header("content-type", "application/json").body(value.to_string())
    }

    /// Creates a redirect with status 302.
    pub fn redirect(location: impl AsRef<[u8]>) -> Self {
        Self::new(302).header("location", location)
    }

    /// Sets the status.
    #[must_use]
    pub fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.as_ref().to_ascii_lowercase(), value.as_ref().to_vec()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self }
    }
}
