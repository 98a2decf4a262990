//! The open WebSockets, which end with the server.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The open WebSockets.
pub(crate) struct LiveConnections {
    stop: CancellationToken,
    /// Has one receiver per connection.
    open: watch::Sender<()>,
}

/// An open connection, until it is dropped.
pub(crate) struct LiveConnection {
    /// Cancelled when the server stops.
    pub(crate) stop: CancellationToken,
    _open: watch::Receiver<()>,
}

impl Default for LiveConnections {
    fn default() -> Self {
        Self { stop: CancellationToken::new(), open: watch::Sender::new(()) }
    }
}

impl LiveConnections {
    /// Counts a connection.
    pub(crate) fn open(&self) -> LiveConnection {
        LiveConnection { stop: self.stop.clone(), _open: self.open.subscribe() }
    }

    /// Ends all live runs after their current turn and all other connections after their current runs, and waits until
    /// their connections are closed.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.open.closed().await;
    }
}
