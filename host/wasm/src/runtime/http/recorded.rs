//! Recorded HTTP responses that replace the network in tests: `http` of a `conversation.yaml`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hatchery_core::sync::MutexExt;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde::Deserialize;
use serde_json::Value;

use super::body::ResponseBody;
use super::error::HttpError;

/// A request and its response.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedResponse {
    #[serde(default = "get")]
    method: String,
    /// The full URL of the request.
    url: String,
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// A string is sent as text, anything else as JSON.
    #[serde(default)]
    body: Value,
}

fn get() -> String {
    "GET".into()
}

fn ok() -> u16 {
    200
}

/// Recorded responses of all components. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RecordedHttp(Arc<Mutex<Vec<RecordedResponse>>>);

/// Two are equal if they share their responses.
impl PartialEq for RecordedHttp {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl RecordedHttp {
    /// Replaces the responses. The first one that matches a request is its answer, each time.
    pub fn play(&self, responses: Vec<RecordedResponse>) {
        *self.0.lock_unpoisoned() = responses;
    }

    /// Returns the recorded answer to a request.
    pub(super) fn answer(&self, request: &Parts) -> Result<Response<ResponseBody>, HttpError> {
        let (method, url) = (request.method.as_str(), request.uri.to_string());
        let responses = self.0.lock_unpoisoned();
        let recorded = responses.iter().find(|it| it.method.eq_ignore_ascii_case(method) && is_same_url(&it.url, &url));
        let recorded = recorded.ok_or_else(|| HttpError::NotRecorded { method: method.into(), url })?;
        recorded
            .response()
            .ok_or_else(|| HttpError::Broken(format!("the recorded response to `{}` cannot be sent", recorded.url)))
    }
}

/// Compares URLs. An empty path equals `/`.
fn is_same_url(recorded: &str, url: &str) -> bool {
    recorded == url || recorded == url.strip_suffix('/').unwrap_or(url)
}

impl RecordedResponse {
    /// Converts it to a response. `None` if the status or a header is not valid HTTP.
    fn response(&self) -> Option<Response<ResponseBody>> {
        let (bytes, kind) = match &self.body {
            Value::Null => (Bytes::new(), None),
            Value::String(text) => (Bytes::from(text.clone()), Some("text/plain; charset=utf-8")),
            json => (Bytes::from(json.to_string()), Some("application/json")),
        };
        let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.status).ok()?;
        if let Some(kind) = kind {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        for (name, value) in &self.headers {
            let (name, value) = (HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
            response.headers_mut().insert(name, value);
        }
        Some(response)
    }
}
