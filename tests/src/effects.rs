//! A server that tools of the tests call: it counts the requests, so that effects are counted outside of what is
//! tested.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A running server. Answers each request at once, but never the first one for a path that contains `hang`.
pub struct Effects {
    /// The port of `localhost`.
    pub port: u16,
    requests: watch::Receiver<usize>,
    counts: Counts,
}

type Counts = Arc<Mutex<BTreeMap<String, usize>>>;

impl Effects {
    /// Starts the server.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let counts = Counts::default();
        let (sender, requests) = watch::channel(0);
        let (sender, counted) = (Arc::new(sender), counts.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client may go away at any time.
                tokio::spawn(answer(stream, counted.clone(), sender.clone()));
            }
        });
        Ok(Self { port, requests, counts })
    }

    /// Waits until at least `count` requests have arrived.
    ///
    /// # Errors
    /// If fewer arrive in time, or the server has ended.
    pub async fn wait_for_requests(&mut self, count: usize) -> anyhow::Result<()> {
        let waiting = self.requests.wait_for(|arrived| *arrived >= count);
        tokio::time::timeout(crate::host::TIMEOUT, waiting).await.context("too few requests")??;
        Ok(())
    }

    /// The paths that were requested, with how often.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn answer(mut stream: TcpStream, counts: Counts, requests: Arc<watch::Sender<usize>>) -> anyhow::Result<()> {
    let (path, _) = read_head(&mut stream).await?;
    let count = {
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(path.clone()).or_default();
        *count += 1;
        *count
    };
    requests.send_modify(|requests| *requests += 1);
    if path.contains("hang") && count == 1 {
        std::future::pending::<()>().await;
    }
    send_text(stream, &format!("{path} {count}")).await
}

/// Reads the head of a request without a body. Returns its path, and the value of `Idempotency-Key` if it has one.
pub(crate) async fn read_head(stream: &mut TcpStream) -> anyhow::Result<(String, Option<String>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let path = head.split(' ').nth(1).context("a request line")?.to_owned();
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("idempotency-key").then(|| value.trim().to_owned())
    };
    Ok((path, head.lines().find_map(header)))
}

/// Sends a text as the response, and closes the connection.
pub(crate) async fn send_text(mut stream: TcpStream, body: &str) -> anyhow::Result<()> {
    let length = body.len();
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(response.as_bytes()).await?;
    Ok(stream.shutdown().await?)
}
