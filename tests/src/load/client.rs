//! One keep-alive connection of a load test.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

use super::SessionName;
use super::scenario::{Route, Scenario};

/// Durations since the request of a run.
pub(super) struct Times {
    pub(super) first_event: Duration,
    pub(super) end: Duration,
}

pub(super) struct Client {
    host: String,
    /// The prefix of the paths of all routes.
    prefix: String,
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    /// Connects to a URL without TLS.
    pub(super) async fn connect(url: &str) -> anyhow::Result<Self> {
        let url: Uri = url.trim_end_matches('/').parse().with_context(|| url.to_owned())?;
        let host = url.authority().context("a URL without a host")?.to_string();
        let stream = TcpStream::connect(&host).await.with_context(|| host.clone())?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { host, prefix: url.path().trim_end_matches('/').to_owned(), sender })
    }

    /// Creates a session and runs a turn in it.
    ///
    /// # Errors
    /// If the connection ends.
    pub(super) async fn pair(
        &mut self,
        scenario: &Scenario,
        session: &SessionName,
    ) -> anyhow::Result<Result<Times, String>> {
        match self.create_session(scenario, session).await? {
            Ok(()) => self.run(scenario, session).await,
            Err(answer) => Ok(Err(answer)),
        }
    }

    /// Creates a session. Returns the answer if it is a failure.
    ///
    /// # Errors
    /// If the connection ends.
    pub(super) async fn create_session(
        &mut self,
        scenario: &Scenario,
        session: &SessionName,
    ) -> anyhow::Result<Result<(), String>> {
        let path = format!("/apps/{}/users/{}/sessions/{}", scenario.turn.app, session.user, session.id);
        let response = self.post(&path, Bytes::from_static(b"{}")).await?;
        let is_created = response.status().is_success();
        let body = response.into_body().collect().await?.to_bytes();
        Ok(if is_created { Ok(()) } else { Err(String::from_utf8_lossy(&body).into_owned()) })
    }

    /// Runs a turn. Returns its times, or the unexpected answer.
    ///
    /// # Errors
    /// If the connection ends.
    pub(super) async fn run(
        &mut self,
        scenario: &Scenario,
        session: &SessionName,
    ) -> anyhow::Result<Result<Times, String>> {
        let answer = self.answer(scenario, session).await?;
        Ok(answer.map(|(times, _)| times))
    }

    /// Runs a turn. Returns its times with the body of the answer, or the unexpected answer.
    ///
    /// # Errors
    /// If the connection ends.
    pub(super) async fn answer(
        &mut self,
        scenario: &Scenario,
        session: &SessionName,
    ) -> anyhow::Result<Result<(Times, Vec<u8>), String>> {
        let Scenario { turn, route, .. } = scenario;
        let (path, streaming) = match route {
            Route::Run => ("/run", false),
            Route::Stream => ("/run_sse", true),
        };
        let request = json!({
            "appName": turn.app,
            "userId": session.user,
            "sessionId": session.id,
            "newMessage": {"role": "user", "parts": [{"text": turn.text}]},
            "streaming": streaming,
        });
        let start = Instant::now();
        let response = self.post(path, request.to_string().into()).await?;
        let is_ok = response.status().is_success();
        let (first, body) = read(response).await?;
        let end = start.elapsed();
        let first_event = if streaming { first.duration_since(start) } else { end };
        let is_expected = is_ok && contains(&body, turn.expected.as_bytes());
        if is_expected {
            Ok(Ok((Times { first_event, end }, body)))
        } else {
            Ok(Err(String::from_utf8_lossy(&body).into_owned()))
        }
    }

    async fn post(&mut self, path: &str, body: Bytes) -> anyhow::Result<Response<Incoming>> {
        let request = Request::post(format!("{}{path}", self.prefix))
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
