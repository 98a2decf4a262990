//! Live connections over WebSocket. A task of its own serves each, so that sending and receiving do not wait for each
//! other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use hatchery_core::{LiveConnection, LiveRequest, LiveResponse, ModelError, ModelErrorKind};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::failure::Origin;
use crate::http::WebSocket;

/// Maximum time for the setup of a connection.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for closing a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most requests that are not sent yet, and most responses that are not read yet.
const MAX_PENDING: usize = 32;

/// The frames of a provider.
pub(crate) trait LiveProtocol: Send + 'static {
    /// Returns the frames of a request. The error names what cannot be sent.
    fn encode(&mut self, request: &LiveRequest) -> Result<Vec<String>, String>;

    /// Returns the messages in a frame of the server.
    fn decode(&mut self, json: &[u8]) -> Result<Vec<LiveResponse>, ModelError>;

    /// Returns true if the connection should be continued with a new one now. The default is never.
    fn is_leaving(&self) -> bool {
        false
    }

    /// Opens a connection that continues the last one. The default has none.
    fn resume(&mut self) -> impl Future<Output = Result<Option<WebSocket>, ModelError>> + Send {
        async { Ok(None) }
    }
}

/// A connection that a task serves.
pub(crate) struct SocketConnection {
    /// `None` once it is closed.
    requests: Mutex<Option<mpsc::Sender<LiveRequest>>>,
    responses: Mutex<mpsc::Receiver<Result<LiveResponse, ModelError>>>,
    task: Mutex<JoinHandle<()>>,
}

impl SocketConnection {
    /// Serves a connection whose setup is complete.
    pub(crate) fn spawn(
        protocol: impl LiveProtocol,
        socket: WebSocket,
        origin: Arc<Origin>,
    ) -> Box<dyn LiveConnection> {
        let (requests, incoming) = mpsc::channel(MAX_PENDING);
        let (outgoing, responses) = mpsc::channel(MAX_PENDING);
        let link = Link { protocol, socket, origin };
        let task = tokio::spawn(link.serve(incoming, outgoing));
        Box::new(Self {
            requests: Mutex::new(Some(requests)),
            responses: Mutex::new(responses),
            task: Mutex::new(task),
        })
    }
}

#[async_trait]
impl LiveConnection for SocketConnection {
    async fn send(&self, request: LiveRequest) -> Result<(), ModelError> {
        let requests = self.requests.lock().await.clone();
        if let Some(requests) = requests {
            // What has ended the connection is its last response.
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

impl Drop for SocketConnection {
    fn drop(&mut self) {
        self.task.get_mut().abort();
    }
}

/// The state of a connection in its task.
struct Link<P> {
    protocol: P,
    socket: WebSocket,
    origin: Arc<Origin>,
}

/// What happens next.
enum Step {
    Request(Option<LiveRequest>),
    Frame(Result<Option<Bytes>, ModelError>),
    Delivered(bool),
}

impl<P: LiveProtocol> Link<P> {
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
                        permit.send(response);
                        Step::Delivered(true)
                    }
                    _ => Step::Delivered(false),
                },
                frame = next_frame(&mut self.socket, &self.origin), if undelivered.is_empty() => Step::Frame(frame),
            };
            let result = match step {
                Step::Request(Some(request)) => match self.protocol.encode(&request) {
                    Ok(frames) => self.send(frames).await,
                    Err(reason) => {
                        undelivered.push_back(Err(self.origin.error(ModelErrorKind::BadRequest, reason)));
                        Ok(())
                    }
                },
                Step::Request(None) | Step::Delivered(false) => break,
                Step::Delivered(true) => Ok(()),
                Step::Frame(Ok(Some(json))) => match self.protocol.decode(&json) {
                    Ok(messages) => {
                        undelivered.extend(messages.into_iter().map(Ok));
                        if self.protocol.is_leaving() { self.resume().await.map(drop) } else { Ok(()) }
                    }
                    Err(error) => Err(error),
                },
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

    /// Sends the frames of a request, on a continued connection if this one is broken.
    async fn send(&mut self, frames: Vec<String>) -> Result<(), ModelError> {
        for frame in frames {
            let Err(error) = self.socket.send(Message::text(frame.clone())).await else { continue };
            self.recover(broken(&self.origin, &error)).await?;
            self.socket.send(Message::text(frame)).await.map_err(|error| broken(&self.origin, &error))?;
        }
        Ok(())
    }

    /// Continues a broken connection.
    ///
    /// # Errors
    /// The error that broke it if it cannot be continued, else that of the new connection.
    async fn recover(&mut self, error: ModelError) -> Result<(), ModelError> {
        let is_resumed = error.kind != ModelErrorKind::BadRequest && self.resume().await?;
        if is_resumed { Ok(()) } else { Err(error) }
    }

    /// Continues the connection with a new one. Returns false if that is not possible.
    async fn resume(&mut self) -> Result<bool, ModelError> {
        let Some(socket) = self.protocol.resume().await? else { return Ok(false) };
        tracing::debug!(model = self.origin.model, "a live connection is continued");
        self.socket = socket;
        Ok(true)
    }
}

/// Returns the next frame of the server. `None` if it has closed the connection as it should.
pub(crate) async fn next_frame(socket: &mut WebSocket, origin: &Origin) -> Result<Option<Bytes>, ModelError> {
    loop {
        return match socket.next().await {
            // JSON may come as binary frames, too.
            Some(Ok(Message::Text(text))) => Ok(Some(text.into())),
            Some(Ok(Message::Binary(bytes))) => Ok(Some(bytes)),
            Some(Ok(Message::Close(Some(frame)))) if frame.code != CloseCode::Normal => {
                let kind = match frame.code {
                    CloseCode::Invalid | CloseCode::Policy | CloseCode::Unsupported => ModelErrorKind::BadRequest,
                    CloseCode::Error | CloseCode::Again => ModelErrorKind::Server,
                    _ => ModelErrorKind::Network,
                };
                let message = format!("{} has closed the connection: {}", origin.provider(), frame.reason);
                Err(origin.error(kind, message))
            }
            Some(Ok(Message::Close(_))) | None => Ok(None),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Err(error)) => Err(broken(origin, &error)),
        };
    }
}

/// Sends a frame of the setup.
pub(crate) async fn send_frame(socket: &mut WebSocket, frame: String, origin: &Origin) -> Result<(), ModelError> {
    socket.send(Message::text(frame)).await.map_err(|error| broken(origin, &error))
}

/// Returns the next frame of the setup, which the server must not end.
pub(crate) async fn next_setup_frame(socket: &mut WebSocket, origin: &Origin) -> Result<Bytes, ModelError> {
    let closed = || {
        origin.error(ModelErrorKind::Network, format!("{} has closed the connection at its setup", origin.provider()))
    };
    next_frame(socket, origin).await?.ok_or_else(closed)
}

/// Awaits the setup of a connection for a limited time.
pub(crate) async fn within_setup_time<T>(
    setup: impl Future<Output = Result<T, ModelError>>,
    origin: &Origin,
) -> Result<T, ModelError> {
    let timed_out = |_| {
        let message = format!("{} did not set up the connection within {SETUP_TIMEOUT:?}", origin.provider());
        origin.error(ModelErrorKind::Timeout, message)
    };
    tokio::time::timeout(SETUP_TIMEOUT, setup).await.map_err(timed_out)?
}

fn broken(origin: &Origin, error: &Error) -> ModelError {
    origin.error(ModelErrorKind::Network, format!("the live connection to {} broke: {error}", origin.provider()))
}
