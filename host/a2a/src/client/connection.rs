//! Requests to a remote agent over JSON-RPC.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::stream::{self, BoxStream, StreamExt};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, Url};
use serde_json::{Value, json};
use sse_stream::SseByteStream;

use super::peer::read_body;
use super::{ClientError, ClientLimits};
use crate::codec::Version;
use crate::error::excerpt;
use crate::model::{Operation, Task, Update};
use hatchery_egress::{Egress, describe};

/// What a card says about how to reach its agent.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) egress: Arc<dyn Egress>,
    pub(super) url: Url,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    pub(super) tenant: Option<String>,
    pub(super) is_streaming: bool,
    pub(super) limits: ClientLimits,
}

/// The items of a stream.
pub(super) type Updates = BoxStream<'static, Result<Update, ClientError>>;

const MESSAGE: &str = "message";
const MAX_MESSAGE: &str = "max_message";

impl Connection {
    /// Sends a message, and returns its answer.
    pub(super) async fn send(&self, operation: &Operation) -> Result<Update, ClientError> {
        let result = self.call(operation).await?;
        self.version.decode_update(&result).map_err(ClientError::Response)
    }

    /// Returns the task of an operation that results in one.
    pub(super) async fn task(&self, operation: &Operation) -> Result<Task, ClientError> {
        let result = self.call(operation).await?;
        self.version.decode_task(&result).map_err(ClientError::Response)
    }

    async fn call(&self, operation: &Operation) -> Result<Value, ClientError> {
        let response = self.post(operation, "application/json").await?;
        let body = read_body(response, self.limits.max_message, MESSAGE, MAX_MESSAGE).await?;
        result_of(&body)
    }

    /// Performs an operation whose result is a stream. An agent that answers with a single result has a stream of one item.
    pub(super) async fn stream(&self, operation: &Operation) -> Result<Updates, ClientError> {
        let response = self.post(operation, "text/event-stream").await?;
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let version = self.version;
        if !content_type.is_some_and(|value| value.starts_with("text/event-stream")) {
            let body = read_body(response, self.limits.max_message, MESSAGE, MAX_MESSAGE).await?;
            let update = result_of(&body).and_then(|it| version.decode_update(&it).map_err(ClientError::Response))?;
            return Ok(stream::iter([Ok(update)]).boxed());
        }
        Ok(events(response, self.limits.max_message, version))
    }

    async fn post(&self, operation: &Operation, accept: &str) -> Result<Response, ClientError> {
        // The permission may have been withdrawn since the card was read.
        self.egress.check_url(&self.url).map_err(ClientError::Refused)?;
        let (method, mut params) = self.version.encode_call(operation);
        if let (Some(tenant), Some(params)) = (&self.tenant, params.as_object_mut()) {
            params.insert("tenant".into(), tenant.as_str().into());
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = self.client.post(self.url.clone()).headers(self.headers.clone());
        let request = request.header("a2a-version", self.version.name()).header(ACCEPT, accept).json(&body);
        let response = request.send().await.map_err(|error| match error.is_timeout() && !error.is_connect() {
            true => ClientError::Timeout(self.limits.read_timeout),
            false => ClientError::Communication(describe(error)),
        })?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => {
                let body = read_body(response, self.limits.max_message, MESSAGE, MAX_MESSAGE).await?;
                // Some servers send an error of JSON-RPC with a status of its own.
                match result_of(&body) {
                    Err(error @ ClientError::Peer { .. }) => Err(error),
                    _ => Err(ClientError::Communication(format!("the answer has the status {status}"))),
                }
            }
        }
    }
}

/// Returns the result in a response of JSON-RPC.
fn result_of(body: &[u8]) -> Result<Value, ClientError> {
    let mut response: Value = serde_json::from_slice(body).map_err(|error| ClientError::Response(error.to_string()))?;
    if let Some(error) = response.get("error").filter(|error| !error.is_null()) {
        let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
        let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
        return Err(ClientError::Peer { code, message: excerpt(message) });
    }
    match response.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(ClientError::Response("it has neither `result` nor `error`".into())),
    }
}

/// Decodes the events of a response. One that is too large ends the stream.
fn events(response: Response, limit: usize, version: Version) -> Updates {
    let (received, is_exceeded) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counter, exceeded) = (received.clone(), is_exceeded.clone());
    let bytes = response.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(|error| std::io::Error::other(describe(error)))?;
        if counter.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len() > limit {
            exceeded.store(true, Ordering::Relaxed);
            return Err(std::io::Error::other("an item is too large"));
        }
        Ok(chunk)
    });
    let events = SseByteStream::new(Box::pin(bytes)).inspect(move |_| received.store(0, Ordering::Relaxed));
    let updates = events.filter_map(move |event| {
        let update = match event {
            Ok(event) => event.data.filter(|data| !data.is_empty()).map(|data| {
                result_of(data.as_bytes()).and_then(|it| version.decode_update(&it).map_err(ClientError::Response))
            }),
            Err(_) if is_exceeded.load(Ordering::Relaxed) => {
                Some(Err(ClientError::TooLarge { what: "item of a stream", limit, key: MAX_MESSAGE }))
            }
            Err(error) => Some(Err(ClientError::Communication(error.to_string()))),
        };
        std::future::ready(update)
    });
    updates.boxed()
}
