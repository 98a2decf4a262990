//! Clients that take their event streams much more slowly than agents produce them.

use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use hyper::Uri;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use super::SessionName;
use super::client::Client;
use super::scenario::{LONG, Scenario, Sessions};

/// Bytes that a reader receives at a time.
const CHUNK: usize = 1 << 10;

/// The time between two chunks.
const PAUSE: Duration = Duration::from_millis(250);

/// The receive buffer of a reader, which would take a part of the stream otherwise.
const RECEIVE_BUFFER: u32 = 4 << 10;

/// Open event streams, each with its reader. They close when this is dropped.
pub(super) struct SlowReaders(Vec<JoinHandle<anyhow::Result<()>>>);

impl SlowReaders {
    /// Starts a run with a long answer for each reader.
    ///
    /// # Errors
    /// If the host does not accept one.
    pub(super) async fn open(url: &str, count: usize) -> anyhow::Result<Self> {
        let scenario = Scenario::new("", LONG, Sessions::Memory);
        let mut readers = Self(Vec::with_capacity(count));
        if count > 0 {
            let mut client = Client::connect(url).await?;
            for number in 0..count {
                let session = SessionName { user: "slow-reader".into(), id: format!("slow-{number}") };
                client.create_session(&scenario, &session).await?.map_err(|answer| anyhow!("{answer}"))?;
                let stream = start_run(url, &session).await?;
                readers.0.push(tokio::spawn(read(stream)));
            }
        }
        Ok(readers)
    }

    /// Checks that every reader is still reading.
    ///
    /// # Errors
    /// If the host has closed a stream, or a reader has got everything.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let ended = self.0.iter().filter(|reader| reader.is_finished()).count();
        ensure!(ended == 0, "{ended} of {} slow readers were cut off, or were not slow", self.0.len());
        Ok(())
    }
}

impl Drop for SlowReaders {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Sends the request of a run. Returns the connection, on which the stream arrives.
async fn start_run(url: &str, session: &SessionName) -> anyhow::Result<TcpStream> {
    let url: Uri = url.parse().with_context(|| url.to_owned())?;
    let host = url.authority().context("a URL without a host")?.as_str();
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    let mut stream = socket.connect(host.parse()?).await?;
    let body = json!({
        "appName": LONG.app,
        "userId": session.user,
        "sessionId": session.id,
        "newMessage": {"role": "user", "parts": [{"text": LONG.text}]},
        "streaming": true,
    })
    .to_string();
    let head = format!(
        "POST /run_sse HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    Ok(stream)
}

/// Receives one chunk after the other until the stream ends.
async fn read(mut stream: TcpStream) -> anyhow::Result<()> {
    let mut pauses = tokio::time::interval(PAUSE);
    let mut chunk = [0; CHUNK];
    while stream.read(&mut chunk).await? > 0 {
        pauses.tick().await;
    }
    Ok(())
}
