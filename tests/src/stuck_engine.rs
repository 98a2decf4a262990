//! A container engine that never removes a container: all other requests of the API of Docker have an answer at once.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// An engine on a Unix socket until it is dropped. All code prints the same.
pub struct StuckEngine {
    folder: TempDir,
    /// Has a permit for each request to remove a container.
    removals: Arc<Semaphore>,
}

impl StuckEngine {
    /// Starts an engine in which code prints `output`.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn start(output: &'static str) -> Result<Self> {
        let engine = Self { folder: tempfile::tempdir()?, removals: Arc::new(Semaphore::new(0)) };
        let (listener, removals) = (UnixListener::bind(engine.socket())?, engine.removals.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let removals = removals.clone();
                // A client that disconnects is not a failure.
                tokio::spawn(async move { answer(stream, output, &removals).await });
            }
        });
        Ok(engine)
    }

    /// Returns the path of its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("engine.sock")
    }

    /// Waits for a request to remove a container.
    pub async fn wait_for_removal(&self) {
        // It is never closed.
        if let Ok(permit) = self.removals.acquire().await {
            permit.forget();
        }
    }
}

/// Answers one request and closes the connection.
async fn answer(stream: UnixStream, output: &str, removals: &Semaphore) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let (line, mut length) = (read_line(&mut stream).await?, 0);
    loop {
        let header = read_line(&mut stream).await?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    stream.read_exact(&mut vec![0; length]).await?;
    let mut words = line.split(' ');
    let (method, path) = words.next().zip(words.next()).with_context(|| format!("{line:?} is no request"))?;
    if method == "DELETE" {
        removals.add_permits(1);
        return std::future::pending().await;
    }
    if path.contains("/exec/") {
        return print(stream, output).await;
    }
    let body = if path.starts_with("/v1.41/containers/json") { json!([]) } else { json!({"Id": "1", "Config": null}) };
    let body = body.to_string();
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    Ok(())
}

async fn read_line(stream: &mut BufReader<UnixStream>) -> Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}

/// Takes the input of code, and answers with a frame of standard output.
async fn print(mut stream: BufReader<UnixStream>, output: &str) -> Result<()> {
    stream.write_all(b"HTTP/1.1 101 UPGRADED\r\nconnection: Upgrade\r\nupgrade: tcp\r\n\r\n").await?;
    read_line(&mut stream).await?;
    let text = json!({"stdout": output, "stderr": "", "files": []}).to_string();
    let mut frame = vec![1, 0, 0, 0];
    frame.extend(u32::try_from(text.len())?.to_be_bytes());
    frame.extend(text.as_bytes());
    Ok(stream.write_all(&frame).await?)
}
