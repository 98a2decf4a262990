//! Bodies on their way: counted, and not waited for without end.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};
use wasmtime_wasi_http::{Error, WasiBody};

use super::fault::{AnyError, Fault, Patience};
use crate::runtime::limits::{Limit, Limits};
use crate::runtime::store::stream::counted_bytes;
use crate::runtime::store::tally::{Open, Tally};

/// When something was sent last.
#[derive(Clone)]
pub(super) struct Progress(Arc<Mutex<Instant>>);

impl Progress {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(super) fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(super) fn last(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of a request.
pub(super) struct Upload {
    pub(super) body: WasiBody,
    pub(super) tally: Arc<Tally>,
    pub(super) progress: Progress,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.progress.note();
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|error| Fault::Broken(error.to_string()))?;
            if let Some(bytes) = frame.data_ref() {
                self.tally.bytes(bytes.len()).map_err(Fault::from)?;
            }
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response; its request is open until it is read or dropped.
pub(super) struct Download {
    /// Nothing once it is over.
    body: Option<(Incoming, Open)>,
    tally: Arc<Tally>,
    limits: Limits,
    received: u64,
    patience: Patience,
    /// Runs while the guest waits for more.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Download {
    pub(super) fn new(body: Incoming, open: Open, tally: Arc<Tally>, limits: Limits, patience: Patience) -> Self {
        Self { body: Some((body, open)), tally, limits, received: 0, patience, waiting: None }
    }

    /// A piece that has come, unless it is too much. It counts to the instance's memory until the guest has read it.
    fn accept(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, Fault> {
        let bytes = match frame.into_data() {
            Ok(bytes) => bytes,
            Err(trailers) => return Ok(trailers),
        };
        self.received = self.received.saturating_add(bytes.len() as u64);
        if self.received > self.limits.response_body {
            return Err(self.tally.exceed(Limit::ResponseBody).into());
        }
        self.tally.bytes(bytes.len())?;
        let held = self.tally.hold(bytes.len() as u64)?;
        Ok(Frame::data(counted_bytes(bytes, held)))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let Some((body, _)) = &mut self.body else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            self.waiting = None;
            return Poll::Ready(frame.map(|frame| self.accept(frame.map_err(|error| Fault::of(&error))?)));
        }
        let time = self.patience.time;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(time)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Some(Err(self.patience.fault.clone())))
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(self.poll(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Error::from)))
    }
}
