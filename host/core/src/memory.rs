//! Memory: search in a user's earlier sessions.

use std::sync::Arc;

use async_trait::async_trait;
use imbl::Vector;
use serde::{Deserialize, Serialize};

use crate::content::Content;
use crate::error::StoreError;
use crate::event::Event;
use crate::id::SessionKey;
use crate::session::Session;
use crate::state::State;
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
/// use std::sync::{Arc, Mutex};
///
/// use async_trait::async_trait;
/// use hatchery_core::{Event, MemoryEntry, MemoryService, Session, SessionKey, StoreError};
///
/// /// Finds messages that contain the query. Unlike a real service, it keeps all users' messages in one list.
/// #[derive(Default)]
/// struct Substring(Mutex<Vec<MemoryEntry>>);
///
/// #[async_trait]
/// impl MemoryService for Substring {
///     async fn add_session(&self, session: &Session) -> Result<(), StoreError> {
///         let events: Vec<_> = session.events.iter().cloned().collect();
///         self.add_events(&session.key, &events).await
///     }
///
///     async fn add_events(&self, _session: &SessionKey, events: &[Arc<Event>]) -> Result<(), StoreError> {
///         let messages = events.iter().filter_map(|event| {
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

    /// Indexes events of a session, in addition to those that are indexed. Events with the id of one that is indexed
    /// for the session are skipped.
    async fn add_events(&self, session: &SessionKey, events: &[Arc<Event>]) -> Result<(), StoreError>;

    /// Deletes the entries of a session. Succeeds if there are none.
    async fn delete_session(&self, session: &SessionKey) -> Result<(), StoreError> {
        let now = Timestamp::now();
        let empty = Session {
            key: session.clone(),
            state: State::default(),
            events: Vector::new(),
            revision: 0,
            created: now,
            last_update_time: now,
        };
        self.add_session(&empty).await
    }

    /// Returns the entries that match the query best, best first.
    async fn search(&self, app: &str, user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError>;
}
