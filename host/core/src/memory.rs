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
    /// The message that was remembered.
    pub content: Content,
    /// The author; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The time of the message.
    pub timestamp: Timestamp,
}

/// A session with entries in a memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedSession {
    /// The session, which may have been deleted since.
    pub key: SessionKey,
    /// The number of its entries.
    pub entries: u64,
    /// The time of its newest entry.
    pub newest: Timestamp,
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

    /// Returns the sessions that have entries, of one app and one user if these are given, those with the newest
    /// entries first.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] if the service cannot list them, as by default.
    async fn sessions(&self, app: Option<&str>, user: Option<&str>) -> Result<Vec<RememberedSession>, StoreError> {
        let _ = (app, user);
        Err(StoreError::InvalidRequest("this memory service cannot list its sessions".into()))
    }

    /// Returns the entries of a session, oldest first.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] if the service cannot list them, as by default.
    async fn entries(&self, session: &SessionKey) -> Result<Vec<MemoryEntry>, StoreError> {
        let _ = session;
        Err(StoreError::InvalidRequest("this memory service cannot list its entries".into()))
    }

    /// Returns the calls of an embedder that adding `texts` messages, or a search, makes. 0 without an embedder, as by
    /// default.
    fn embedder_calls(&self, texts: usize) -> usize {
        let _ = texts;
        0
    }

    /// Completes operations in progress and closes files, at the end of a program. Later calls may fail. The default
    /// does nothing.
    async fn close(&self) {}

    /// Returns the entries that match the query best, best first.
    async fn search(&self, app: &str, user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError>;
}
