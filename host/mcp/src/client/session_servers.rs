//! Connections to a server with the headers of sessions: one for each set of headers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use hatchery_core::CallContext;
use hatchery_core::sync::MutexExt;

use super::McpError;
use super::supervisor::{ConnectionStatus, Server};

/// Maximum number of connections. The one that was not used for longest is closed.
const MAX_CONNECTIONS: usize = 64;

/// The connections, least recently used first.
#[derive(Default)]
pub(super) struct SessionServers(Mutex<Vec<SessionServer>>);

struct SessionServer {
    headers: BTreeMap<String, String>,
    server: Arc<Server>,
}

impl SessionServers {
    /// Returns the connection with these headers, and the one that is to be closed.
    fn get(
        &self,
        headers: BTreeMap<String, String>,
        create: impl FnOnce(BTreeMap<String, String>) -> Arc<Server>,
    ) -> (Arc<Server>, Option<Arc<Server>>) {
        let mut servers = self.0.lock_unpoisoned();
        let known = servers.iter().position(|known| known.headers == headers).map(|index| servers.remove(index).server);
        let server = known.unwrap_or_else(|| create(headers.clone()));
        servers.push(SessionServer { headers, server: server.clone() });
        let unused = (servers.len() > MAX_CONNECTIONS).then(|| servers.remove(0).server);
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
    /// Returns the connection for the session of a call.
    ///
    /// # Errors
    /// If the session has no headers for it, or the host stops.
    pub(super) async fn for_session(self: &Arc<Self>, cx: &CallContext) -> Result<Arc<Self>, McpError> {
        let Some(provider) = &self.config.header_provider else { return Ok(self.clone()) };
        let headers = provider.headers(cx).await.map_err(McpError::SessionHeaders)?;
        if self.is_stopped() {
            return Err(McpError::Stopped);
        }
        let create = |headers| Self::new(self.name.clone(), self.config.with_session_headers(headers));
        let (server, unused) = self.sessions.get(headers, create);
        if let Some(unused) = unused {
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
    fn the_connection_that_was_not_used_for_longest_is_closed() {
        let servers = SessionServers::default();
        let get = |user: usize| {
            let headers = BTreeMap::from([("x-user".to_owned(), user.to_string())]);
            let config = ServerConfig::new(Transport::Http(HttpServer::default()));
            servers.get(headers, |_| Server::new(user.to_string(), config))
        };
        for user in 0..MAX_CONNECTIONS {
            assert!(get(user).1.is_none());
        }
        let (again, unused) = get(0);
        assert_eq!((&*again.name, unused.is_none()), ("0", true));
        assert_eq!(&*get(MAX_CONNECTIONS).1.unwrap().name, "1");
    }
}
