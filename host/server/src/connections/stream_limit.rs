//! Concurrency limit of HTTP/2 requests, per peer and in total. Over HTTP/1.1 a connection has one at a time.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use tokio::sync::OwnedSemaphorePermit;

use super::peers::{PeerPermit, Peers};
use crate::error::ApiError;
use crate::headers;
use crate::limit::Limit;
use crate::log_throttle::LogThrottle;
use crate::peer::Peer;

/// Counts the requests in progress. Cheap to clone.
#[derive(Clone)]
pub(super) struct StreamLimit {
    free: Arc<Limit>,
    peers: Peers,
    logs: Arc<Logs>,
}

/// Rate limits for log lines about refused requests.
#[derive(Default)]
struct Logs {
    full: LogThrottle,
    peer_full: LogThrottle,
}

/// A permit for one request in progress.
pub(super) struct StreamPermit {
    _total: OwnedSemaphorePermit,
    /// `None` over a Unix socket.
    _peer: Option<PeerPermit>,
}

impl StreamLimit {
    /// Allows `total` requests in progress, and `per_peer` of each peer.
    pub(super) fn new(total: usize, per_peer: usize) -> Self {
        Self { free: Arc::new(Limit::new(total)), peers: Peers::new(per_peer), logs: Arc::default() }
    }

    /// Changes both numbers. Requests in progress continue.
    pub(super) fn set(&self, total: usize, per_peer: usize) {
        self.free.set(total);
        self.peers.set_max(per_peer);
    }

    /// Counts a request.
    ///
    /// # Errors
    /// The response to one too many.
    pub(super) fn acquire(&self, peer: Option<Peer>) -> Result<StreamPermit, Box<Response>> {
        let Some(total) = self.free.try_acquire(1) else {
            self.logs.full.log(|times| {
                tracing::warn!(
                    times,
                    "the maximum number of HTTP/2 requests is in progress, more are refused; raise \
                     server.max_connections to allow more"
                );
            });
            return Err(refusal("the server has the maximum number of requests in progress; try again"));
        };
        let peer = peer.map(|peer| self.acquire_from(peer)).transpose()?;
        Ok(StreamPermit { _total: total, _peer: peer })
    }

    fn acquire_from(&self, peer: Peer) -> Result<PeerPermit, Box<Response>> {
        self.peers.acquire(peer.0).ok_or_else(|| {
            self.logs.peer_full.log(|times| {
                tracing::warn!(
                    %peer, times,
                    "a peer has the maximum number of HTTP/2 requests in progress, more are refused; raise \
                     server.max_connections_per_peer to allow more, for example behind a proxy"
                );
            });
            refusal("this peer has the maximum number of requests in progress; wait until some have ended")
        })
    }
}

fn refusal(detail: &str) -> Box<Response> {
    let mut response = ApiError { code: "TOO_MANY_STREAMS".into(), ..ApiError::busy(detail) }.into_response();
    headers::add_missing(response.headers_mut());
    Box::new(response)
}
