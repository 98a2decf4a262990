//! Component-model streams between host and guest: adapters to [`futures::Stream`] and [`futures::Sink`], one item per
//! read or write.
//!
//! Nothing is buffered in either direction. The host produces the next item when the guest reads, and takes the next
//! one when the sink has flushed the previous one, so a slow reader slows the writer down.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::{Sink, Stream};
use tokio::sync::oneshot;
use wasmtime::component::{
    Accessor, Destination, HasSelf, Lift, Lower, Source, StreamConsumer, StreamProducer, StreamReader, StreamResult,
};
use wasmtime::{AsContextMut, StoreContextMut};

use crate::contract::convert::wit;
use crate::contract::imports::wit_error;
use crate::runtime::store::HostState;

/// Opens a stream of `items` for the guest.
pub(crate) fn open<T, S>(
    accessor: &Accessor<T, HasSelf<HostState>>,
    items: S,
) -> Result<StreamReader<S::Item>, wit::Error>
where
    T: Send,
    S: Stream + Unpin + Send + 'static,
    S::Item: Lower + Lift + Send + Sync + 'static,
{
    accessor
        .with(|access| StreamReader::new(access, ItemProducer(items)))
        .map_err(|error| wit_error("LIMIT_REACHED", format!("no further stream can be opened: {error:#}")))
}

/// Reads a guest's stream into `sink` until the stream has ended and the guest has no tasks left.
pub(crate) async fn read_to_end<T, S>(
    accessor: &Accessor<HostState>,
    stream: StreamReader<T>,
    sink: S,
) -> wasmtime::Result<()>
where
    T: Lift + Send + 'static,
    S: Sink<T> + Unpin + Send + 'static,
{
    let closed = accessor.with(|access| pipe(access, stream, sink))?;
    // Resolves with an error when the consumer, which has the sender, is dropped.
    let _ = closed.await;
    poll_fn(|cx| accessor.poll_no_interesting_tasks(cx)).await;
    Ok(())
}

/// Reads a guest's stream into `sink` while the guest and the sink continue it.
pub(crate) fn read<T, I, S>(
    accessor: &Accessor<T, HasSelf<HostState>>,
    stream: StreamReader<I>,
    sink: S,
) -> Result<(), wit::Error>
where
    T: Send,
    I: Lift + Send + 'static,
    S: Sink<I> + Unpin + Send + 'static,
{
    let opened = accessor.with(|access| pipe(access, stream, sink));
    opened.map(drop).map_err(|error| wit_error("LIMIT_REACHED", format!("no further stream can be read: {error:#}")))
}

/// Connects a guest's stream to a sink. The receiver resolves, to an error, when the stream is closed.
fn pipe<D, T, S>(
    store: impl AsContextMut<Data = D>,
    stream: StreamReader<T>,
    sink: S,
) -> wasmtime::Result<oneshot::Receiver<()>>
where
    D: 'static,
    T: Lift + Send + 'static,
    S: Sink<T> + Unpin + Send + 'static,
{
    let (open, closed) = oneshot::channel::<()>();
    stream.pipe(store, SinkConsumer { sink, is_sent: false, _open: open, item: PhantomData })?;
    Ok(closed)
}

/// Produces the items of a stream, one per read.
struct ItemProducer<S>(S);

impl<D, S> StreamProducer<D> for ItemProducer<S>
where
    S: Stream + Unpin + Send + 'static,
    S::Item: Lower + Send + Sync + 'static,
{
    type Item = S::Item;
    type Buffer = Option<S::Item>;

    fn poll_produce<'a>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut store: StoreContextMut<'a, D>,
        mut destination: Destination<'a, Self::Item, Self::Buffer>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        if destination.remaining(&mut store) == Some(0) {
            return Poll::Ready(Ok(StreamResult::Completed));
        }
        match Pin::new(&mut self.0).poll_next(cx) {
            Poll::Pending if finish => Poll::Ready(Ok(StreamResult::Cancelled)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(Ok(StreamResult::Dropped)),
            Poll::Ready(item) => {
                destination.set_buffer(item);
                Poll::Ready(Ok(StreamResult::Completed))
            }
        }
    }
}

/// Sends the items of a guest's stream to a sink. A write of the guest completes when the sink has flushed its item,
/// and the stream is closed when the sink fails.
struct SinkConsumer<T, S> {
    sink: S,
    /// True while the sink has an item that it has not flushed.
    is_sent: bool,
    _open: oneshot::Sender<()>,
    item: PhantomData<fn(T)>,
}

impl<D, T, S> StreamConsumer<D> for SinkConsumer<T, S>
where
    T: Lift + Send + 'static,
    S: Sink<T> + Unpin + Send + 'static,
{
    type Item = T;

    fn poll_consume(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        store: StoreContextMut<D>,
        mut source: Source<'_, Self::Item>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        let this = &mut *self;
        if !this.is_sent {
            let nothing = if finish { Poll::Ready(Ok(StreamResult::Cancelled)) } else { Poll::Pending };
            match Pin::new(&mut this.sink).poll_ready(cx) {
                Poll::Pending => return nothing,
                Poll::Ready(Err(_)) => return Poll::Ready(Ok(StreamResult::Dropped)),
                Poll::Ready(Ok(())) => {}
            }
            let mut next = None;
            source.read(store, &mut next)?;
            let Some(item) = next else { return nothing };
            if Pin::new(&mut this.sink).start_send(item).is_err() {
                return Poll::Ready(Ok(StreamResult::Dropped));
            }
            this.is_sent = true;
        }
        let flushed = ready!(Pin::new(&mut this.sink).poll_flush(cx));
        this.is_sent = false;
        Poll::Ready(Ok(if flushed.is_ok() { StreamResult::Completed } else { StreamResult::Dropped }))
    }
}
