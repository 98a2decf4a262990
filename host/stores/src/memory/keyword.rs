//! Keyword search in memory.
//!
//! A search scans all entries of one user, so its cost grows with their number. There is neither stemming nor semantic
//! search: "run" does not find "running". Nothing is written to disk and nothing is evicted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use hatchery_core::sync::RwLockExt;
use hatchery_core::{Content, Event, MemoryEntry, MemoryService, Session, SessionKey, StoreError};

use super::MAX_RESULTS;
use super::tokenizer::{entry_words, query_words};

/// A [`MemoryService`] that finds entries with at least one word of the query: those with most of the words first, then
/// the newest. Returns up to 100 entries. Everything is lost when the process ends.
#[derive(Default)]
pub struct KeywordMemory {
    users: RwLock<HashMap<AppAndUser, Sessions>>,
}

type AppAndUser = (Arc<str>, Arc<str>);

/// The indexed events of each session by its id.
type Sessions = BTreeMap<Arc<str>, Arc<[Arc<IndexedEvent>]>>;

struct IndexedEvent {
    event: Arc<Event>,
    content: Arc<Content>,
    words: BTreeSet<Box<str>>,
}

impl KeywordMemory {
    /// Creates an empty service.
    pub fn new() -> Self {
        Self::default()
    }
}

impl IndexedEvent {
    /// Indexes an event; `None` if it has no words.
    fn of(event: &Arc<Event>) -> Option<Self> {
        let content = event.content.clone()?;
        let words = entry_words(&content);
        (!words.is_empty()).then(|| Self { event: event.clone(), content, words })
    }

    fn entry(&self) -> MemoryEntry {
        MemoryEntry {
            content: Content::clone(&self.content),
            author: Some(self.event.author.clone()).filter(|author| !author.is_empty()),
            timestamp: self.event.timestamp,
        }
    }
}

#[async_trait]
impl MemoryService for KeywordMemory {
    async fn add_session(&self, session: &Session) -> Result<(), StoreError> {
        let indexed: Arc<[Arc<IndexedEvent>]> =
            session.events.iter().filter_map(IndexedEvent::of).map(Arc::new).collect();
        let owner = (session.key.app.clone(), session.key.user.clone());
        let mut users = self.users.write_unpoisoned();
        users.entry(owner).or_default().insert(session.key.id.clone(), indexed);
        Ok(())
    }

    async fn add_events(&self, session: &SessionKey, events: &[Arc<Event>]) -> Result<(), StoreError> {
        let mut indexed: Vec<_> = events.iter().filter_map(IndexedEvent::of).map(Arc::new).collect();
        let owner = (session.app.clone(), session.user.clone());
        let mut users = self.users.write_unpoisoned();
        let known = users.entry(owner).or_default().entry(session.id.clone()).or_default();
        let mut ids: HashSet<_> = known.iter().map(|indexed| indexed.event.id.clone()).collect();
        indexed.retain(|indexed| ids.insert(indexed.event.id.clone()));
        if !indexed.is_empty() {
            *known = known.iter().cloned().chain(indexed).collect();
        }
        Ok(())
    }

    async fn delete_session(&self, session: &SessionKey) -> Result<(), StoreError> {
        let owner = (session.app.clone(), session.user.clone());
        let mut users = self.users.write_unpoisoned();
        if let Some(sessions) = users.get_mut(&owner) {
            sessions.remove(&session.id);
        }
        Ok(())
    }

    async fn search(&self, app: &str, user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        let words = query_words(query);
        let owner = (app.into(), user.into());
        let sessions: Vec<Arc<[Arc<IndexedEvent>]>> = {
            let users = self.users.read_unpoisoned();
            users.get(&owner).map(|sessions| sessions.values().cloned().collect()).unwrap_or_default()
        };
        let mut found: Vec<(usize, &Arc<IndexedEvent>)> = sessions
            .iter()
            .flat_map(|session| session.iter())
            .map(|indexed| (words.intersection(&indexed.words).count(), indexed))
            .filter(|(matches, _)| *matches > 0)
            .collect();
        found.sort_by_key(|(matches, indexed)| Reverse((*matches, indexed.event.timestamp)));
        Ok(found.into_iter().take(MAX_RESULTS).map(|(_, indexed)| indexed.entry()).collect())
    }
}
