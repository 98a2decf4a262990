//! The number of open sessions, in total and of each client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;

/// Maximum number of sessions.
const MAX_SESSIONS: usize = 256;

/// Maximum number of sessions of one client, which cannot keep all others out.
const MAX_SESSIONS_OF_CLIENT: usize = 64;

/// Counts the open sessions. Cheap to clone; clones share the numbers.
#[derive(Clone, Default)]
pub(super) struct SessionLimit(Arc<Mutex<OpenSessions>>);

#[derive(Default)]
struct OpenSessions {
    total: usize,
    /// The sessions of clients with credentials, by their users.
    of_clients: HashMap<Arc<str>, usize>,
}

/// A permit for one session. It is released when it is dropped.
pub(super) struct SessionPermit {
    limit: SessionLimit,
    client: Option<Arc<str>>,
}

impl SessionLimit {
    /// Counts a session of a client. `None` is a client without credentials.
    ///
    /// # Errors
    /// The reason why there is no further session.
    pub(super) fn acquire(&self, client: Option<Arc<str>>) -> Result<SessionPermit, String> {
        let mut open = self.0.lock_unpoisoned();
        if open.total >= MAX_SESSIONS {
            return Err(format!("the maximum of {MAX_SESSIONS} MCP sessions is open; try again later"));
        }
        if let Some(client) = &client {
            let count = open.of_clients.entry(client.clone()).or_default();
            if *count >= MAX_SESSIONS_OF_CLIENT {
                let max = MAX_SESSIONS_OF_CLIENT;
                return Err(format!("these credentials have the maximum of {max} MCP sessions; close some"));
            }
            *count += 1;
        }
        open.total += 1;
        drop(open);
        Ok(SessionPermit { limit: self.clone(), client })
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        let mut open = self.limit.0.lock_unpoisoned();
        open.total -= 1;
        if let Some(client) = &self.client
            && let Some(count) = open.of_clients.get_mut(client)
        {
            *count -= 1;
            if *count == 0 {
                open.of_clients.remove(client);
            }
        }
    }
}
