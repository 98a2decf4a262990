//! Memory: search in a user's earlier sessions.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::content::Content;
use crate::error::StoreError;
use crate::session::Session;
use crate::time::Timestamp;

/// A remembered message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryEntry {
    /// The message.
    pub content: Content,
    /// The author; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The time of the message.
    pub timestamp: Timestamp,
}

/// Indexes sessions and searches them. All implementations pass the same contract tests.
///
/// Called from the tasks of runs and of HTTP requests, concurrently. Methods may await, but not block.
///
/// ```
/// use std::sync::Mutex;
///
/// use async_trait::async_trait;
/// use hatchery_core::{MemoryEntry, MemoryService, Session, StoreError};
///
/// /// Finds messages that contain the query. Unlike a real service, it keeps all users' messages in one list.
/// #[derive(Default)]
/// struct Substring(Mutex<Vec<MemoryEntry>>);
///
/// #[async_trait]
/// impl MemoryService for Substring {
///     async fn add_session(&self, session: &Session) -> Result<(), StoreError> {
///         let messages = session.events.iter().filter_map(|event| {
///             let content = event.content.as_deref()?.clone();
///             Some(MemoryEntry { content, author: Some(event.author.clone()), timestamp: event.timestamp })
///         });
///         self.0.lock().unwrap().extend(messages);
///         Ok(())
///     }
///
///     async fn search(&self, _app: &str, _user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError> {
///         let entries = self.0.lock().unwrap();
///         Ok(entries.iter().filter(|entry| entry.content.text().contains(query)).cloned().collect())
///     }
/// }
///
/// # futures::executor::block_on(async {
/// assert!(Substring::default().search("app", "ada", "rome").await.unwrap().is_empty());
/// # });
/// ```
#[async_trait]
pub trait MemoryService: Send + Sync {
    /// Indexes a session's events. Adding a session again replaces its entries.
    async fn add_session(&self, session: &Session) -> Result<(), StoreError>;

    /// Returns the entries that match the query best, best first.
    async fn search(&self, app: &str, user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError>;
}
