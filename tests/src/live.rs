//! Client of live runs over WebSocket.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Message, protocol::CloseFrame};

use crate::event::{self, text_at};
use crate::host::{Host, TIMEOUT, USER};

/// An open connection.
pub struct Live(WebSocketStream<TcpStream>);

/// What the host sends.
#[derive(Debug)]
pub enum Frame {
    /// An event, or `{"error": …}`.
    Json(Value),
    /// The end, with its code and reason.
    Close(u16, String),
}

impl Live {
    /// Connects to a session of [`USER`].
    ///
    /// # Errors
    /// If the handshake fails.
    pub async fn connect(host: &Host, app: &str, session: &str) -> anyhow::Result<Self> {
        Self::open(host, &format!("app_name={app}&user_id={USER}&session_id={session}&modalities=AUDIO")).await
    }

    /// Connects with these parameters.
    ///
    /// # Errors
    /// If the handshake fails.
    pub async fn open(host: &Host, query: &str) -> anyhow::Result<Self> {
        let address = host.url.strip_prefix("http://").context("a URL with http")?;
        let stream = TcpStream::connect(address).await?;
        let connecting = tokio_tungstenite::client_async(format!("ws://{address}/run_live?{query}"), stream);
        Ok(Self(connecting.await.with_context(|| host.log())?.0))
    }

    /// Sends a frame with JSON.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn send(&mut self, request: &Value) -> anyhow::Result<()> {
        self.send_text(&request.to_string()).await
    }

    /// Sends a text as one frame.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn send_text(&mut self, text: &str) -> anyhow::Result<()> {
        self.send_frame(Message::text(text)).await
    }

    /// Sends bytes as one frame.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn send_bytes(&mut self, bytes: Vec<u8>) -> anyhow::Result<()> {
        self.send_frame(Message::binary(bytes)).await
    }

    async fn send_frame(&mut self, frame: Message) -> anyhow::Result<()> {
        tokio::time::timeout(TIMEOUT, self.0.send(frame)).await.context("the host does not read")??;
        Ok(())
    }

    /// Sends a message of the user.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.send(&json!({"content": {"role": "user", "parts": [{"text": text}]}})).await
    }

    /// Sends a message of the user, and returns the events of its turn.
    ///
    /// # Errors
    /// As [`Live::turn`].
    pub async fn ask(&mut self, text: &str) -> anyhow::Result<Vec<Value>> {
        self.say(text).await?;
        self.turn().await
    }

    /// Returns the next frame. Checks the format of events.
    ///
    /// # Errors
    /// If there is none, or it is neither JSON nor a close frame.
    pub async fn next(&mut self) -> anyhow::Result<Frame> {
        loop {
            let frame = tokio::time::timeout(TIMEOUT, self.0.next()).await.context("no frame")?;
            match frame.context("the connection ended without a close frame")?? {
                Message::Text(text) => {
                    let json: Value = serde_json::from_str(&text)?;
                    if json.get("error").is_none() {
                        event::check(&json)?;
                    }
                    return Ok(Frame::Json(json));
                }
                Message::Close(frame) => {
                    let CloseFrame { code, reason } = frame.context("a close frame without a code")?;
                    return Ok(Frame::Close(code.into(), reason.to_string()));
                }
                Message::Ping(_) | Message::Pong(_) => {}
                frame => bail!("not text: {frame:?}"),
            }
        }
    }

    /// Returns the events up to the end of the turn, without the event of that end.
    ///
    /// # Errors
    /// If the connection is closed before.
    pub async fn turn(&mut self) -> anyhow::Result<Vec<Value>> {
        let mut events = Vec::new();
        loop {
            match self.next().await? {
                Frame::Json(event) if event.get("turnComplete") == Some(&Value::Bool(true)) => {
                    ensure!(!text_at(&event, "/invocationId").is_empty(), "{event}");
                    return Ok(events);
                }
                Frame::Json(event) => events.push(event),
                Frame::Close(code, reason) => bail!("closed with {code} {reason}"),
            }
        }
    }

    /// Returns the code and the reason of the close frame, after at most a few events.
    ///
    /// # Errors
    /// If there is none.
    pub async fn closed(&mut self) -> anyhow::Result<(u16, String)> {
        loop {
            if let Frame::Close(code, reason) = self.next().await? {
                return Ok((code, reason));
            }
        }
    }

    /// Closes the connection, and waits until the host has closed it, too.
    ///
    /// # Errors
    /// If the host does not.
    pub async fn close(mut self) -> anyhow::Result<()> {
        self.0.close(None).await?;
        let end = async { while self.0.next().await.is_some_and(|frame| frame.is_ok()) {} };
        tokio::time::timeout(Duration::from_secs(10), end).await.context("the host does not close")
    }
}
