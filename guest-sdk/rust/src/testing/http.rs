//! HTTP without a network: what code asks for, and what a test answers.

use std::time::Duration;

use serde_json::Value;

/// A request that code has sent. Each redirect that it follows is one of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpRequest {
    /// In upper case, such as `GET`.
    pub method: String,
    /// As it is sent: with a path, without a fragment.
    pub url: String,
    /// Names, in lower case, and values. What a host adds, such as secrets, is not among them.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
    /// How long the code wants to wait.
    pub timeout: Option<Duration>,
}

impl HttpRequest {
    /// The first header of this name, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// The body as text; what is not UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; nothing when it is none.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// What a test answers a request with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl HttpResponse {
    /// A response without a body.
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    /// A response of text, with status 200.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(200).header("content-type", "text/plain; charset=utf-8").body(text.into())
    }

    /// A response of JSON, with status 200.
    #[allow(clippy::needless_pass_by_value, reason = "so that a test says `HttpResponse::json(json!(…))`")]
    pub fn json(value: Value) -> Self {
        Self::new(200).header("content-type", "application/json").body(value.to_string())
    }

    /// A redirect to another place, with status 302.
    pub fn redirect(location: impl AsRef<[u8]>) -> Self {
        Self::new(302).header("location", location)
    }

    /// With another status.
    #[must_use]
    pub fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.as_ref().to_ascii_lowercase(), value.as_ref().to_vec()));
        self
    }

    /// With this body.
    #[must_use]
    pub fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self }
    }
}
