//! The HTTP client that the library sends its requests by: the client of this crate.

use std::future::{Future, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use http::header::{AUTHORIZATION, HeaderName};
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use reqwest::Url;
use rig_core::http_client::{Error, HttpClientExt, LazyBody, MultipartForm, Result, StreamingResponse};

use crate::http::{Endpoint, send};

/// Headers in which the library sends keys.
const KEY_HEADERS: [&str; 4] = ["x-api-key", "x-goog-api-key", "api-key", "ocp-apim-subscription-key"];

/// Sends the requests of one call. Errors are [`ModelError`](hatchery_core::ModelError)s.
#[derive(Clone)]
pub(super) struct Transport {
    endpoint: Endpoint,
    /// Headers of every request.
    headers: HeaderMap,
    timeout: Duration,
}

impl Transport {
    pub(super) fn new(endpoint: Endpoint, headers: HeaderMap, timeout: Duration) -> Self {
        Self { endpoint, headers, timeout }
    }

    /// Returns a response with a success status, before its body is read.
    async fn respond(&self, parts: Parts, body: Bytes) -> Result<reqwest::Response> {
        let url = Url::parse(&parts.uri.to_string()).map_err(Error::instance)?;
        let mut headers = parts.headers;
        for name in KEY_HEADERS.map(HeaderName::from_static).into_iter().chain([AUTHORIZATION]) {
            if let Some(value) = headers.get_mut(name) {
                value.set_sensitive(true);
            }
        }
        for (name, value) in &self.headers {
            headers.entry(name).or_insert_with(|| value.clone());
        }
        let request = self.endpoint.client().request(parts.method, url).headers(headers).body(body);
        send(request, self.timeout, &self.endpoint.origin).await.map_err(Error::instance)
    }
}

impl HttpClientExt for Transport {
    fn send<T, U>(&self, request: Request<T>) -> impl Future<Output = Result<Response<LazyBody<U>>>> + Send + 'static
    where
        T: Into<Bytes> + Send,
        U: From<Bytes> + Send + 'static,
    {
        let transport = self.clone();
        let (parts, body) = request.into_parts();
        let body = body.into();
        async move {
            let response = transport.respond(parts, body).await?;
            let mut whole = Response::builder().status(response.status());
            if let Some(headers) = whole.headers_mut() {
                headers.clone_from(response.headers());
            }
            let endpoint = transport.endpoint;
            let body: LazyBody<U> =
                Box::pin(async move { endpoint.read_body(response).await.map(U::from).map_err(Error::instance) });
            whole.body(body).map_err(Error::from)
        }
    }

    fn send_multipart<U>(
        &self,
        _: Request<MultipartForm>,
    ) -> impl Future<Output = Result<Response<LazyBody<U>>>> + Send + 'static
    where
        U: From<Bytes> + Send + 'static,
    {
        let message = "completions have no multipart requests";
        ready(Err(Error::instance(self.endpoint.origin.bad_response(message))))
    }

    async fn send_streaming<T>(&self, request: Request<T>) -> Result<StreamingResponse>
    where
        T: Into<Bytes> + Send,
    {
        let (parts, body) = request.into_parts();
        let response = self.respond(parts, body.into()).await?;
        let mut streamed = Response::builder().status(response.status());
        if let Some(headers) = streamed.headers_mut() {
            headers.clone_from(response.headers());
        }
        let chunks = self.endpoint.event_stream(response).map_err(Error::instance)?;
        let chunks = chunks.map_err(Error::instance);
        streamed.body(Box::pin(chunks) as _).map_err(Error::from)
    }
}
