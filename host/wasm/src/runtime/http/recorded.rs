//! HTTP responses that stand in for the network in tests: `http` of a `conversation.yaml`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde::Deserialize;
use serde_json::Value;
use wasmtime_wasi_http::WasiBody;

use super::fault::Fault;

/// A request, and what is answered.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedResponse {
    /// The request's method.
    #[serde(default = "get")]
    method: String,
    /// The request's whole URL.
    url: String,
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// A text is sent as it is, anything else as JSON.
    #[serde(default)]
    body: Value,
}

fn get() -> String {
    "GET".into()
}

fn ok() -> u16 {
    200
}

/// The responses that components get instead of the network. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RecordedHttp(Arc<Mutex<Vec<RecordedResponse>>>);

/// Two are the same when they share their responses.
impl PartialEq for RecordedHttp {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl RecordedHttp {
    /// From now on these are the responses. The first that fits a request is its answer, each time.
    pub fn play(&self, responses: Vec<RecordedResponse>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = responses;
    }

    /// The answer to a request.
    pub(super) fn answer(&self, request: &Parts) -> Result<Response<WasiBody>, Fault> {
        let (method, url) = (request.method.as_str(), request.uri.to_string());
        let responses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = responses.iter().find(|it| it.method.eq_ignore_ascii_case(method) && same_url(&it.url, &url));
        let found = found.ok_or_else(|| Fault::NotRecorded { method: method.into(), url })?;
        found
            .response()
            .ok_or_else(|| Fault::Broken(format!("the recorded response to `{}` cannot be sent", found.url)))
    }
}

/// A URL without a path is the same as one with the path `/`.
fn same_url(recorded: &str, url: &str) -> bool {
    recorded == url || recorded == url.strip_suffix('/').unwrap_or(url)
}

impl RecordedResponse {
    /// Nothing when the status or a header cannot be sent.
    fn response(&self) -> Option<Response<WasiBody>> {
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
