//! One keep-alive connection of a load test.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

use super::{Route, Scenario};
use crate::host::{USER, session_path};

pub(super) struct Client {
    host: String,
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { host: address.to_string(), sender })
    }

    /// Creates a session and runs a turn. Returns the times to the first event and to the end of the run, or the
    /// unexpected answer.
    ///
    /// # Errors
    /// If the connection ends.
    pub(super) async fn pair(
        &mut self,
        scenario: &Scenario,
        session: &str,
    ) -> anyhow::Result<Result<(Duration, Duration), String>> {
        let created = self.post(&session_path(scenario.app, session), Bytes::from_static(b"{}")).await?;
        let is_created = created.status().is_success();
        let body = created.into_body().collect().await?.to_bytes();
        if !is_created {
            return Ok(Err(String::from_utf8_lossy(&body).into_owned()));
        }
        let streaming = scenario.route == Route::Stream;
        let request = json!({
            "appName": scenario.app,
            "userId": USER,
            "sessionId": session,
            "newMessage": {"role": "user", "parts": [{"text": scenario.text}]},
            "streaming": streaming,
        });
        let path = if streaming { "/run_sse" } else { "/run" };
        let start = Instant::now();
        let response = self.post(path, request.to_string().into()).await?;
        let is_ok = response.status().is_success();
        let (first, body) = read(response).await?;
        let ended = start.elapsed();
        let is_expected = is_ok && contains(&body, scenario.expected.as_bytes());
        let first = if streaming { first.duration_since(start) } else { ended };
        Ok(if is_expected { Ok((first, ended)) } else { Err(String::from_utf8_lossy(&body).into_owned()) })
    }

    async fn post(&mut self, path: &str, body: Bytes) -> anyhow::Result<Response<Incoming>> {
        let request = Request::post(path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        self.sender.ready().await?;
        self.sender.send_request(request).await.with_context(|| path.to_owned())
    }
}

/// Reads a body. Returns the time of its first bytes.
async fn read(response: Response<Incoming>) -> anyhow::Result<(Instant, Vec<u8>)> {
    let (mut first, mut read, mut body) = (None, Vec::new(), response.into_body());
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            first.get_or_insert_with(Instant::now);
            read.extend_from_slice(&data);
        }
    }
    ensure!(!read.is_empty(), "an empty answer");
    Ok((first.unwrap_or_else(Instant::now), read))
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len()).any(|window| window == text)
}
