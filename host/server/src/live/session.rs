//! One connection of a live run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use axum::http::StatusCode;
use hatchery_core::{Event, LiveRequest, LiveRequestQueue, QueuedRequest, Reservation, RunError};
use hatchery_engine::Run;
use serde_json::json;
use tokio::time::{Instant, Interval, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{LiveEnd, LiveSender};
use crate::body::{BodyBudget, reserve_message};
use crate::error::ApiError;
use crate::websocket::{Socket, SocketEnd, ping_ticks};

/// The limits of a connection.
pub(crate) struct LiveLimits {
    /// The memory of parsed frames.
    pub(crate) memory: BodyBudget,
    /// Maximum idle time.
    pub(crate) idle: Duration,
    /// The interval of pings.
    pub(crate) ping: Duration,
}

/// One connection of a live run.
pub(crate) struct LiveSession {
    socket: Socket,
    queue: LiveRequestQueue,
    limits: LiveLimits,
    /// Requests of a frame that do not fit into the queue yet. Nothing is received until they do.
    pending: VecDeque<QueuedRequest>,
    idle_since: Instant,
}

/// The next event of a connection.
enum ConnectionEvent {
    Received(Result<Option<Utf8Bytes>, SocketEnd>),
    /// The queue has capacity; false if it is closed.
    Ready(bool),
    Emitted(Option<Result<Arc<Event>, RunError>>),
    Ping,
    Stop,
    Idle,
}

impl LiveSession {
    pub(crate) fn new(socket: Socket, queue: LiveRequestQueue, limits: LiveLimits) -> Self {
        Self { socket, queue, limits, pending: VecDeque::new(), idle_since: Instant::now() }
    }

    /// Passes frames and events on until the run ends, then closes the connection. The queue is closed once `stop` is
    /// cancelled.
    pub(crate) async fn serve(mut self, mut run: Run, sender: &LiveSender, stop: CancellationToken) {
        let end = self.exchange(&mut run, sender, &stop).await;
        tracing::debug!(?end, "a live run has ended");
        self.close(&end).await;
    }

    /// Closes the connection, and discards incoming messages until the client closes it, too.
    pub(crate) async fn close(self, end: &LiveEnd) {
        if let Some(frame) = end.frame() {
            self.socket.close(frame).await;
        }
    }

    async fn exchange(&mut self, run: &mut Run, sender: &LiveSender, stop: &CancellationToken) -> LiveEnd {
        let mut pings = ping_ticks(self.limits.ping);
        let mut early_end = None;
        loop {
            let event = self.next_event(run, &mut pings, stop, early_end.is_some()).await;
            let ended = match event {
                ConnectionEvent::Received(frame) => self.handle_frame(sender, frame).await,
                ConnectionEvent::Ready(is_open) => {
                    self.enqueue(is_open);
                    None
                }
                ConnectionEvent::Emitted(Some(Ok(event))) => self.send_event(&event).await,
                ConnectionEvent::Emitted(Some(Err(RunError::Cancelled))) if early_end.is_some() => early_end.take(),
                ConnectionEvent::Emitted(Some(Err(error))) => Some(LiveEnd::Failed(error)),
                ConnectionEvent::Emitted(None) => Some(early_end.take().unwrap_or(LiveEnd::Finished)),
                ConnectionEvent::Ping => self.socket.ping(self.pending.is_empty()).await.err().map(LiveEnd::from),
                ConnectionEvent::Stop => {
                    early_end = Some(LiveEnd::Stopped);
                    self.queue.stop();
                    None
                }
                ConnectionEvent::Idle => {
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

    /// Moves requests into the queue while it has capacity. Requests after its end are discarded.
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

    /// Waits for the next event. Once the connection `is_ending`, only the current turn is awaited.
    async fn next_event(
        &mut self,
        run: &mut Run,
        pings: &mut Interval,
        stop: &CancellationToken,
        is_ending: bool,
    ) -> ConnectionEvent {
        let is_receiving = self.pending.is_empty();
        tokio::select! {
            event = run.next() => ConnectionEvent::Emitted(event),
            frame = self.socket.receive(), if is_receiving => ConnectionEvent::Received(frame),
            ready = self.queue.ready(), if !is_receiving => ConnectionEvent::Ready(ready.is_ok()),
            _ = pings.tick() => ConnectionEvent::Ping,
            () = stop.cancelled(), if !is_ending => ConnectionEvent::Stop,
            () = sleep_until(self.idle_since + self.limits.idle), if !is_ending => ConnectionEvent::Idle,
        }
    }

    /// Handles a frame. Returns the end if the client has ended the connection.
    async fn handle_frame(
        &mut self,
        sender: &LiveSender,
        frame: Result<Option<Utf8Bytes>, SocketEnd>,
    ) -> Option<LiveEnd> {
        let text = match frame {
            Ok(Some(text)) => text,
            Ok(None) => return None,
            Err(end) => return Some(end.into()),
        };
        self.idle_since = Instant::now();
        let (requests, memory) = match self.parse(&text) {
            Ok(parsed) => parsed,
            Err(error) if error.status == StatusCode::SERVICE_UNAVAILABLE => return Some(LiveEnd::refused(error)),
            Err(error) => {
                let message = json!({"error": "Invalid JSON format for LiveRequest", "details": error.detail});
                return self.send(message.to_string().into()).await;
            }
        };
        if let Err(error) = sender.check(&requests).await {
            return Some(LiveEnd::refused(error));
        }
        let queued = |request| QueuedRequest { request, reservations: vec![memory.clone()] };
        self.pending.extend(requests.into_iter().map(queued));
        None
    }

    /// Returns the requests of a frame, and its memory, which they hold until the last of them is handled.
    fn parse(&self, text: &str) -> Result<(Vec<LiveRequest>, Reservation), ApiError> {
        let memory: Reservation = Arc::new(reserve_message(&self.limits.memory, text.as_bytes())?);
        Ok((LiveRequest::from_json(text)?, memory))
    }

    async fn send_event(&mut self, event: &Event) -> Option<LiveEnd> {
        self.idle_since = Instant::now();
        // JSON is UTF-8.
        self.send(Utf8Bytes::try_from(event.json().clone()).unwrap_or_default()).await
    }

    async fn send(&mut self, text: Utf8Bytes) -> Option<LiveEnd> {
        self.socket.send(text).await.err().map(LiveEnd::from)
    }
}
