//! Request and response bodies: counted against the limits of the call, with read timeouts.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hatchery_core::sync::MutexExt;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};
use wasmtime_wasi_http::WasiBody;

use super::error::{AnyError, HttpError, ReadTimeout};
use crate::runtime::limits::{Limit, Limits};
use crate::runtime::store::call_usage::{CallUsage, OpenRequest};
use crate::runtime::store::file_stream::counted_bytes;

/// The body of a response of any origin.
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, HttpError>;

/// Time of the last sent data. Clones share it.
#[derive(Clone)]
pub(super) struct Progress(Arc<Mutex<Instant>>);

impl Progress {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(super) fn touch(&self) {
        *self.0.lock_unpoisoned() = Instant::now();
    }

    pub(super) fn last(&self) -> Instant {
        *self.0.lock_unpoisoned()
    }
}

pub(super) struct Upload {
    pub(super) body: WasiBody,
    pub(super) usage: Arc<CallUsage>,
    pub(super) progress: Progress,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.progress.touch();
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|error| HttpError::Broken(error.to_string()))?;
            if let Some(bytes) = frame.data_ref() {
                self.usage.count_bytes(bytes.len()).map_err(HttpError::from)?;
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

/// The body of a response. Its request counts as guard until the body is read or dropped.
pub(super) struct Download {
    /// `None` after its end or an error.
    body: Option<(Incoming, OpenRequest)>,
    usage: Arc<CallUsage>,
    limits: Limits,
    received: u64,
    timeout: ReadTimeout,
    /// Runs while the guest waits for data.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Download {
    pub(super) fn new(
        body: Incoming,
        guard: OpenRequest,
        usage: Arc<CallUsage>,
        limits: Limits,
        timeout: ReadTimeout,
    ) -> Self {
        Self { body: Some((body, guard)), usage, limits, received: 0, timeout, timer: None }
    }

    /// Counts a frame and checks it against the limits. It counts to the memory of the instance until the guest has
    /// read it.
    fn count(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, HttpError> {
        let bytes = match frame.into_data() {
            Ok(bytes) => bytes,
            Err(trailers) => return Ok(trailers),
        };
        self.received = self.received.saturating_add(bytes.len() as u64);
        if self.received > self.limits.response_body {
            return Err(self.usage.limit_exceeded(Limit::ResponseBody).into());
        }
        self.usage.count_bytes(bytes.len())?;
        let reservation = self.usage.reserve(bytes.len() as u64)?;
        Ok(Frame::data(counted_bytes(bytes, reservation)))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let Some((body, _)) = &mut self.body else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            self.timer = None;
            return Poll::Ready(frame.map(|frame| self.count(frame.map_err(|error| HttpError::from_client(&error))?)));
        }
        let time = self.timeout.after;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(time)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Some(Err(match &self.timeout.error {
            HttpError::Limit(exceeded) => self.usage.limit_exceeded(exceeded.limit).into(),
            error => error.clone(),
        })))
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let frame = ready!(self.poll(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }
}
