//! The memory that request bodies take together, as they came and parsed. It is counted, not measured.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;
use hatchery::byte_size::ByteSize;

/// Bytes are counted in units of this many, so that their number fits into a permit.
const UNIT: usize = 1024;

/// What all bodies may take at one time.
#[derive(Debug, Clone)]
pub(crate) struct BodyBudget {
    free: Arc<Semaphore>,
    most: ByteSize,
}

impl BodyBudget {
    /// Allows `most` bytes.
    pub(crate) fn new(most: ByteSize) -> Self {
        let units = most.bytes().div_ceil(UNIT).clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(units)), most }
    }

    /// Bytes that are left.
    pub(crate) fn available(&self) -> usize {
        self.free.available_permits() * UNIT
    }
}

/// What the body of one request takes. Cheap to clone; the memory is given back with the last clone.
#[derive(Debug, Clone)]
pub(crate) struct BodyMemory {
    budget: BodyBudget,
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl BodyMemory {
    fn new(budget: BodyBudget) -> Self {
        Self { budget, held: Arc::default() }
    }

    /// Takes as much more as makes it `bytes` in all.
    ///
    /// # Errors
    /// 413 when that is more than all bodies may take, 503 when others have taken it.
    pub(crate) fn grow_to(&self, bytes: usize) -> Result<(), ApiError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let units = bytes.div_ceil(UNIT).saturating_sub(held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
        if units == 0 {
            return Ok(());
        }
        let units = u32::try_from(units).ok().filter(|_| bytes <= self.budget.most.bytes());
        let Some(units) = units else { return Err(too_large(self.budget.most)) };
        let more = self.budget.free.clone().try_acquire_many_owned(units).map_err(|_| exhausted())?;
        match held.as_mut() {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

fn too_large(most: ByteSize) -> ApiError {
    let detail = format!(
        "the body would take more memory than {most}, which is for all bodies together; raise server.body_memory in hatchery.yaml"
    );
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", detail)
}

fn exhausted() -> ApiError {
    let error = ApiError::busy(
        "the bodies of other requests take all the memory that is for them; try again, or raise server.body_memory in hatchery.yaml",
    );
    ApiError { code: "BODY_MEMORY".into(), ..error }
}

/// Gives each request memory for its body, and holds what it took until its answer has been sent.
pub(crate) async fn hold(State(budget): State<BodyBudget>, mut request: Request, next: Next) -> Response {
    let memory = BodyMemory::new(budget);
    request.extensions_mut().insert(memory.clone());
    let response = next.run(request).await;
    if memory.is_empty() {
        return response;
    }
    response.map(|body| Body::new(Holding { body, _memory: memory }))
}

/// An answer whose request's body is still in memory.
struct Holding {
    body: Body,
    _memory: BodyMemory,
}

impl HttpBody for Holding {
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
    fn admitted_bytes_are_counted_and_given_back() {
        let budget = BodyBudget::new(ByteSize(64 * UNIT));
        let (a, b) = (BodyMemory::new(budget.clone()), BodyMemory::new(budget.clone()));
        a.grow_to(40 * UNIT).unwrap();
        a.grow_to(30 * UNIT).unwrap();
        assert_eq!(budget.available(), 24 * UNIT, "what is held does not shrink");
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
    fn a_body_that_never_fits_is_not_told_to_come_back() {
        let memory = BodyMemory::new(BodyBudget::new(ByteSize(4 * UNIT)));
        let error = memory.grow_to(4 * UNIT + 1).unwrap_err();
        assert_eq!((error.status.as_u16(), &*error.code), (413, "BODY_TOO_LARGE"));
        assert_eq!(
            error.detail,
            "the body would take more memory than 4 KiB (4096 bytes), which is for all bodies together; raise server.body_memory \
             in hatchery.yaml"
        );
        assert!(memory.is_empty());
    }
}
