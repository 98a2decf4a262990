//! One connection of a live run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::Error;
use axum::body::Bytes;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use axum::http::StatusCode;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use hatchery_core::{Event, LiveRequest, LiveRequestQueue, QueuedRequest, Reservation, RunError};
use hatchery_engine::Run;
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};
use tokio_tungstenite::tungstenite;
use tokio_util::sync::CancellationToken;

use super::LiveEnd;
use crate::body::{BodyBudget, reserve_message};
use crate::error::ApiError;

/// How long the client may take to answer the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How many pings in a row may stay without a frame of the client.
const MAX_UNANSWERED_PINGS: u32 = 2;

/// The limits of a connection.
pub(crate) struct LiveLimits {
    /// Most bytes of a frame.
    pub(crate) frame: usize,
    /// The memory of parsed frames.
    pub(crate) memory: BodyBudget,
    /// How long nothing may happen.
    pub(crate) idle: Duration,
    /// The interval of pings.
    pub(crate) ping: Duration,
}

/// One connection of a live run.
pub(crate) struct LiveSession {
    sender: SplitSink<WebSocket, Message>,
    receiver: SplitStream<WebSocket>,
    queue: LiveRequestQueue,
    limits: LiveLimits,
    /// Requests of a frame that do not fit into the queue yet. Nothing is received until they do.
    pending: VecDeque<QueuedRequest>,
    unanswered_pings: u32,
    idle_since: Instant,
}

/// What happens next in a connection.
enum Step {
    Received(Option<Result<Message, Error>>),
    /// There is a place in the queue; false if it is closed.
    Ready(bool),
    Emitted(Option<Result<Arc<Event>, RunError>>),
    Ping,
    Stop,
    Idle,
}

impl LiveSession {
    pub(crate) fn new(socket: WebSocket, queue: LiveRequestQueue, limits: LiveLimits) -> Self {
        let (sender, receiver) = socket.split();
        let (pending, unanswered_pings) = (VecDeque::new(), 0);
        Self { sender, receiver, queue, limits, pending, unanswered_pings, idle_since: Instant::now() }
    }

    /// Passes frames and events on until the run ends, then closes the connection. The queue is closed once `stop` is
    /// cancelled.
    pub(crate) async fn serve(mut self, mut run: Run, stop: CancellationToken) {
        let end = self.exchange(&mut run, &stop).await;
        tracing::debug!(?end, "a live run has ended");
        self.close(&end).await;
    }

    /// Closes the connection, and reads what the client has sent until it closes, too.
    pub(crate) async fn close(mut self, end: &LiveEnd) {
        let Some(frame) = end.frame() else { return };
        let closing = async {
            self.sender.send(Message::Close(Some(frame))).await?;
            while self.receiver.next().await.transpose()?.is_some() {}
            Ok::<_, Error>(())
        };
        // The client may be gone.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    }

    async fn exchange(&mut self, run: &mut Run, stop: &CancellationToken) -> LiveEnd {
        let mut pings = interval(self.limits.ping);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset();
        let mut early_end = None;
        loop {
            let step = self.next_step(run, &mut pings, stop, early_end.is_some()).await;
            let ended = match step {
                Step::Received(frame) => self.handle_frame(frame).await,
                Step::Ready(is_open) => {
                    self.enqueue(is_open);
                    None
                }
                Step::Emitted(Some(Ok(event))) => self.send_event(&event).await,
                Step::Emitted(Some(Err(RunError::Cancelled))) if early_end.is_some() => early_end.take(),
                Step::Emitted(Some(Err(error))) => Some(LiveEnd::Failed(error)),
                Step::Emitted(None) => Some(early_end.take().unwrap_or(LiveEnd::Finished)),
                Step::Ping => self.ping().await,
                Step::Stop => {
                    early_end = Some(LiveEnd::Stopped);
                    self.queue.stop();
                    None
                }
                Step::Idle => {
                    early_end = Some(LiveEnd::Idle(self.limits.idle.as_secs_f64()));
                    self.queue.close();
                    None
                }
            };
            if let Some(end) = ended {
                return end;
            }
        }
    }

    /// Moves requests into the queue as far as they fit. What comes after its end is discarded.
    fn enqueue(&mut self, is_open: bool) {
        if !is_open {
            self.pending.clear();
        }
        while let Some(request) = self.pending.pop_front() {
            if let Ok(Some(request)) = self.queue.try_send(request) {
                self.pending.push_front(request);
                return;
            }
        }
    }

    /// Waits for what happens next. Once the connection `is_ending`, only the current turn is awaited.
    async fn next_step(
        &mut self,
        run: &mut Run,
        pings: &mut Interval,
        stop: &CancellationToken,
        is_ending: bool,
    ) -> Step {
        let is_receiving = self.pending.is_empty();
        tokio::select! {
            event = run.next() => Step::Emitted(event),
            frame = self.receiver.next(), if is_receiving => Step::Received(frame),
            ready = self.queue.ready(), if !is_receiving => Step::Ready(ready.is_ok()),
            _ = pings.tick() => Step::Ping,
            () = stop.cancelled(), if !is_ending => Step::Stop,
            () = sleep_until(self.idle_since + self.limits.idle), if !is_ending => Step::Idle,
        }
    }

    /// Handles a frame. Returns the end if the client has ended the connection.
    async fn handle_frame(&mut self, frame: Option<Result<Message, Error>>) -> Option<LiveEnd> {
        self.unanswered_pings = 0;
        let text = match frame {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => return None,
            Some(Ok(Message::Binary(_))) => return Some(LiveEnd::NotText),
            Some(Ok(Message::Close(_))) | None => return Some(LiveEnd::Disconnected),
            Some(Err(error)) => return Some(self.broken(error)),
        };
        self.idle_since = Instant::now();
        if text.len() > self.limits.frame {
            return Some(LiveEnd::TooLarge(self.limits.frame));
        }
        match self.parse(&text) {
            Ok(requests) => {
                self.pending.extend(requests);
                None
            }
            Err(error) if error.status == StatusCode::SERVICE_UNAVAILABLE => {
                Some(LiveEnd::Refused(axum::extract::ws::close_code::AGAIN, error.detail))
            }
            Err(error) => {
                let message = json!({"error": "Invalid JSON format for LiveRequest", "details": error.detail});
                self.send(Message::text(message.to_string())).await
            }
        }
    }

    /// Returns the requests of a frame. They hold the memory of the frame until the last of them is handled.
    fn parse(&self, text: &str) -> Result<impl Iterator<Item = QueuedRequest> + use<>, ApiError> {
        let memory: Reservation = Arc::new(reserve_message(&self.limits.memory, text.as_bytes())?);
        let requests = LiveRequest::from_json(text)?;
        Ok(requests.into_iter().map(move |request| QueuedRequest { request, reservations: vec![memory.clone()] }))
    }

    /// Returns the end for a frame that cannot be received.
    fn broken(&self, error: Error) -> LiveEnd {
        let inner = error.into_inner();
        match inner.downcast_ref::<tungstenite::Error>() {
            Some(tungstenite::Error::Capacity(_)) => LiveEnd::TooLarge(self.limits.frame),
            Some(tungstenite::Error::Utf8(_)) => LiveEnd::NotText,
            _ => {
                tracing::debug!(error = %inner, "the connection of a live run broke");
                LiveEnd::Disconnected
            }
        }
    }

    async fn send_event(&mut self, event: &Event) -> Option<LiveEnd> {
        self.idle_since = Instant::now();
        // JSON is UTF-8.
        let json = Utf8Bytes::try_from(event.json().clone()).unwrap_or_default();
        self.send(Message::Text(json)).await
    }

    /// Pings the client. It is gone if it has answered none of the last pings. While nothing is received, it is only gone
    /// if it cannot be sent to.
    async fn ping(&mut self) -> Option<LiveEnd> {
        if self.unanswered_pings >= MAX_UNANSWERED_PINGS {
            return Some(LiveEnd::Disconnected);
        }
        if self.pending.is_empty() {
            self.unanswered_pings += 1;
        }
        self.send(Message::Ping(Bytes::new())).await
    }

    /// Sends a frame. One that the client does not read in time breaks the connection.
    async fn send(&mut self, message: Message) -> Option<LiveEnd> {
        self.sender.send(message).await.is_err().then_some(LiveEnd::Disconnected)
    }
}
