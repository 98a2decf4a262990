//! Client of server-sent events, with the restrictions of ADK's web client: each message is one `data:` line.

use anyhow::{Context, ensure};
use reqwest::Response;
use serde_json::Value;

use crate::event;

/// An open stream.
pub struct Stream {
    response: Response,
    buffer: Vec<u8>,
}

impl Stream {
    /// Opens the stream of an answer.
    ///
    /// # Errors
    /// If the answer is not a stream.
    pub async fn open(response: Response) -> anyhow::Result<Self> {
        let status = response.status();
        let content_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        let is_stream = content_type.is_some_and(|value| value.starts_with("text/event-stream"));
        if !status.is_success() || !is_stream {
            anyhow::bail!("not a stream: {status} {}", response.text().await?);
        }
        Ok(Self { response, buffer: Vec::new() })
    }

    /// Returns the next message, or `None` at the end. Checks its format unless it is `{"error": …}`.
    ///
    /// # Errors
    /// If the connection breaks, or a message is not one `data:` line of JSON.
    pub async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(message) = self.next_buffered()? {
                return Ok(Some(message));
            }
            match self.response.chunk().await.context("the stream broke")? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => {
                    ensure!(self.buffer.is_empty(), "the stream ended in {:?}", String::from_utf8_lossy(&self.buffer));
                    return Ok(None);
                }
            }
        }
    }

    /// Returns all messages.
    ///
    /// # Errors
    /// As [`Stream::next`].
    pub async fn collect(mut self) -> anyhow::Result<Vec<Value>> {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await? {
            messages.push(message);
        }
        Ok(messages)
    }

    /// Returns the next message in the buffer. Skips comments (`: keep-alive`).
    fn next_buffered(&mut self) -> anyhow::Result<Option<Value>> {
        while let Some(end) = self.buffer.windows(2).position(|window| window == b"\n\n") {
            let frame: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let frame = String::from_utf8(frame)?;
            if frame.starts_with(':') {
                continue;
            }
            let data = frame.trim_end().strip_prefix("data: ").with_context(|| format!("no data: {frame:?}"))?;
            ensure!(!data.contains('\n'), "more than one line: {frame:?}");
            let message: Value = serde_json::from_str(data).with_context(|| format!("not JSON: {data}"))?;
            if message.get("error").is_none() {
                event::check(&message)?;
            }
            return Ok(Some(message));
        }
        Ok(None)
    }
}
