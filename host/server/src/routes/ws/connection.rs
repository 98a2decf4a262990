//! One connection of `/ws`. The messages of its runs are interleaved, and produced no faster than the client reads.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::ws::{CloseFrame, Utf8Bytes, close_code};
use axum::http::StatusCode;
use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use hatchery_core::{RunError, SessionKey, StreamingMode, TraceParent};
use hatchery_engine::RunUpdate;
use tokio::time::{Instant, Interval, sleep_until};
use tokio_util::sync::CancellationToken;

use super::message::{SocketMessage, SocketRequest, answer, confirmation};
use super::streams::{self, RequestResources};
use crate::auth::{Credentials, Principal, RequestPermit};
use crate::body::{BodyMemory, reserve_message};
use crate::error::ApiError;
use crate::routes::run::{self, RunBody};
use crate::routes::runs;
use crate::state::AppState;
use crate::websocket::{Socket, SocketEnd, close_frame, ping_ticks};

/// Maximum number of concurrent runs of a connection.
const MAX_RUNS: usize = 64;

/// Maximum size of the id of a run on its connection, in bytes.
const MAX_ID_BYTES: usize = 256;

pub(super) struct Connection {
    state: AppState,
    socket: Socket,
    /// `None` if the server has no authentication.
    credentials: Option<Credentials>,
    trace_parent: Option<TraceParent>,
    runs: HashMap<Arc<str>, ActiveRun>,
    messages: SelectAll<BoxStream<'static, SocketMessage>>,
    idle_since: Instant,
    is_stopping: bool,
}

/// A run whose end has not been sent.
struct ActiveRun {
    session: SessionKey,
    /// `None` for an answer that is queued behind another turn of its session.
    run_id: Option<String>,
    /// Cancels the run if it was started by this connection.
    cancel: CancellationToken,
    /// Ends the stream of a run that is only followed.
    leave: Option<CancellationToken>,
    /// True while it is being cancelled.
    is_cancelling: Arc<AtomicBool>,
}

impl ActiveRun {
    fn new(
        session: SessionKey,
        run_id: Option<String>,
        cancel: CancellationToken,
        leave: Option<CancellationToken>,
    ) -> Self {
        Self { session, run_id, cancel, leave, is_cancelling: Arc::default() }
    }
}

/// The effect of a message.
enum MessageAction {
    /// Boxed, because it is the largest.
    Run(Box<RunBody>),
    Follow {
        session: SessionKey,
        run_id: String,
        after: u64,
    },
}

/// The next event of a connection.
enum ConnectionEvent {
    Received(Result<Option<Utf8Bytes>, SocketEnd>),
    Emitted(SocketMessage),
    Ping,
    Stop,
    Idle,
}

/// The reason for the end of a connection.
#[derive(Debug)]
enum ConnectionEnd {
    Socket(SocketEnd),
    /// A frame is not a valid message.
    Malformed(String),
    /// There is no memory for a message.
    Refused(ApiError),
    /// The connection was idle for this many seconds.
    Idle(f64),
    /// The server stops.
    Stopped,
}

impl From<SocketEnd> for ConnectionEnd {
    fn from(end: SocketEnd) -> Self {
        Self::Socket(end)
    }
}

impl ConnectionEnd {
    /// Returns the close frame; `None` if the client is gone.
    fn frame(&self) -> Option<CloseFrame> {
        let (code, reason) = match self {
            Self::Socket(SocketEnd::Disconnected) => return None,
            Self::Socket(SocketEnd::NotText) => (close_code::UNSUPPORTED, "send text frames with JSON".to_owned()),
            Self::Socket(SocketEnd::TooLarge(limit)) => {
                (close_code::SIZE, format!("a message has at most {limit} bytes"))
            }
            Self::Malformed(problem) => (close_code::POLICY, problem.clone()),
            Self::Refused(error) if error.status == StatusCode::SERVICE_UNAVAILABLE => {
                (close_code::AGAIN, error.detail.clone())
            }
            Self::Refused(error) => (close_code::SIZE, error.detail.clone()),
            Self::Idle(seconds) => (close_code::AWAY, format!("nothing was sent for {seconds} s")),
            Self::Stopped => (close_code::AWAY, "the server stops; connect again".to_owned()),
        };
        Some(close_frame(code, &reason))
    }
}

impl Connection {
    pub(super) fn new(
        state: AppState,
        socket: Socket,
        credentials: Option<Credentials>,
        trace_parent: Option<TraceParent>,
    ) -> Self {
        let (runs, messages) = (HashMap::new(), SelectAll::new());
        let (idle_since, is_stopping) = (Instant::now(), false);
        Self { state, socket, credentials, trace_parent, runs, messages, idle_since, is_stopping }
    }

    /// Serves the connection until it ends. Once `stop` is cancelled, no further run is started.
    pub(super) async fn serve(mut self, stop: &CancellationToken) {
        let end = self.exchange(stop).await;
        tracing::debug!(?end, "a connection of many runs has ended");
        // The runs go on without a client, or are cancelled if that was asked for.
        let Self { socket, messages, runs, .. } = self;
        drop((messages, runs));
        if let Some(frame) = end.frame() {
            socket.close(frame).await;
        }
    }

    async fn exchange(&mut self, stop: &CancellationToken) -> ConnectionEnd {
        let mut pings = ping_ticks(self.state.config().keep_alive);
        loop {
            let done = match self.next_event(&mut pings, stop).await {
                ConnectionEvent::Received(Ok(Some(text))) => self.handle(&text).await,
                ConnectionEvent::Received(Ok(None)) => Ok(()),
                ConnectionEvent::Received(Err(end)) => Err(end.into()),
                ConnectionEvent::Emitted(message) => self.emit(message).await,
                ConnectionEvent::Ping => self.socket.ping(true).await.map_err(ConnectionEnd::from),
                ConnectionEvent::Stop => {
                    self.is_stopping = true;
                    self.leave_followed();
                    Ok(())
                }
                ConnectionEvent::Idle => Err(ConnectionEnd::Idle(self.state.config().live_idle_timeout.as_secs_f64())),
            };
            match done {
                Err(end) => return end,
                Ok(()) if self.is_stopping && self.runs.is_empty() => return ConnectionEnd::Stopped,
                Ok(()) => {}
            }
        }
    }

    async fn next_event(&mut self, pings: &mut Interval, stop: &CancellationToken) -> ConnectionEvent {
        let idle_end = self.idle_since + self.state.config().live_idle_timeout;
        tokio::select! {
            frame = self.socket.receive() => ConnectionEvent::Received(frame),
            Some(message) = self.messages.next() => ConnectionEvent::Emitted(message),
            _ = pings.tick() => ConnectionEvent::Ping,
            () = stop.cancelled(), if !self.is_stopping => ConnectionEvent::Stop,
            () = sleep_until(idle_end), if self.runs.is_empty() => ConnectionEvent::Idle,
        }
    }

    /// Ends the streams of followed runs. Clients can follow them on another connection.
    fn leave_followed(&mut self) {
        self.runs.retain(|_, run| run.leave.as_ref().inspect(|leave| leave.cancel()).is_none());
    }

    async fn emit(&mut self, message: SocketMessage) -> Result<(), ConnectionEnd> {
        if let SocketMessage::End { id, .. } = &message {
            self.runs.remove(id);
        }
        self.send(&message).await
    }

    async fn send(&mut self, message: &SocketMessage) -> Result<(), ConnectionEnd> {
        self.idle_since = Instant::now();
        Ok(self.socket.send(message.to_json()).await?)
    }

    /// Handles a message.
    ///
    /// # Errors
    /// If it is not a request, or cannot be handled. For an invalid request the client gets a message, and the
    /// connection stays open.
    async fn handle(&mut self, text: &str) -> Result<(), ConnectionEnd> {
        self.idle_since = Instant::now();
        let memory = reserve_message(self.state.body_budget(), text.as_bytes()).map_err(ConnectionEnd::Refused)?;
        let request = SocketRequest::parse(text).map_err(ConnectionEnd::Malformed)?;
        let (id, action) = match request {
            SocketRequest::Ping { id } => return self.send(&SocketMessage::Pong { id }).await,
            SocketRequest::Cancel { id } => {
                let id = Arc::from(id);
                return match self.cancel(&id).await {
                    Ok(()) => Ok(()),
                    Err(error) => self.send(&SocketMessage::refusal(Some(id), error)).await,
                };
            }
            SocketRequest::Start { id, run } => (id, Ok(MessageAction::Run(Box::new(run)))),
            SocketRequest::Answer { id, session, call_id, name, response, streaming } => {
                (id, answer(session, call_id, name, response, streaming).map(Box::new).map(MessageAction::Run))
            }
            SocketRequest::Confirm { id, session, call_id, confirmed, payload, streaming } => (
                id,
                confirmation(session, call_id, confirmed, payload, streaming).map(Box::new).map(MessageAction::Run),
            ),
            SocketRequest::Follow { id, session, run_id, after } => {
                (id, Ok(MessageAction::Follow { session: session.key(), run_id, after: after.unwrap_or_default() }))
            }
        };
        let id = Arc::from(id);
        let begun = match action {
            Ok(action) => self.begin(&id, action, memory).await,
            Err(error) => Err(error),
        };
        match begun {
            Ok(()) => Ok(()),
            Err(error) => self.send(&SocketMessage::refusal(Some(id), error)).await,
        }
    }

    /// Starts or follows a run. Its messages report the start.
    async fn begin(&mut self, id: &Arc<str>, action: MessageAction, memory: BodyMemory) -> Result<(), ApiError> {
        self.check(id)?;
        let principal = self.state.admit_message(self.credentials.as_ref()).await?;
        let permit = self.state.auth().map(|auth| auth.acquire(&principal)).transpose()?.flatten();
        match action {
            // Nothing of the message is used while a run is followed, so its memory is released.
            MessageAction::Follow { session, run_id, after } => {
                principal.check_app(&session.app)?;
                principal.check_user(&session.user)?;
                let updates = runs::updates(&self.state, &session, &run_id, after).await?;
                self.follow(id, session, run_id, updates, permit);
                Ok(())
            }
            MessageAction::Run(body) if body.background == Some(true) => {
                let run = run::begin_in_background(&self.state, &principal, *body, self.trace_parent).await?;
                let updates = runs::updates(&self.state, &run.session, &run.id, 0).await?;
                self.follow(id, run.session, run.id, updates, permit);
                Ok(())
            }
            MessageAction::Run(body) => {
                let held = RequestResources { _memory: memory, _permit: permit };
                self.start(id, &principal, *body, held).await
            }
        }
    }

    async fn start(
        &mut self,
        id: &Arc<str>,
        principal: &Principal,
        body: RunBody,
        held: RequestResources,
    ) -> Result<(), ApiError> {
        let session = body.session();
        let mode = if body.streaming == Some(true) { StreamingMode::On } else { StreamingMode::Off };
        let cancel = CancellationToken::new();
        // ADK's web client, for which there is another default, uses no such connections.
        let body = body.with_default_cancel(self.state.config().cancel_on_disconnect == Some(true));
        let run = run::start(&self.state, principal, body, mode, self.trace_parent, &cancel).await?;
        let run_id = run.run.id().map(str::to_owned);
        self.runs.insert(id.clone(), ActiveRun::new(session.clone(), run_id, cancel, None));
        self.messages.push(streams::stream_run(id.clone(), self.state.clone(), session, run, held).boxed());
        Ok(())
    }

    /// Follows a run.
    fn follow(
        &mut self,
        id: &Arc<str>,
        session: SessionKey,
        run_id: String,
        updates: BoxStream<'static, Result<RunUpdate, RunError>>,
        permit: Option<RequestPermit>,
    ) {
        let leave = CancellationToken::new();
        let left = leave.clone().cancelled_owned();
        let messages = streams::follow_run(id.clone(), run_id.clone(), updates, permit).take_until(left);
        let active = ActiveRun::new(session, Some(run_id), CancellationToken::new(), Some(leave));
        self.runs.insert(id.clone(), active);
        self.messages.push(messages.boxed());
    }

    async fn cancel(&mut self, id: &Arc<str>) -> Result<(), ApiError> {
        self.state.admit_message(self.credentials.as_ref()).await?;
        let Some(run) = self.runs.get(id) else {
            let detail = format!("no run of this connection has the id `{}`; it may have ended", id.escape_debug());
            return Err(ApiError::new(StatusCode::NOT_FOUND, "ID_NOT_FOUND", detail));
        };
        if run.is_cancelling.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        match &run.run_id {
            Some(run_id) if self.state.services().sessions.runs().is_some() => {
                let (session, run_id, is_cancelling) = (run.session.clone(), run_id.clone(), run.is_cancelling.clone());
                let messages = streams::cancel_run(id.clone(), self.state.clone(), session, run_id, is_cancelling);
                self.messages.push(messages.boxed());
            }
            _ => run.cancel.cancel(),
        }
        Ok(())
    }

    /// Checks that another run may be started with this id.
    fn check(&self, id: &Arc<str>) -> Result<(), ApiError> {
        if id.is_empty() || id.len() > MAX_ID_BYTES {
            return Err(ApiError::bad_input(format!("`id` has 1 to {MAX_ID_BYTES} bytes")));
        }
        if self.runs.contains_key(id) {
            let detail =
                format!("another run of this connection has the id `{}`; choose another one", id.escape_debug());
            return Err(ApiError::new(StatusCode::CONFLICT, "ID_IN_USE", detail));
        }
        if self.is_stopping {
            return Err(ApiError::busy("the server stops; connect again"));
        }
        if self.runs.len() >= MAX_RUNS {
            let detail = format!("a connection has at most {MAX_RUNS} runs at a time; wait until one has ended");
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_RUNS", detail));
        }
        Ok(())
    }
}
