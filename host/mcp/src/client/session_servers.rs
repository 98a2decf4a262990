//! Connections to a server with the headers of sessions: one for each set of headers.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use hatchery_core::CallContext;
use hatchery_core::sync::MutexExt;

use super::McpError;
use super::supervisor::{ConnectionStatus, Server};

/// Maximum number of connections, beyond which those that were not used for longest are closed. Those in use stay open.
const MAX_CONNECTIONS: usize = 64;

/// The connections, least recently used first.
#[derive(Default)]
pub(super) struct SessionServers(Mutex<Vec<SessionServer>>);

struct SessionServer {
    headers: BTreeMap<String, String>,
    server: ServerInUse,
}

/// A server whose connection is used, or may be. Clones count as uses.
#[derive(Clone)]
pub(super) struct ServerInUse {
    server: Arc<Server>,
    uses: Arc<()>,
}

impl ServerInUse {
    fn new(server: Arc<Server>) -> Self {
        Self { server, uses: Arc::default() }
    }

    /// Returns true if this is the only clone.
    fn is_last(&self) -> bool {
        Arc::strong_count(&self.uses) == 1
    }
}

impl Deref for ServerInUse {
    type Target = Arc<Server>;

    fn deref(&self) -> &Arc<Server> {
        &self.server
    }
}

impl SessionServers {
    /// Returns the connection with these headers, and those that are to be closed.
    fn get(
        &self,
        headers: BTreeMap<String, String>,
        create: impl FnOnce(BTreeMap<String, String>) -> Arc<Server>,
    ) -> (ServerInUse, Vec<ServerInUse>) {
        let mut servers = self.0.lock_unpoisoned();
        let known = servers.iter().position(|known| known.headers == headers).map(|index| servers.remove(index).server);
        let server = known.unwrap_or_else(|| ServerInUse::new(create(headers.clone())));
        servers.push(SessionServer { headers, server: server.clone() });
        let surplus = servers.len().saturating_sub(MAX_CONNECTIONS);
        let unused = servers.extract_if(.., |known| known.server.is_last()).take(surplus).map(|known| known.server);
        let unused = unused.collect();
        (server, unused)
    }

    /// Returns the status of a connection that is ready, or else of the one that was used last. `None` if there is
    /// none.
    pub(super) fn status(&self) -> Option<ConnectionStatus> {
        let statuses: Vec<_> = self.0.lock_unpoisoned().iter().map(|known| known.server.status()).collect();
        let ready = statuses.iter().find(|status| matches!(status, ConnectionStatus::Ready(_)));
        ready.or(statuses.last()).cloned()
    }

    /// Closes all connections.
    pub(super) fn close(&self) -> BoxFuture<'_, ()> {
        let servers = std::mem::take(&mut *self.0.lock_unpoisoned());
        let close = async move {
            futures::future::join_all(servers.iter().map(|known| known.server.close())).await;
        };
        close.boxed()
    }
}

impl Server {
    /// Returns the connection for the session of a call. It stays open as long as the result is kept.
    ///
    /// # Errors
    /// If the session has no headers for it, or the host stops.
    pub(super) async fn for_session(self: &Arc<Self>, cx: &CallContext) -> Result<ServerInUse, McpError> {
        let Some(provider) = &self.config.header_provider else { return Ok(ServerInUse::new(self.clone())) };
        let headers = provider.headers(cx).await.map_err(McpError::SessionHeaders)?;
        if self.is_stopped() {
            return Err(McpError::Stopped);
        }
        let create = |headers| Self::new(self.name.clone(), self.config.with_session_headers(headers));
        let (server, unused) = self.sessions.get(headers, create);
        for unused in unused {
            tokio::spawn(async move { unused.close().await });
        }
        Ok(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HttpServer, ServerConfig, Transport};

    #[test]
    fn the_connections_that_were_not_used_for_longest_are_closed_unless_they_are_in_use() {
        let servers = SessionServers::default();
        let get = |user: usize| {
            let headers = BTreeMap::from([("x-user".to_owned(), user.to_string())]);
            let config = ServerConfig::new(Transport::Http(HttpServer::default()));
            servers.get(headers, |_| Server::new(user.to_string(), config))
        };
        let names = |servers: Vec<ServerInUse>| servers.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
        for user in 0..MAX_CONNECTIONS {
            assert!(get(user).1.is_empty());
        }
        let (first, unused) = get(0);
        assert_eq!((&*first.name, unused.len()), ("0", 0));
        assert_eq!(names(get(MAX_CONNECTIONS).1), ["1"]);
        let others: Vec<_> = (2..=MAX_CONNECTIONS).map(|user| get(user).0).collect();
        let (last, unused) = get(MAX_CONNECTIONS + 1);
        assert!(unused.is_empty(), "all are in use");
        drop((first, others));
        assert_eq!(names(get(MAX_CONNECTIONS + 2).1), ["0", "2"]);
        drop(last);
    }
}
