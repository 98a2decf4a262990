//! The queue of a live run's requests.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::channel::mpsc;
use futures::future::{Either, select};
use futures::{SinkExt, StreamExt};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::LiveRequest;
use crate::content::Content;
use crate::sync::MutexExt;

/// The queue is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the live run takes no more requests: its queue is closed")]
pub struct LiveQueueClosed;

/// A guard that is held until a request is handled, such as reserved memory. Released with the last clone.
pub type Reservation = Arc<dyn Any + Send + Sync>;

/// A request in a queue, with its reservations.
#[derive(Clone)]
pub struct QueuedRequest {
    pub request: LiveRequest,
    /// Kept until the request is stored or sent to a model.
    pub reservations: Vec<Reservation>,
}

impl fmt::Debug for QueuedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedRequest").field("request", &self.request).finish_non_exhaustive()
    }
}

impl From<LiveRequest> for QueuedRequest {
    fn from(request: LiveRequest) -> Self {
        Self { request, reservations: Vec::new() }
    }
}

/// The requests of a live run, in the order in which they were sent. Clones share the queue. It has a limited length,
/// and senders wait while it is full.
#[derive(Debug, Clone)]
pub struct LiveRequestQueue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sender: futures::lock::Mutex<mpsc::Sender<QueuedRequest>>,
    receiver: futures::lock::Mutex<mpsc::Receiver<QueuedRequest>>,
    returned_request: Mutex<Option<QueuedRequest>>,
    closed: CancellationToken,
    is_stopped: AtomicBool,
}

impl LiveRequestQueue {
    /// Creates an open queue of at most `capacity` requests, at least one.
    pub fn new(capacity: usize) -> Self {
        // The channel reserves its own capacity for its sender.
        let (sender, receiver) = mpsc::channel(capacity.saturating_sub(1));
        Self(Arc::new(Inner {
            sender: sender.into(),
            receiver: receiver.into(),
            returned_request: Mutex::default(),
            closed: CancellationToken::new(),
            is_stopped: AtomicBool::new(false),
        }))
    }

    /// Appends a request, once the queue has capacity. [`LiveRequest::Close`] closes the queue.
    ///
    /// # Errors
    /// If the queue is closed, or is closed before it has capacity.
    pub async fn send(&self, request: LiveRequest) -> Result<(), LiveQueueClosed> {
        if matches!(request, LiveRequest::Close) {
            self.close();
            return Ok(());
        }
        let sending = async { self.0.sender.lock().await.feed(request.into()).await.map_err(|_| LiveQueueClosed) };
        match select(pin!(self.0.closed.cancelled()), pin!(sending)).await {
            Either::Left(_) => Err(LiveQueueClosed),
            Either::Right((sent, _)) => sent,
        }
    }

    /// Waits until the queue has capacity for a request.
    ///
    /// # Errors
    /// If the queue is closed.
    pub async fn ready(&self) -> Result<(), LiveQueueClosed> {
        let waiting = async {
            let mut sender = self.0.sender.lock().await;
            poll_fn(|cx| sender.poll_ready(cx)).await.map_err(|_| LiveQueueClosed)
        };
        match select(pin!(self.0.closed.cancelled()), pin!(waiting)).await {
            Either::Left(_) => Err(LiveQueueClosed),
            Either::Right((is_ready, _)) => is_ready,
        }
    }

    /// Appends a request without waiting, as [`LiveRequestQueue::send`] does. Returns it if the queue is full.
    ///
    /// # Errors
    /// If the queue is closed.
    pub fn try_send(&self, request: QueuedRequest) -> Result<Option<QueuedRequest>, LiveQueueClosed> {
        if matches!(request.request, LiveRequest::Close) {
            self.close();
            return Ok(None);
        }
        if self.is_closed() {
            return Err(LiveQueueClosed);
        }
        let Some(mut sender) = self.0.sender.try_lock() else { return Ok(Some(request)) };
        match sender.try_send(request) {
            Ok(()) => Ok(None),
            Err(error) if error.is_full() => Ok(Some(error.into_inner())),
            Err(_) => Err(LiveQueueClosed),
        }
    }

    /// Appends a complete message of the user.
    ///
    /// # Errors
    /// As [`LiveRequestQueue::send`].
    pub async fn send_content(&self, content: Content) -> Result<(), LiveQueueClosed> {
        self.send(LiveRequest::content(content)).await
    }

    /// Closes the queue. Requests that are in it are still read.
    pub fn close(&self) {
        self.0.closed.cancel();
    }

    /// Closes the queue, and discards the requests that are in it.
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::SeqCst);
        self.close();
    }

    /// Returns true if the queue was closed by [`LiveRequestQueue::stop`].
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::SeqCst)
    }

    /// Returns true if the queue is closed.
    pub fn is_closed(&self) -> bool {
        self.0.closed.is_cancelled()
    }

    /// Removes and returns the first request, once there is one. `None` if the queue is closed and empty, or stopped.
    ///
    /// This method is cancel safe.
    pub async fn next(&self) -> Option<QueuedRequest> {
        if self.is_stopped() {
            return None;
        }
        if let Some(request) = self.0.returned_request.lock_unpoisoned().take() {
            return Some(request);
        }
        let mut receiver = self.0.receiver.lock().await;
        match select(receiver.next(), pin!(self.0.closed.cancelled())).await {
            Either::Left((request, _)) => request.filter(|_| !self.is_stopped()),
            Either::Right(_) => None,
        }
    }

    /// Returns a request to the front of the queue, for the agent that answers it.
    pub fn put_back(&self, request: QueuedRequest) {
        *self.0.returned_request.lock_unpoisoned() = Some(request);
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::poll;

    use super::*;

    async fn next(queue: &LiveRequestQueue) -> Option<LiveRequest> {
        queue.next().await.map(|queued| queued.request)
    }

    #[test]
    fn a_request_for_which_there_is_no_place_is_returned_with_its_reservation() {
        block_on(async {
            let queue = LiveRequestQueue::new(1);
            let memory: Reservation = Arc::new(());
            let request = || QueuedRequest { request: LiveRequest::ActivityStart, reservations: vec![memory.clone()] };
            queue.ready().await.unwrap();
            assert!(queue.try_send(request()).unwrap().is_none());
            let returned = queue.try_send(request()).unwrap().unwrap();
            assert_eq!((Arc::strong_count(&memory), returned.request), (3, LiveRequest::ActivityStart));
            {
                let mut waiting = pin!(queue.ready());
                assert!(poll!(waiting.as_mut()).is_pending());
                drop(queue.next().await);
                assert_eq!(waiting.await, Ok(()));
            }
            assert!(queue.try_send(request()).unwrap().is_none());
            queue.close();
            assert_eq!(queue.ready().await, Err(LiveQueueClosed));
            assert_eq!(queue.try_send(request()).err(), Some(LiveQueueClosed));
        });
    }

    #[test]
    fn a_queue_that_is_stopped_has_no_more_requests() {
        block_on(async {
            let queue = LiveRequestQueue::new(2);
            queue.send(LiveRequest::ActivityStart).await.unwrap();
            queue.put_back(LiveRequest::ActivityEnd.into());
            queue.stop();
            assert!(queue.is_closed() && queue.is_stopped());
            assert_eq!(next(&queue).await, None);
        });
    }

    #[test]
    fn requests_are_read_in_order_also_after_the_end() {
        block_on(async {
            let queue = LiveRequestQueue::new(4);
            queue.send_content(Content::user("one")).await.unwrap();
            queue.send(LiveRequest::ActivityStart).await.unwrap();
            queue.send(LiveRequest::Close).await.unwrap();
            assert_eq!(queue.send_content(Content::user("late")).await, Err(LiveQueueClosed));
            let first = queue.next().await.unwrap();
            assert_eq!(first.request, LiveRequest::content(Content::user("one")));
            queue.put_back(first.clone());
            assert_eq!(next(&queue).await, Some(first.request));
            assert_eq!(next(&queue).await, Some(LiveRequest::ActivityStart));
            assert_eq!(next(&queue).await, None);
        });
    }

    #[test]
    fn a_sender_waits_while_the_queue_is_full() {
        block_on(async {
            let queue = LiveRequestQueue::new(2);
            queue.send(LiveRequest::ActivityStart).await.unwrap();
            queue.send(LiveRequest::ActivityEnd).await.unwrap();
            let mut third = pin!(queue.send(LiveRequest::AudioStreamEnd));
            assert!(poll!(third.as_mut()).is_pending());
            assert_eq!(next(&queue).await, Some(LiveRequest::ActivityStart));
            assert_eq!(third.await, Ok(()));
            let mut waiting = pin!(queue.send(LiveRequest::AudioStreamEnd));
            assert!(poll!(waiting.as_mut()).is_pending());
            queue.close();
            assert_eq!(waiting.await, Err(LiveQueueClosed));
        });
    }
}
