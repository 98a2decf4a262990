//! Streams of the contract outside of components, where the streams of `wit-bindgen` do not work.

use std::future::poll_fn;

use futures::channel::mpsc;
use futures::stream::LocalBoxStream;
use futures::{SinkExt, Stream, StreamExt};

/// A stream from the host.
pub(crate) struct StreamReader<T>(LocalBoxStream<'static, T>);

impl<T> StreamReader<T> {
    pub(super) fn new(items: impl Stream<Item = T> + 'static) -> Self {
        Self(items.boxed_local())
    }

    /// Returns the next item. `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<T> {
        self.0.next().await
    }
}

/// A stream to the host.
pub(crate) enum StreamWriter<T: 'static> {
    /// A stream of a component's export, which is not called outside of a component.
    Export(wit_bindgen::StreamWriter<T>),
    /// A stream to the mock host.
    Test(mpsc::Sender<T>),
}

impl<T> StreamWriter<T> {
    /// Writes an item and waits until the host has taken it. Returns the item if the host has closed the stream.
    pub(crate) async fn write_one(&mut self, item: T) -> Option<T> {
        let sender = match self {
            Self::Export(writer) => return writer.write_one(item).await,
            Self::Test(sender) => sender,
        };
        if poll_fn(|cx| sender.poll_ready(cx)).await.is_err() {
            return Some(item);
        }
        if let Err(refused) = sender.try_send(item) {
            return Some(refused.into_inner());
        }
        // If the host is dropped while it holds the item, the item counts as taken.
        let _ = sender.flush().await;
        None
    }
}

impl<T> From<wit_bindgen::StreamWriter<T>> for StreamWriter<T> {
    fn from(writer: wit_bindgen::StreamWriter<T>) -> Self {
        Self::Export(writer)
    }
}
