//! Client of live runs over WebSocket.

use anyhow::{bail, ensure};
use serde_json::{Value, json};

use crate::event::{self, text_at};
use crate::host::{Host, USER};
use crate::socket::{Frame, Socket};

/// An open connection.
pub struct Live(Socket);

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
        Ok(Self(Socket::open(host, &format!("/run_live?{query}"), None).await?))
    }

    /// Sends a frame with JSON.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn send(&mut self, request: &Value) -> anyhow::Result<()> {
        self.0.send(request).await
    }

    /// Sends a text as one frame.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn send_text(&mut self, text: &str) -> anyhow::Result<()> {
        self.0.send_text(text).await
    }

    /// Sends bytes as one frame.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn send_bytes(&mut self, bytes: Vec<u8>) -> anyhow::Result<()> {
        self.0.send_bytes(bytes).await
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
        let frame = self.0.next().await?;
        if let Frame::Json(json) = &frame
            && json.get("error").is_none()
        {
            event::check(json)?;
        }
        Ok(frame)
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
    pub async fn close(self) -> anyhow::Result<()> {
        self.0.close().await
    }
}
