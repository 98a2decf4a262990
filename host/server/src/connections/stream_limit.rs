//! The number of HTTP/2 requests in progress, of a peer and in total. Over HTTP/1.1 a connection has one at a time.

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
    log: Arc<LogThrottle>,
}

/// The place of a request, until it is dropped.
pub(super) struct StreamPermit {
    _total: OwnedSemaphorePermit,
    /// `None` over a Unix socket.
    _peer: Option<PeerPermit>,
}

impl StreamLimit {
    /// Allows `total` requests in progress, and `per_peer` of each peer.
    pub(super) fn new(total: usize, per_peer: usize) -> Self {
        Self { free: Arc::new(Limit::new(total)), peers: Peers::new(per_peer), log: Arc::default() }
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
        let permit = || {
            let total = self.free.try_acquire(1)?;
            let peer = match peer {
                Some(Peer(address)) => Some(self.peers.acquire(address)?),
                None => None,
            };
            Some(StreamPermit { _total: total, _peer: peer })
        };
        permit().ok_or_else(|| {
            self.log.log(|times| {
                tracing::warn!(
                    peer = peer.map(|peer| peer.to_string()),
                    times,
                    "a peer has the maximum number of HTTP/2 requests in progress, more are refused; raise \
                     server.max_connections_per_peer to allow more, for example behind a proxy"
                );
            });
            Box::new(refusal())
        })
    }
}

fn refusal() -> Response {
    let error = ApiError::busy("this peer has the maximum number of requests in progress; wait until some have ended");
    let mut response = ApiError { code: "TOO_MANY_STREAMS".into(), ..error }.into_response();
    headers::add_missing(response.headers_mut());
    response
}
