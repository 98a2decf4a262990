//! Streams of the contract without a component: what `wit-bindgen` has for them works in components only.

use std::future::poll_fn;

use futures::channel::mpsc;
use futures::stream::LocalBoxStream;
use futures::{SinkExt, Stream, StreamExt};

/// What the host gives piece by piece.
pub(crate) struct StreamReader<T>(LocalBoxStream<'static, T>);

impl<T> StreamReader<T> {
    pub(super) fn new(items: impl Stream<Item = T> + 'static) -> Self {
        Self(items.boxed_local())
    }

    /// The next item; nothing after the last.
    pub(crate) async fn next(&mut self) -> Option<T> {
        self.0.next().await
    }
}

/// What the host reads piece by piece.
pub(crate) enum StreamWriter<T: 'static> {
    /// Of a component's export, which nobody calls outside of a component.
    Export(wit_bindgen::StreamWriter<T>),
    /// Of a test's host.
    Test(mpsc::Sender<T>),
}

impl<T> StreamWriter<T> {
    /// Waits until the host has taken the item; gives it back when the host wants no more.
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
        // A host that goes away with the item in its hands has taken it.
        let _ = sender.flush().await;
        None
    }
}

impl<T> From<wit_bindgen::StreamWriter<T>> for StreamWriter<T> {
    fn from(writer: wit_bindgen::StreamWriter<T>) -> Self {
        Self::Export(writer)
    }
}
