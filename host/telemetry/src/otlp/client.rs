//! The HTTP client of the export.

use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use reqwest::redirect::Policy;
use tokio::runtime::Handle;

use super::{OtlpError, first, number};

/// Maximum size in bytes of a collector's answer.
const MAX_ANSWER: usize = 64 << 10;

/// The variables of the timeout in milliseconds. The variable of traces takes precedence.
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];

/// The default of the specification.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests on the runtime of the host, because the thread of the export has none.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    runtime: Handle,
}

impl Client {
    pub(super) fn new(set: &impl Fn(&str) -> Option<String>, runtime: Handle) -> Result<Self, OtlpError> {
        let timeout = match first(set, TIMEOUTS) {
            Some((variable, _)) => number(set, variable)?.map(Duration::from_millis),
            None => None,
        };
        // A redirect would get headers with keys.
        let builder = reqwest::Client::builder().timeout(timeout.unwrap_or(TIMEOUT)).redirect(Policy::none());
        let http = builder.build().map_err(|error| OtlpError::Exporter(error.to_string()))?;
        Ok(Self { http, runtime })
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (http, request) = (self.http.clone(), reqwest::Request::try_from(request)?);
        self.runtime.spawn(send(http, request)).await?
    }
}

async fn send(http: reqwest::Client, request: reqwest::Request) -> Result<Response<Bytes>, HttpError> {
    let mut response = http.execute(request).await?;
    let mut answer = Response::builder().status(response.status());
    if let Some(headers) = answer.headers_mut() {
        headers.clone_from(response.headers());
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(format!("the answer of the collector has more than {MAX_ANSWER} bytes").into());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(answer.body(body.into())?)
}
