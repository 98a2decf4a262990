//! `http`: requests to web servers, sent like requests of `wasi:http`.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use wasmtime::component::HasSelf;

use super::{Access, StoreAccess, reserve, wit_error};
use crate::contract::bindings::hatchery::agent::http::{Host, HostWithStore};
use crate::contract::convert::{EstimateSize, wit};
use crate::runtime::http::{BufferedRequest, BufferedResponse, HttpError};
use crate::runtime::store::HostState;

impl Host for HostState {}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn send(accessor: &Access<T>, request: wit::HttpRequest) -> Result<wit::HttpResponse, wit::Error> {
        send(accessor, request).await
    }
}

/// Sends a request and waits for its response.
pub(super) async fn send(
    mut store: impl StoreAccess,
    request: wit::HttpRequest,
) -> Result<wit::HttpResponse, wit::Error> {
    Ok(begin(&mut store, request)?.await?.into())
}

/// Starts a request, which proceeds in [`wait`].
pub(super) fn start(mut store: impl StoreAccess, request: wit::HttpRequest) -> Result<Exchange, wit::Error> {
    Ok(Exchange(State::Pending(begin(&mut store, request)?)))
}

type PendingResponse = BoxFuture<'static, Result<BufferedResponse, HttpError>>;

/// Returns the exchange of a request under the policy of its sender, which checks the grants, the limits and the turn.
fn begin(store: &mut impl StoreAccess, request: wit::HttpRequest) -> Result<PendingResponse, wit::Error> {
    let reservation = reserve(store, request.estimated_size())?;
    let sender = store.with_state(|state| state.request_sender());
    let wit::HttpRequest { method, url, headers, body, timeout } = request;
    let timeout = timeout.map(Duration::from_nanos);
    let exchange = async move {
        let _reservation = reservation;
        sender.exchange(BufferedRequest { method, url, headers, body, timeout }).await
    };
    Ok(exchange.boxed())
}

/// A request that a guest waits for by [`wait`].
#[derive(Default)]
pub struct Exchange(State);

#[derive(Default)]
enum State {
    Pending(PendingResponse),
    Ended(Result<BufferedResponse, HttpError>),
    /// The guest has the response.
    #[default]
    Taken,
}

impl Exchange {
    pub(super) fn is_taken(&self) -> bool {
        matches!(self.0, State::Taken)
    }

    /// Returns the response once. `None` if it has not arrived.
    pub(super) fn take_response(&mut self) -> Result<Option<wit::HttpResponse>, wit::Error> {
        match std::mem::take(&mut self.0) {
            State::Ended(result) => Ok(Some(result?.into())),
            State::Taken => Err(wit_error("BAD_INPUT", "the response of this exchange was returned already")),
            pending @ State::Pending(_) => {
                self.0 = pending;
                Ok(None)
            }
        }
    }
}

/// Waits until one of the exchanges has ended or a time has passed. Returns the indices of those that have ended.
pub(super) async fn wait(exchanges: &mut [Exchange], timeout: Option<Duration>) -> Vec<u32> {
    if timeout.is_none() && exchanges.iter().all(Exchange::is_taken) {
        return Vec::new();
    }
    let first = poll_fn(|cx| {
        let mut ended = Vec::new();
        for (index, Exchange(state)) in (0..).zip(exchanges.iter_mut()) {
            if let State::Pending(pending) = state
                && let Poll::Ready(result) = pending.poll_unpin(cx)
            {
                *state = State::Ended(result);
            }
            if let State::Ended(_) = state {
                ended.push(index);
            }
        }
        if ended.is_empty() { Poll::Pending } else { Poll::Ready(ended) }
    });
    match timeout {
        Some(time) => tokio::time::timeout(time, first).await.unwrap_or_default(),
        None => first.await,
    }
}

impl From<BufferedResponse> for wit::HttpResponse {
    fn from(response: BufferedResponse) -> Self {
        Self { status: response.status, headers: response.headers, body: response.body.concat() }
    }
}

impl From<HttpError> for wit::Error {
    fn from(error: HttpError) -> Self {
        wit_error(error.code(), error.to_string())
    }
}
