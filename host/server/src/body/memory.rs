//! A semaphore for the total memory of request bodies, received and parsed. Sizes are estimated, not measured.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use axum::response::Response;
use hatchery_core::sync::MutexExt;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::ApiError;
use crate::limit::Limit;
use hatchery::ByteSize;

/// Bytes per permit of the semaphore, whose permits are limited to `u32`.
const UNIT: usize = 1024;

/// A response of up to this many bytes is not counted.
const MAX_UNCOUNTED: usize = 1 << 20;

/// The total memory of all request bodies, and of large responses.
#[derive(Debug, Clone)]
pub(crate) struct BodyBudget {
    free: Arc<Limit>,
    /// In bytes.
    limit: Arc<AtomicUsize>,
}

impl BodyBudget {
    pub(crate) fn new(limit: ByteSize) -> Self {
        let free = Arc::new(Limit::new(limit.bytes().div_ceil(UNIT)));
        Self { free, limit: Arc::new(AtomicUsize::new(limit.bytes())) }
    }

    /// Changes the total. Bodies that are being received keep their reservations.
    pub(crate) fn set(&self, limit: ByteSize) {
        self.limit.store(limit.bytes(), Ordering::Relaxed);
        self.free.set(limit.bytes().div_ceil(UNIT));
    }

    fn limit(&self) -> ByteSize {
        ByteSize(self.limit.load(Ordering::Relaxed))
    }

    /// Returns the remaining bytes.
    pub(crate) fn available(&self) -> usize {
        self.free.available() * UNIT
    }
}

/// The reserved memory of one request body. Cheap to clone; it is released with the last clone.
#[derive(Debug, Clone)]
pub(crate) struct BodyMemory {
    budget: BodyBudget,
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl BodyMemory {
    pub(crate) fn new(budget: BodyBudget) -> Self {
        Self { budget, held: Arc::default() }
    }

    /// Increases the reservation to `bytes`. It never shrinks.
    ///
    /// # Errors
    /// 413 if it exceeds the total for all bodies, 503 if other bodies use the memory.
    pub(crate) fn grow_to(&self, bytes: usize) -> Result<(), ApiError> {
        let mut held = self.held.lock_unpoisoned();
        let units = bytes.div_ceil(UNIT).saturating_sub(held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
        if units == 0 {
            return Ok(());
        }
        let units = u32::try_from(units).ok().filter(|_| bytes <= self.budget.limit().bytes());
        let Some(units) = units else { return Err(too_large(self.budget.limit())) };
        let more = self.budget.free.try_acquire(units).ok_or_else(exhausted)?;
        match held.as_mut() {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        Ok(())
    }

    /// Reserves the memory of a response that is not sent piece by piece. One larger than the memory of all bodies
    /// takes all of it.
    ///
    /// # Errors
    /// 503 if other bodies use it.
    pub(crate) fn count_response(&self, response: &Response) -> Result<(), ApiError> {
        let length = response.body().size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        match length.filter(|length| *length > MAX_UNCOUNTED) {
            Some(length) => self.grow_to(length.min(self.budget.limit().bytes())),
            None => Ok(()),
        }
    }

    /// Holds the reservation until the body of the response is sent.
    pub(crate) fn hold_until_sent(self, response: Response) -> Response {
        if self.is_empty() { response } else { hold_until_sent(response, self) }
    }

    fn is_empty(&self) -> bool {
        self.held.lock_unpoisoned().is_none()
    }
}

/// The remedy for too little memory for bodies.
const ADVICE: &str = "raise server.body_memory in hatchery.yaml to allow more";

fn too_large(limit: ByteSize) -> ApiError {
    let detail = format!("the body needs more memory than all request bodies may use, {limit}");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", detail).advise(ADVICE)
}

fn exhausted() -> ApiError {
    let error = ApiError::busy("other requests use all memory for bodies; try again");
    ApiError { code: "BODY_MEMORY".into(), ..error }.advise(ADVICE)
}

/// Holds the resources of a request until the body of its response is sent.
pub(crate) fn hold_until_sent(response: Response, held: impl Send + Unpin + 'static) -> Response {
    response.map(|body| Body::new(HoldingBody { body, _held: held }))
}

/// A response body that holds the resources of its request.
struct HoldingBody<T> {
    body: Body,
    _held: T,
}

impl<T: Unpin> HttpBody for HoldingBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bytes_are_counted_and_released() {
        let budget = BodyBudget::new(ByteSize(64 * UNIT));
        let (a, b) = (BodyMemory::new(budget.clone()), BodyMemory::new(budget.clone()));
        a.grow_to(40 * UNIT).unwrap();
        a.grow_to(30 * UNIT).unwrap();
        assert_eq!(budget.available(), 24 * UNIT, "a reservation does not shrink");
        b.grow_to(24 * UNIT).unwrap();
        let error = b.grow_to(24 * UNIT + 1).unwrap_err();
        assert_eq!((error.status.as_u16(), &*error.code, error.retry_after.is_some()), (503, "BODY_MEMORY", true));
        drop(a);
        b.grow_to(24 * UNIT + 1).unwrap();
        assert_eq!(budget.available(), 39 * UNIT);
        drop(b);
        assert_eq!(budget.available(), 64 * UNIT);
    }

    #[test]
    fn a_body_that_can_never_fit_has_no_retry_after() {
        let memory = BodyMemory::new(BodyBudget::new(ByteSize(4 * UNIT)));
        let error = memory.grow_to(4 * UNIT + 1).unwrap_err();
        assert_eq!((error.status.as_u16(), &*error.code), (413, "BODY_TOO_LARGE"));
        assert_eq!(error.detail, "the body needs more memory than all request bodies may use, 4 KiB (4096 bytes)");
        assert!(memory.is_empty());
    }
}
