//! Memory: what was said in a user's earlier sessions.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::content::Content;
use crate::error::StoreError;
use crate::session::Session;
use crate::time::Timestamp;

/// Something remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryEntry {
    /// What was said.
    pub content: Content,
    /// Who said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// When.
    pub timestamp: Timestamp,
}

/// Remembers sessions and finds what was said in them. Every implementation passes the same suite of tests.
#[async_trait]
pub trait MemoryService: Send + Sync {
    /// Remembers a session's events; adding it again replaces what was remembered of it.
    async fn add_session(&self, session: &Session) -> Result<(), StoreError>;

    /// What fits the query best, best first.
    async fn search(&self, app: &str, user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError>;
}
