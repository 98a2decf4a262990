//! A WebSocket with text frames: their limit, pings, and the close frame.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Error;
use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite;

use crate::auth::RequestPermit;
use crate::connections::{ConnectionPermit, StreamWindow};
use crate::error::ApiError;

/// Time for the client's answer to the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of consecutive pings without any frame of the client after which the connection is closed.
const MAX_UNANSWERED_PINGS: u32 = 2;

/// A frame of up to this many times its limit is received, so that the client gets the reason why it is refused.
const RECEIVED_FRAMES: usize = 2;

/// Maximum size of the reason in a close frame.
const MAX_REASON_BYTES: usize = 123;

/// The permits of the request of a WebSocket, which are held until it is closed, and the window of its stream.
pub(crate) struct SocketResources {
    _connection: Option<Arc<ConnectionPermit>>,
    _request: Option<RequestPermit>,
    /// `None` over HTTP/1.1, where the connection has the write timeout.
    window: Option<Arc<StreamWindow>>,
}

impl<S: Sync> FromRequestParts<S> for SocketResources {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self {
            _connection: parts.extensions.get().cloned(),
            _request: parts.extensions.get().cloned(),
            window: parts.extensions.get().cloned(),
        })
    }
}

/// Accepts a WebSocket whose frames have at most `max_frame` bytes.
///
/// # Errors
/// The response to a request that does not open one.
pub(crate) fn accept(
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    max_frame: usize,
) -> Result<WebSocketUpgrade, Box<Response>> {
    let received = max_frame.saturating_mul(RECEIVED_FRAMES);
    match upgrade {
        Ok(upgrade) => Ok(upgrade.max_message_size(received).max_frame_size(received)),
        Err(rejection) => {
            let detail = format!("open a WebSocket: {}", rejection.body_text());
            let error = ApiError::new(StatusCode::UPGRADE_REQUIRED, "UPGRADE_REQUIRED", detail);
            let upgrade = [
                (header::UPGRADE, HeaderValue::from_static("websocket")),
                (header::CONNECTION, HeaderValue::from_static("upgrade")),
                (header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
            ];
            Err((upgrade, error).into_response().into())
        }
    }
}

/// Returns a close frame with as much of the reason as it can have.
pub(crate) fn close_frame(code: u16, reason: &str) -> CloseFrame {
    let reason = reason.get(..reason.floor_char_boundary(MAX_REASON_BYTES)).unwrap_or_default();
    CloseFrame { code, reason: reason.into() }
}

/// Returns the ticks of pings.
pub(crate) fn ping_ticks(interval: Duration) -> Interval {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    ticks
}

/// The reason why nothing more is received or sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketEnd {
    /// The client has closed the connection, or it broke.
    Disconnected,
    /// A frame is not text.
    NotText,
    /// A frame is larger than this many bytes.
    TooLarge(usize),
}

/// One connection.
pub(crate) struct Socket {
    sender: SplitSink<WebSocket, Message>,
    receiver: SplitStream<WebSocket>,
    max_frame: usize,
    unanswered_pings: u32,
    window: Option<Arc<StreamWindow>>,
}

impl Socket {
    pub(crate) fn new(socket: WebSocket, max_frame: usize, resources: &SocketResources) -> Self {
        let (sender, receiver) = socket.split();
        Self { sender, receiver, max_frame, unanswered_pings: 0, window: resources.window.clone() }
    }

    /// Returns the text of the next frame; `None` for a ping or its answer. Nothing is lost if this is dropped.
    ///
    /// # Errors
    /// If there is no further text.
    pub(crate) async fn receive(&mut self) -> Result<Option<Utf8Bytes>, SocketEnd> {
        let frame = self.receiver.next().await;
        self.unanswered_pings = 0;
        match frame {
            Some(Ok(Message::Text(text))) if text.len() > self.max_frame => Err(SocketEnd::TooLarge(self.max_frame)),
            Some(Ok(Message::Text(text))) => Ok(Some(text)),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(None),
            Some(Ok(Message::Binary(_))) => Err(SocketEnd::NotText),
            Some(Ok(Message::Close(_))) => {
                self.finish_closing().await;
                Err(SocketEnd::Disconnected)
            }
            None => Err(SocketEnd::Disconnected),
            Some(Err(error)) => Err(self.broken(error)),
        }
    }

    /// Sends the answer to a close frame, which the connection does when it receives more.
    async fn finish_closing(&mut self) {
        let answer = async { while self.receiver.next().await.is_some_and(|frame| frame.is_ok()) {} };
        // The client may be gone.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, answer).await;
    }

    /// Returns the end for a frame that cannot be received.
    fn broken(&self, error: Error) -> SocketEnd {
        let inner = error.into_inner();
        match inner.downcast_ref::<tungstenite::Error>() {
            Some(tungstenite::Error::Capacity(_)) => SocketEnd::TooLarge(self.max_frame),
            Some(tungstenite::Error::Utf8(_)) => SocketEnd::NotText,
            _ => {
                tracing::debug!(error = %inner, "a WebSocket broke");
                SocketEnd::Disconnected
            }
        }
    }

    /// Sends a text.
    ///
    /// # Errors
    /// If the connection is broken. One whose client does not read in time breaks.
    pub(crate) async fn send(&mut self, text: Utf8Bytes) -> Result<(), SocketEnd> {
        self.send_frame(Message::Text(text)).await
    }

    /// Pings the client. It is gone if it has answered none of the last pings. While nothing is received, it is only
    /// gone if it cannot be sent to.
    ///
    /// # Errors
    /// If it is gone.
    pub(crate) async fn ping(&mut self, is_receiving: bool) -> Result<(), SocketEnd> {
        if self.unanswered_pings >= MAX_UNANSWERED_PINGS {
            return Err(SocketEnd::Disconnected);
        }
        if is_receiving {
            self.unanswered_pings += 1;
        }
        self.send_frame(Message::Ping(Bytes::new())).await
    }

    async fn send_frame(&mut self, frame: Message) -> Result<(), SocketEnd> {
        if let Some(window) = &self.window {
            window.begin_message();
        }
        let sent = self.sender.send(frame).await;
        if let Some(window) = &self.window {
            window.end_message();
        }
        sent.map_err(|_| SocketEnd::Disconnected)
    }

    /// Closes the connection, and discards incoming messages until the client closes it, too.
    pub(crate) async fn close(mut self, frame: CloseFrame) {
        let closing = async {
            self.sender.send(Message::Close(Some(frame))).await?;
            while self.receiver.next().await.transpose()?.is_some() {}
            Ok::<_, Error>(())
        };
        // The client may be gone.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        let frame = close_frame(1011, &"ä".repeat(100));
        assert_eq!((frame.code, frame.reason.as_str()), (1011, "ä".repeat(61).as_str()));
    }
}
