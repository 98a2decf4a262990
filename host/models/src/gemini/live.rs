//! Live connections to Gemini over WebSocket. A connection that the server ends is continued with the newest handle, which
//! the agent does not notice.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{SinkExt, StreamExt};
use hatchery_core::{
    HttpOptions, JsonMap, LiveConnection, LiveRequest, LiveResponse, LlmRequest, ModelError, ModelErrorKind,
};
use reqwest::Url;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::wire::live::{ServerFrame, history_frame, request_frame, setup_frame};
use crate::failure::Origin;
use crate::http::{Endpoint, WebSocket};

/// Maximum time from the handshake to the end of the setup.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for closing a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most requests that are not sent yet, and most responses that are not read yet.
const MAX_PENDING: usize = 32;

/// A connection that a task of its own serves.
pub(super) struct GeminiConnection {
    /// `None` once it is closed.
    requests: Mutex<Option<mpsc::Sender<LiveRequest>>>,
    responses: Mutex<mpsc::Receiver<Result<LiveResponse, ModelError>>>,
    task: Mutex<JoinHandle<()>>,
    origin: Arc<Origin>,
}

/// Where and how a connection is opened.
pub(super) struct Dialer {
    pub(super) endpoint: Endpoint,
    pub(super) url: Url,
    pub(super) setup: JsonMap,
    pub(super) options: HttpOptions,
}

impl GeminiConnection {
    /// Connects, and sends the conversation so far.
    pub(super) async fn open(dialer: Dialer, request: &LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        let origin = dialer.endpoint.origin.clone();
        let history = history_frame(request).map_err(|reason| origin.error(ModelErrorKind::BadRequest, reason))?;
        let mut socket = dialer.dial(None).await?;
        if let Some(history) = history {
            socket.send(Message::text(history)).await.map_err(|error| broken(&origin, &error))?;
        }
        let (requests, incoming) = mpsc::channel(MAX_PENDING);
        let (outgoing, responses) = mpsc::channel(MAX_PENDING);
        let link = Link { dialer, socket, handle: None, is_leaving: false, is_in_turn: false, is_fresh: false };
        let task = tokio::spawn(link.serve(incoming, outgoing));
        let (requests, responses) = (Mutex::new(Some(requests)), Mutex::new(responses));
        Ok(Box::new(Self { requests, responses, task: Mutex::new(task), origin }))
    }
}

#[async_trait]
impl LiveConnection for GeminiConnection {
    async fn send(&self, request: LiveRequest) -> Result<(), ModelError> {
        // An error of the connection itself is the next response.
        request_frame(&request).map_err(|reason| self.origin.error(ModelErrorKind::BadRequest, reason))?;
        let requests = self.requests.lock().await.clone();
        if let Some(requests) = requests {
            let _ = requests.send(request).await;
        }
        Ok(())
    }

    async fn receive(&self) -> Option<Result<LiveResponse, ModelError>> {
        self.responses.lock().await.recv().await
    }

    async fn close(&self) {
        self.requests.lock().await.take();
        self.responses.lock().await.close();
        let mut task = self.task.lock().await;
        // A server that does not answer is left.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, &mut *task).await;
    }
}

impl Drop for GeminiConnection {
    fn drop(&mut self) {
        self.task.get_mut().abort();
    }
}

impl Dialer {
    /// Connects, and waits until the setup is complete. `handle` continues an earlier connection.
    async fn dial(&self, handle: Option<&str>) -> Result<WebSocket, ModelError> {
        let origin = &self.endpoint.origin;
        let dialing = async {
            let mut socket = self.endpoint.connect(&self.url, &self.options).await?;
            let setup = setup_frame(&self.setup, handle);
            socket.send(Message::text(setup)).await.map_err(|error| broken(origin, &error))?;
            loop {
                match next_frame(&mut socket, origin).await? {
                    Some(frame) if frame.setup_complete.is_some() => return Ok(socket),
                    Some(_) => {}
                    None => return Err(origin.error(ModelErrorKind::Network, "the connection was closed at its setup")),
                }
            }
        };
        let timed_out = |_| {
            let message = format!("{} did not set up the connection within {SETUP_TIMEOUT:?}", origin.provider());
            origin.error(ModelErrorKind::Timeout, message)
        };
        tokio::time::timeout(SETUP_TIMEOUT, dialing).await.map_err(timed_out)?
    }
}

/// The state of a connection in its task.
struct Link {
    dialer: Dialer,
    socket: WebSocket,
    /// Continues the connection.
    handle: Option<String>,
    /// True once the server has said that it will close the connection.
    is_leaving: bool,
    /// True while the model speaks.
    is_in_turn: bool,
    /// True if nothing was received since the connection was continued.
    is_fresh: bool,
}

/// What happens next.
#[allow(clippy::large_enum_variant, reason = "one exists at a time")]
enum Step {
    Request(Option<LiveRequest>),
    Frame(Result<Option<ServerFrame>, ModelError>),
    Delivered(bool),
}

impl Link {
    /// Passes requests and responses on until the agent closes the connection, or it cannot be continued.
    async fn serve(
        mut self,
        mut requests: mpsc::Receiver<LiveRequest>,
        responses: mpsc::Sender<Result<LiveResponse, ModelError>>,
    ) {
        let mut undelivered = VecDeque::new();
        loop {
            let step = tokio::select! {
                request = requests.recv() => Step::Request(request),
                permit = responses.reserve(), if !undelivered.is_empty() => match (permit, undelivered.pop_front()) {
                    (Ok(permit), Some(response)) => {
                        permit.send(Ok(response));
                        Step::Delivered(true)
                    }
                    _ => Step::Delivered(false),
                },
                frame = next_frame(&mut self.socket, &self.dialer.endpoint.origin), if undelivered.is_empty() => {
                    Step::Frame(frame)
                }
            };
            let result = match step {
                Step::Request(Some(request)) => self.send(&request).await,
                Step::Request(None) | Step::Delivered(false) => break,
                Step::Delivered(true) => Ok(()),
                Step::Frame(Ok(Some(frame))) => {
                    self.note(&frame);
                    undelivered.extend(self.take(frame));
                    // Without a handle, the connection is used as long as it lasts.
                    if self.is_leaving && !self.is_in_turn { self.resume().await.map(drop) } else { Ok(()) }
                }
                Step::Frame(Ok(None)) => match self.resume().await {
                    Ok(false) => break,
                    resumed => resumed.map(drop),
                },
                Step::Frame(Err(error)) => self.recover(error).await,
            };
            if let Err(error) = result {
                let _ = responses.send(Err(error)).await;
                break;
            }
        }
        let _ = self.socket.close(None).await;
    }

    fn note(&mut self, frame: &ServerFrame) {
        self.is_fresh = false;
        self.is_leaving |= frame.go_away.is_some();
    }

    /// Keeps the handle of a frame, and returns its messages.
    fn take(&mut self, mut frame: ServerFrame) -> Vec<LiveResponse> {
        if let Some(update) = frame.session_resumption_update.take() {
            self.handle = update.handle().or(self.handle.take());
        }
        let responses = frame.into_responses();
        for response in &responses {
            match response {
                LiveResponse::TurnComplete | LiveResponse::Interrupted => self.is_in_turn = false,
                LiveResponse::Content(_) | LiveResponse::OutputTranscription(_) | LiveResponse::ToolCalls(_) => {
                    self.is_in_turn = true;
                }
                LiveResponse::InputTranscription(_) | LiveResponse::ToolCallsCancelled(_) | LiveResponse::Usage(_) => {}
            }
        }
        responses
    }

    /// Sends a request, on a continued connection if this one is broken.
    async fn send(&mut self, request: &LiveRequest) -> Result<(), ModelError> {
        let origin = self.dialer.endpoint.origin.clone();
        let frame = request_frame(request).map_err(|reason| origin.error(ModelErrorKind::BadRequest, reason))?;
        let Some(frame) = frame else { return Ok(()) };
        let Err(error) = self.socket.send(Message::text(frame.clone())).await else { return Ok(()) };
        self.recover(broken(&origin, &error)).await?;
        self.socket.send(Message::text(frame)).await.map_err(|error| broken(&origin, &error))
    }

    /// Continues a broken connection.
    ///
    /// # Errors
    /// The error that broke it if it cannot be continued, else that of the new connection.
    async fn recover(&mut self, error: ModelError) -> Result<(), ModelError> {
        let is_resumed = error.kind != ModelErrorKind::BadRequest && self.resume().await?;
        if is_resumed { Ok(()) } else { Err(error) }
    }

    /// Continues the connection with a new one. Returns false if there is no handle, or nothing was received since the
    /// last time.
    async fn resume(&mut self) -> Result<bool, ModelError> {
        let Some(handle) = self.handle.as_deref().filter(|_| !self.is_fresh) else { return Ok(false) };
        tracing::debug!(model = self.dialer.endpoint.origin.model, "continuing a live connection");
        self.socket = self.dialer.dial(Some(handle)).await?;
        (self.is_leaving, self.is_in_turn, self.is_fresh) = (false, false, true);
        Ok(true)
    }
}

/// Returns the next frame of the server. `None` if it has closed the connection as it should.
async fn next_frame(socket: &mut WebSocket, origin: &Origin) -> Result<Option<ServerFrame>, ModelError> {
    loop {
        let json = match socket.next().await {
            // The server sends JSON as binary frames, too.
            Some(Ok(Message::Text(text))) => text.into(),
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(Message::Close(Some(frame)))) if frame.code != CloseCode::Normal => {
                let kind = match frame.code {
                    CloseCode::Invalid | CloseCode::Policy | CloseCode::Unsupported => ModelErrorKind::BadRequest,
                    CloseCode::Error | CloseCode::Again => ModelErrorKind::Server,
                    _ => ModelErrorKind::Network,
                };
                let message = format!("{} has closed the connection: {}", origin.provider(), frame.reason);
                return Err(origin.error(kind, message));
            }
            Some(Ok(Message::Close(_))) | None => return Ok(None),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Err(error)) => return Err(broken(origin, &error)),
        };
        return serde_json::from_slice(&json).map(Some).map_err(|error| origin.bad_response(error));
    }
}

fn broken(origin: &Origin, error: &Error) -> ModelError {
    origin.error(ModelErrorKind::Network, format!("the live connection to {} broke: {error}", origin.provider()))
}
