//! Live connections over WebSocket. A separate task serves each, so that sending and receiving do not wait for each
//! other.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use hatchery_core::{LiveConnection, LiveRequest, LiveResponse, ModelError, ModelErrorKind};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::failure::Origin;
use crate::http::WebSocket;

/// Maximum time for the setup of a connection.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for closing a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time for sending a frame.
const SEND_TIMEOUT: Duration = Duration::from_secs(15);
/// The interval of pings.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum number of consecutive pings without a frame of the server.
const MAX_UNANSWERED_PINGS: u32 = 2;
/// Maximum number of requests that are not sent yet. They are of up to a frame of the client each.
const MAX_UNSENT: usize = 4;
/// Maximum number of responses that are not read yet.
const MAX_UNREAD: usize = 32;

/// The frames of a provider.
pub(crate) trait LiveProtocol: Send + 'static {
    /// Checks whether the model takes this kind of input. The error names the unsupported input.
    fn check(request: &LiveRequest) -> Result<(), String>;

    /// Returns the frames of a request. The error names the unsupported content.
    fn encode(&mut self, request: &LiveRequest) -> Result<Vec<String>, String>;

    /// Returns the messages in a frame of the server.
    fn decode(&mut self, json: &[u8]) -> Result<Vec<LiveResponse>, ModelError>;

    /// Returns the frames to send in response to the last frame of the server. The default has none.
    fn take_replies(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Returns true if the connection should be continued with a new one now. The default is never.
    fn is_leaving(&self) -> bool {
        false
    }

    /// Opens a connection that continues the last one. If that fails, the last one stays open. The default has none.
    fn resume(&mut self) -> impl Future<Output = Result<Option<WebSocket>, ModelError>> + Send {
        async { Ok(None) }
    }
}

/// A connection that a task serves.
pub(crate) struct SocketConnection {
    origin: Arc<Origin>,
    check: fn(&LiveRequest) -> Result<(), String>,
    /// `None` once it is closed.
    requests: Mutex<Option<mpsc::Sender<LiveRequest>>>,
    responses: Mutex<mpsc::Receiver<Result<LiveResponse, ModelError>>>,
    task: Mutex<JoinHandle<()>>,
}

impl SocketConnection {
    /// Serves a connection whose setup is complete.
    pub(crate) fn spawn<P: LiveProtocol>(
        protocol: P,
        socket: WebSocket,
        origin: Arc<Origin>,
    ) -> Box<dyn LiveConnection> {
        let (requests, incoming) = mpsc::channel(MAX_UNSENT);
        let (outgoing, responses) = mpsc::channel(MAX_UNREAD);
        let connection = ConnectionTask { protocol, socket, origin: origin.clone(), unanswered_pings: 0 };
        let task = tokio::spawn(connection.serve(incoming, outgoing));
        Box::new(Self {
            origin,
            check: P::check,
            requests: Mutex::new(Some(requests)),
            responses: Mutex::new(responses),
            task: Mutex::new(task),
        })
    }
}

#[async_trait]
impl LiveConnection for SocketConnection {
    async fn send(&self, request: LiveRequest) -> Result<(), ModelError> {
        (self.check)(&request).map_err(|reason| self.origin.error(ModelErrorKind::BadRequest, reason))?;
        let requests = self.requests.lock().await.clone();
        if let Some(requests) = requests {
            // If the task has ended, `receive` returns the reason.
            let _ = requests.send(request).await;
        }
        Ok(())
    }

    async fn receive(&self) -> Option<Result<LiveResponse, ModelError>> {
        self.responses.lock().await.recv().await
    }

    async fn close(&self) {
        self.requests.lock().await.take();
        let mut task = self.task.lock().await;
        // A task must not be awaited again after its end.
        if task.is_finished() {
            return;
        }
        // Otherwise `receive` is waiting, and takes the messages of the task.
        if let Ok(mut responses) = self.responses.try_lock() {
            responses.close();
        }
        // A server that does not answer is left.
        if tokio::time::timeout(CLOSE_TIMEOUT, &mut *task).await.is_err() {
            task.abort();
        }
    }
}

impl Drop for SocketConnection {
    fn drop(&mut self) {
        self.task.get_mut().abort();
    }
}

/// The state of a connection in its task.
struct ConnectionTask<P> {
    protocol: P,
    socket: WebSocket,
    origin: Arc<Origin>,
    unanswered_pings: u32,
}

/// The next event of a connection.
enum ConnectionEvent {
    Request(Option<LiveRequest>),
    Frame(Result<Option<Bytes>, ModelError>),
    Delivered(bool),
    Ping,
}

impl<P: LiveProtocol> ConnectionTask<P> {
    /// Sends requests and receives responses until the agent closes the connection, or it breaks and cannot be resumed.
    async fn serve(
        mut self,
        mut requests: mpsc::Receiver<LiveRequest>,
        responses: mpsc::Sender<Result<LiveResponse, ModelError>>,
    ) {
        let mut undelivered = VecDeque::new();
        let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if undelivered.is_empty()
                && self.protocol.is_leaving()
                && let Err(error) = self.resume().await
            {
                tracing::debug!(%error, "a live connection cannot be continued yet, and is used until it ends");
            }
            let event = tokio::select! {
                request = requests.recv() => ConnectionEvent::Request(request),
                permit = responses.reserve(), if !undelivered.is_empty() => match (permit, undelivered.pop_front()) {
                    (Ok(permit), Some(response)) => {
                        permit.send(response);
                        ConnectionEvent::Delivered(true)
                    }
                    _ => ConnectionEvent::Delivered(false),
                },
                frame = next_frame(&mut self.socket, &self.origin, &mut self.unanswered_pings), if undelivered.is_empty() => {
                    ConnectionEvent::Frame(frame)
                }
                _ = pings.tick() => ConnectionEvent::Ping,
            };
            match self.handle(event, &mut undelivered).await {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(error) => {
                    for response in undelivered.drain(..).chain([Err(error)]) {
                        // Fails if the agent has left.
                        let _ = responses.send(response).await;
                    }
                    break;
                }
            }
        }
        let _ = self.socket.close(None).await;
    }

    /// Handles an event, and adds responses for the agent to `undelivered`. Breaks if the agent has left, or the server
    /// has closed the connection for good.
    async fn handle(
        &mut self,
        event: ConnectionEvent,
        undelivered: &mut VecDeque<Result<LiveResponse, ModelError>>,
    ) -> Result<ControlFlow<()>, ModelError> {
        match event {
            ConnectionEvent::Request(Some(request)) => match self.protocol.encode(&request) {
                Ok(frames) => self.send(frames).await?,
                Err(reason) => undelivered.push_back(Err(self.origin.error(ModelErrorKind::BadRequest, reason))),
            },
            ConnectionEvent::Request(None) | ConnectionEvent::Delivered(false) => return Ok(ControlFlow::Break(())),
            ConnectionEvent::Delivered(true) => {}
            ConnectionEvent::Frame(Ok(Some(json))) => {
                undelivered.extend(self.protocol.decode(&json)?.into_iter().map(Ok));
                let replies = self.protocol.take_replies();
                self.send(replies).await?;
            }
            ConnectionEvent::Frame(Ok(None)) => {
                if !self.resume().await? {
                    return Ok(ControlFlow::Break(()));
                }
            }
            ConnectionEvent::Frame(Err(error)) => self.recover(error).await?,
            // Pongs are only read while frames are.
            ConnectionEvent::Ping => self.ping(undelivered.is_empty()).await?,
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Sends the frames of a request, on a continued connection if this one is broken.
    async fn send(&mut self, frames: Vec<String>) -> Result<(), ModelError> {
        for frame in frames {
            let Err(error) = self.send_message(Message::text(frame.clone())).await else { continue };
            self.recover(error).await?;
            self.send_message(Message::text(frame)).await?;
        }
        Ok(())
    }

    async fn send_message(&mut self, message: Message) -> Result<(), ModelError> {
        match tokio::time::timeout(SEND_TIMEOUT, self.socket.send(message)).await {
            Ok(sent) => sent.map_err(|error| socket_error(&self.origin, &error)),
            Err(_) => Err(self.unresponsive()),
        }
    }

    /// Pings the server, and continues a connection in which it has answered none of the last pings.
    async fn ping(&mut self, is_receiving: bool) -> Result<(), ModelError> {
        if self.unanswered_pings >= MAX_UNANSWERED_PINGS {
            return self.recover(self.unresponsive()).await;
        }
        if is_receiving {
            self.unanswered_pings += 1;
        }
        match self.send_message(Message::Ping(Bytes::new())).await {
            Ok(()) => Ok(()),
            Err(error) => self.recover(error).await,
        }
    }

    fn unresponsive(&self) -> ModelError {
        let message = format!("the live connection to {} broke: it does not answer", self.origin.provider_name());
        self.origin.error(ModelErrorKind::Network, message)
    }

    /// Continues a broken connection.
    ///
    /// # Errors
    /// The error that broke it if it cannot be continued, else the error of the new connection.
    async fn recover(&mut self, error: ModelError) -> Result<(), ModelError> {
        let is_resumed = error.kind != ModelErrorKind::BadRequest && self.resume().await?;
        if is_resumed { Ok(()) } else { Err(error) }
    }

    /// Continues the connection with a new one. Returns false if that is not possible.
    async fn resume(&mut self) -> Result<bool, ModelError> {
        let Some(socket) = self.protocol.resume().await? else { return Ok(false) };
        tracing::debug!(model = self.origin.model, "a live connection is continued");
        (self.socket, self.unanswered_pings) = (socket, 0);
        Ok(true)
    }
}

/// Returns the next frame of the server. `None` if it has closed the connection normally. Any frame answers pings.
async fn next_frame(
    socket: &mut WebSocket,
    origin: &Origin,
    unanswered_pings: &mut u32,
) -> Result<Option<Bytes>, ModelError> {
    loop {
        let frame = socket.next().await;
        *unanswered_pings = 0;
        return match frame {
            // JSON may come as binary frames, too.
            Some(Ok(Message::Text(text))) => Ok(Some(text.into())),
            Some(Ok(Message::Binary(bytes))) => Ok(Some(bytes)),
            Some(Ok(Message::Close(Some(frame)))) if frame.code != CloseCode::Normal => {
                let kind = match frame.code {
                    CloseCode::Invalid | CloseCode::Policy | CloseCode::Unsupported => ModelErrorKind::BadRequest,
                    CloseCode::Error | CloseCode::Again => ModelErrorKind::Server,
                    _ => ModelErrorKind::Network,
                };
                let message = format!("{} has closed the connection: {}", origin.provider_name(), frame.reason);
                Err(origin.error(kind, message))
            }
            Some(Ok(Message::Close(_))) | None => Ok(None),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Err(error)) => Err(socket_error(origin, &error)),
        };
    }
}

/// Sends a frame of the setup.
pub(crate) async fn send_frame(socket: &mut WebSocket, frame: String, origin: &Origin) -> Result<(), ModelError> {
    socket.send(Message::text(frame)).await.map_err(|error| socket_error(origin, &error))
}

/// Returns the next frame of the setup, which the server must not end.
pub(crate) async fn next_setup_frame(socket: &mut WebSocket, origin: &Origin) -> Result<Bytes, ModelError> {
    let closed = || {
        origin.error(
            ModelErrorKind::Network,
            format!("{} has closed the connection at its setup", origin.provider_name()),
        )
    };
    next_frame(socket, origin, &mut 0).await?.ok_or_else(closed)
}

/// Awaits the setup of a connection for a limited time.
pub(crate) async fn within_setup_time<T>(
    setup: impl Future<Output = Result<T, ModelError>>,
    origin: &Origin,
) -> Result<T, ModelError> {
    let timed_out = |_| {
        let message = format!("{} did not set up the connection within {SETUP_TIMEOUT:?}", origin.provider_name());
        origin.error(ModelErrorKind::Timeout, message)
    };
    tokio::time::timeout(SETUP_TIMEOUT, setup).await.map_err(timed_out)?
}

fn socket_error(origin: &Origin, error: &Error) -> ModelError {
    origin.error(ModelErrorKind::Network, format!("the live connection to {} broke: {error}", origin.provider_name()))
}
