//! Requests to a remote agent over JSON-RPC.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, Url};
use serde::Serialize;
use serde_json::Value;

use super::peer::read_answer;
use super::{ClientError, ClientLimits};
use crate::codec::Version;
use crate::error::excerpt;
use crate::model::{Operation, Task, Update};
use crate::server::VERSION_HEADER;
use hatchery_egress::{Egress, SseError, sse_data};

/// The interface of a card that this client uses.
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

/// A message of a remote agent, with its size on the wire.
#[derive(Debug)]
pub(super) struct ReceivedMessage<T> {
    pub(super) message: T,
    pub(super) bytes: usize,
}

/// The items of a stream.
pub(super) type Updates = BoxStream<'static, Result<ReceivedMessage<Update>, ClientError>>;

/// A call over JSON-RPC. A struct, because `json!` would copy the parameters.
#[derive(Serialize)]
struct Call<'a> {
    jsonrpc: &'a str,
    id: u32,
    method: &'a str,
    params: &'a Value,
}

const MAX_MESSAGE: &str = "max_message";

impl Connection {
    /// Sends a message, and returns its answer.
    pub(super) async fn send(&self, operation: Operation) -> Result<ReceivedMessage<Update>, ClientError> {
        let ReceivedMessage { message, bytes } = self.call(operation).await?;
        let message = self.version.decode_update(message).map_err(ClientError::Response)?;
        Ok(ReceivedMessage { message, bytes })
    }

    /// Returns the task of an operation that results in one.
    pub(super) async fn task(&self, operation: Operation) -> Result<ReceivedMessage<Task>, ClientError> {
        let ReceivedMessage { message, bytes } = self.call(operation).await?;
        let message = self.version.decode_task(message).map_err(ClientError::Response)?;
        Ok(ReceivedMessage { message, bytes })
    }

    async fn call(&self, operation: Operation) -> Result<ReceivedMessage<Value>, ClientError> {
        let response = self.post(operation, "application/json").await?;
        let body = self.read(response).await?;
        Ok(ReceivedMessage { message: result_of(&body)?, bytes: body.len() })
    }

    /// Performs an operation whose result is a stream. An agent that answers with a single result has a stream of one
    /// item.
    pub(super) async fn stream(&self, operation: Operation) -> Result<Updates, ClientError> {
        let response = self.post(operation, "text/event-stream").await?;
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let version = self.version;
        if !content_type.is_some_and(|value| value.starts_with("text/event-stream")) {
            let body = self.read(response).await?;
            return Ok(stream::iter([decode_update(&body, version)]).boxed());
        }
        Ok(events(response, &self.limits, version))
    }

    async fn read(&self, response: Response) -> Result<Vec<u8>, ClientError> {
        read_answer(response, self.limits.max_message, "message", MAX_MESSAGE, self.limits.read_timeout).await
    }

    async fn post(&self, operation: Operation, accept: &str) -> Result<Response, ClientError> {
        // The permission may have been withdrawn since the card was read.
        self.egress.check_url(&self.url).map_err(ClientError::Refused)?;
        let (method, mut params) = self.version.encode_call(operation);
        if let (Some(tenant), Some(params)) = (&self.tenant, params.as_object_mut()) {
            params.insert("tenant".into(), tenant.as_str().into());
        }
        let body = Call { jsonrpc: "2.0", id: 1, method, params: &params };
        let request = self.client.post(self.url.clone()).headers(self.headers.clone());
        let request = request.header(VERSION_HEADER, self.version.name()).header(ACCEPT, accept).json(&body);
        let response = request.send().await.map_err(|error| ClientError::request(error, self.limits.read_timeout))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => {
                let body = self.read(response).await?;
                // Some servers send an error of JSON-RPC with its own status.
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

/// Returns the update in a response of JSON-RPC.
fn decode_update(body: &[u8], version: Version) -> Result<ReceivedMessage<Update>, ClientError> {
    let message = version.decode_update(result_of(body)?).map_err(ClientError::Response)?;
    Ok(ReceivedMessage { message, bytes: body.len() })
}

/// Decodes the events of a response. An error ends the stream.
fn events(response: Response, limits: &ClientLimits, version: Version) -> Updates {
    let (max_message, read_timeout) = (limits.max_message, limits.read_timeout);
    let bytes =
        response.bytes_stream().map(move |chunk| chunk.map_err(|error| ClientError::request(error, read_timeout)));
    let updates = sse_data(bytes, max_message).map(move |data| match data {
        Ok(data) => decode_update(data.as_bytes(), version),
        Err(SseError::Body(error)) => Err(error),
        Err(SseError::TooLarge(limit)) => {
            Err(ClientError::TooLarge { what: "item of a stream", limit, key: MAX_MESSAGE })
        }
        Err(SseError::Invalid(reason)) => Err(ClientError::Response(reason)),
    });
    updates.boxed()
}
