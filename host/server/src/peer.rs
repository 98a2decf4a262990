//! The client address of a request.

use std::fmt;
use std::net::IpAddr;

use axum::http::Extensions;

/// The address at the other end of the connection of a request: of the client, or of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Peer {
    /// Returns the peer of a request. `None` if it did not arrive over a connection of the server.
    pub(crate) fn from_extensions(extensions: &Extensions) -> Option<Self> {
        extensions.get().copied()
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
