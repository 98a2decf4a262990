//! Client of WebSockets.

use anyhow::{Context, bail};
use futures::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::{Message, protocol::CloseFrame};

use crate::host::{Host, TIMEOUT};

/// An open connection.
pub struct Socket<S = TcpStream>(WebSocketStream<S>);

/// A message of the host.
#[derive(Debug)]
pub enum Frame {
    /// A text with JSON.
    Json(Value),
    /// The end, with its code and reason.
    Close(u16, String),
}

impl Socket {
    /// Connects to a path, with an API key if there is one.
    ///
    /// # Errors
    /// If the handshake fails.
    pub async fn open(host: &Host, path: &str, key: Option<&str>) -> anyhow::Result<Self> {
        let place = host.url.strip_prefix("http://").context("a URL with http")?;
        let address = place.split('/').next().unwrap_or_default();
        let mut request = format!("ws://{place}{path}").into_client_request()?;
        if let Some(key) = key {
            request.headers_mut().insert("authorization", format!("Bearer {key}").parse()?);
        }
        let stream = TcpStream::connect(address).await?;
        Self::over(stream, request).await.with_context(|| host.log())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// Opens a connection over a stream.
    ///
    /// # Errors
    /// If the handshake fails.
    pub async fn over(stream: S, request: Request) -> anyhow::Result<Self> {
        let (socket, _) = tokio_tungstenite::client_async(request, stream).await?;
        Ok(Self(socket))
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

    /// Returns the next frame.
    ///
    /// # Errors
    /// If there is none, or it is neither JSON nor a close frame.
    pub async fn next(&mut self) -> anyhow::Result<Frame> {
        loop {
            let frame = tokio::time::timeout(TIMEOUT, self.0.next()).await.context("no frame")?;
            match frame.context("the connection ended without a close frame")?? {
                Message::Text(text) => return Ok(Frame::Json(serde_json::from_str(&text)?)),
                Message::Close(frame) => {
                    let CloseFrame { code, reason } = frame.context("a close frame without a code")?;
                    return Ok(Frame::Close(code.into(), reason.to_string()));
                }
                Message::Ping(_) | Message::Pong(_) => {}
                frame => bail!("not text: {frame:?}"),
            }
        }
    }

    /// Returns the next JSON.
    ///
    /// # Errors
    /// If the connection is closed.
    pub async fn json(&mut self) -> anyhow::Result<Value> {
        match self.next().await? {
            Frame::Json(json) => Ok(json),
            Frame::Close(code, reason) => bail!("closed with {code} {reason}"),
        }
    }

    /// Returns the code and the reason of the close frame, after at most a few frames.
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
        tokio::time::timeout(TIMEOUT, end).await.context("the host does not close")
    }
}
