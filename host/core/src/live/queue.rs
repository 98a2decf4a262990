//! The queue of a live run's requests.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures::channel::mpsc;
use futures::future::{Either, select};
use futures::{SinkExt, StreamExt};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::LiveRequest;
use crate::content::Content;
use crate::sync::MutexExt;

/// The queue takes no more requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the live run takes no more requests: its queue is closed")]
pub struct LiveQueueClosed;

/// The requests of a live run, in the order in which they were sent. Clones share the queue. It has a limited length, and
/// senders wait while it is full.
#[derive(Debug, Clone)]
pub struct LiveRequestQueue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sender: futures::lock::Mutex<mpsc::Sender<LiveRequest>>,
    receiver: futures::lock::Mutex<mpsc::Receiver<LiveRequest>>,
    returned: Mutex<Option<LiveRequest>>,
    closed: CancellationToken,
}

impl LiveRequestQueue {
    /// Creates an open queue of at most `capacity` requests, at least one.
    pub fn new(capacity: usize) -> Self {
        // The channel has a place of its own for its sender.
        let (sender, receiver) = mpsc::channel(capacity.saturating_sub(1));
        Self(Arc::new(Inner {
            sender: sender.into(),
            receiver: receiver.into(),
            returned: Mutex::default(),
            closed: CancellationToken::new(),
        }))
    }

    /// Appends a request, once there is a place for it. [`LiveRequest::Close`] closes the queue.
    ///
    /// # Errors
    /// If the queue is closed, or is closed before there is a place.
    pub async fn send(&self, request: LiveRequest) -> Result<(), LiveQueueClosed> {
        if matches!(request, LiveRequest::Close) {
            self.close();
            return Ok(());
        }
        let sending = async { self.0.sender.lock().await.feed(request).await.map_err(|_| LiveQueueClosed) };
        match select(pin!(self.0.closed.cancelled()), pin!(sending)).await {
            Either::Left(_) => Err(LiveQueueClosed),
            Either::Right((sent, _)) => sent,
        }
    }

    /// Appends a complete message of the user.
    ///
    /// # Errors
    /// As [`LiveRequestQueue::send`].
    pub async fn content(&self, content: Content) -> Result<(), LiveQueueClosed> {
        self.send(LiveRequest::content(content)).await
    }

    /// Closes the queue. Requests that are in it are still read.
    pub fn close(&self) {
        self.0.closed.cancel();
    }

    /// Returns true if the queue takes no more requests.
    pub fn is_closed(&self) -> bool {
        self.0.closed.is_cancelled()
    }

    /// Removes and returns the first request, once there is one. `None` if the queue is closed and empty. Loses nothing
    /// if the future is dropped.
    pub async fn next(&self) -> Option<LiveRequest> {
        if let Some(request) = self.0.returned.lock_unpoisoned().take() {
            return Some(request);
        }
        let mut receiver = self.0.receiver.lock().await;
        match select(receiver.next(), pin!(self.0.closed.cancelled())).await {
            Either::Left((request, _)) => request,
            Either::Right(_) => None,
        }
    }

    /// Returns a request to the front of the queue, for the agent that answers it.
    pub fn put_back(&self, request: LiveRequest) {
        *self.0.returned.lock_unpoisoned() = Some(request);
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::poll;

    use super::*;

    #[test]
    fn requests_are_read_in_order_also_after_the_end() {
        block_on(async {
            let queue = LiveRequestQueue::new(4);
            queue.content(Content::user("one")).await.unwrap();
            queue.send(LiveRequest::ActivityStart).await.unwrap();
            queue.send(LiveRequest::Close).await.unwrap();
            assert_eq!(queue.content(Content::user("late")).await, Err(LiveQueueClosed));
            let first = queue.next().await.unwrap();
            assert_eq!(first, LiveRequest::content(Content::user("one")));
            queue.put_back(first.clone());
            assert_eq!(queue.next().await, Some(first));
            assert_eq!(queue.next().await, Some(LiveRequest::ActivityStart));
            assert_eq!(queue.next().await, None);
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
            assert_eq!(queue.next().await, Some(LiveRequest::ActivityStart));
            assert_eq!(third.await, Ok(()));
            let mut waiting = pin!(queue.send(LiveRequest::AudioStreamEnd));
            assert!(poll!(waiting.as_mut()).is_pending());
            queue.close();
            assert_eq!(waiting.await, Err(LiveQueueClosed));
        });
    }
}
