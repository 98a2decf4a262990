//! The part of a host that an authenticated client of a protocol may use.

use std::sync::Arc;

use crate::wildcard::matches_wildcard;

/// The apps that an authenticated client may use, and the user for whom it acts. A client without a scope is not
/// limited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientScope {
    /// The user of its sessions. `None` if it may act for any.
    pub user: Option<Arc<str>>,
    /// Patterns of the names of apps, in which `*` matches any text.
    pub apps: Arc<[String]>,
}

impl ClientScope {
    /// Returns true if the client may use an app.
    pub fn has_app(&self, name: &str) -> bool {
        self.apps.iter().any(|pattern| matches_wildcard(pattern, name))
    }

    /// Returns true if the client may use every app.
    pub fn has_every_app(&self) -> bool {
        self.apps.iter().any(|pattern| pattern == "*")
    }

    /// Returns true if the client may act for a user.
    pub fn has_user(&self, id: &str) -> bool {
        self.user.as_deref().is_none_or(|user| user == id)
    }
}
