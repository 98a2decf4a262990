//! The HTTP+SSE transport of revision 2024-11-05: one event stream for all messages of the server, and a POST for each
//! message of the client.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use hatchery_egress::EventEnds;
use reqwest::header::{ACCEPT, HeaderMap};
use reqwest::{Client, Url};
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use sse_stream::{Sse, SseByteStream};

use super::McpError;
use super::connection::{ConnectionState, describe_causes};

type EventStream = Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>;

/// A connection by HTTP+SSE.
pub(super) struct SseTransport {
    client: Client,
    headers: HeaderMap,
    /// URL that messages are posted to.
    endpoint: Url,
    events: EventStream,
}

impl SseTransport {
    /// Opens the event stream and waits for the endpoint of messages.
    ///
    /// # Errors
    /// If the server cannot be reached, or names no endpoint of its own origin.
    pub(super) async fn open(
        client: Client,
        headers: HeaderMap,
        url: &str,
        max_message: usize,
        state: &Arc<ConnectionState>,
    ) -> Result<Self, McpError> {
        let failed = |error: reqwest::Error| McpError::Handshake(describe_causes(&error));
        let invalid = |reason: &str| McpError::Handshake(reason.to_owned());
        let base = Url::parse(url).map_err(|error| McpError::Handshake(error.to_string()))?;
        let request = client.get(base.clone()).headers(headers.clone()).header(ACCEPT, "text/event-stream");
        let response = request.send().await.and_then(reqwest::Response::error_for_status).map_err(failed)?;
        let mut events = bounded_events(response.bytes_stream(), max_message, state.clone());
        let endpoint = loop {
            match events.next().await {
                Some(Ok(Sse { event: Some(event), data: Some(data), .. })) if event == "endpoint" => break data,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(invalid("the event stream ended before the event `endpoint`")),
            }
        };
        let endpoint = base.join(endpoint.trim()).map_err(|error| McpError::Handshake(error.to_string()))?;
        if endpoint.origin() != base.origin() {
            return Err(invalid("the endpoint for messages is on another host than the event stream"));
        }
        Ok(Self { client, headers, endpoint, events })
    }
}

/// Decodes events. An event that is too large ends the connection.
fn bounded_events(
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    max_message: usize,
    state: Arc<ConnectionState>,
) -> EventStream {
    let received = Arc::new(AtomicUsize::new(0));
    let (counter, mut ends) = (received.clone(), EventEnds::default());
    let bounded = bytes.map(move |chunk| {
        let chunk = chunk.map_err(std::io::Error::other)?;
        if counter.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len() > max_message {
            state.fail(McpError::MessageTooLarge(max_message));
            return Err(std::io::Error::other("a message is too large"));
        }
        if ends.are_after(&chunk) {
            counter.store(0, Ordering::Relaxed);
        }
        Ok(chunk)
    });
    Box::pin(SseByteStream::new(Box::pin(bounded)).inspect(move |_| received.store(0, Ordering::Relaxed)))
}

impl Transport<RoleClient> for SseTransport {
    type Error = reqwest::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let request = self.client.post(self.endpoint.clone()).headers(self.headers.clone()).json(&message);
        async move { request.send().await.and_then(reqwest::Response::error_for_status).map(drop) }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let data = self.events.next().await?.ok()?.data.unwrap_or_default();
            match serde_json::from_str(&data) {
                Ok(message) => return Some(message),
                Err(error) => tracing::debug!("an event is not an MCP message: {error}"),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.events = Box::pin(futures::stream::empty());
        Ok(())
    }
}
