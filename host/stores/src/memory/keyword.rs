//! Keyword search in memory.
//!
//! A search scans all entries of one user, so its cost grows with their number. There is neither stemming nor semantic
//! search: "run" does not find "running". Nothing is written to disk and nothing is evicted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use hatchery_core::sync::RwLockExt;
use hatchery_core::{Content, Event, MemoryEntry, MemoryService, RememberedSession, Session, SessionKey, StoreError};

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

    async fn sessions(&self, app: Option<&str>, user: Option<&str>) -> Result<Vec<RememberedSession>, StoreError> {
        let users = self.users.read_unpoisoned();
        let is_wanted = |(of_app, of_user): &AppAndUser| {
            app.is_none_or(|app| **of_app == *app) && user.is_none_or(|user| **of_user == *user)
        };
        let mut found = Vec::new();
        for ((app, user), sessions) in users.iter().filter(|(owner, _)| is_wanted(owner)) {
            for (id, indexed) in sessions {
                if let Some(newest) = indexed.iter().map(|indexed| indexed.event.timestamp).max() {
                    let key = SessionKey::new(app.clone(), user.clone(), id.clone());
                    found.push(RememberedSession { key, entries: indexed.len() as u64, newest });
                }
            }
        }
        found.sort_by(|one, other| (other.newest, &*one.key.id).cmp(&(one.newest, &*other.key.id)));
        Ok(found)
    }

    async fn entries(&self, session: &SessionKey) -> Result<Vec<MemoryEntry>, StoreError> {
        let users = self.users.read_unpoisoned();
        let sessions = users.get(&(session.app.clone(), session.user.clone()));
        let indexed = sessions.and_then(|sessions| sessions.get(&session.id));
        let mut entries: Vec<_> = indexed.into_iter().flat_map(|it| it.iter()).map(|it| it.entry()).collect();
        entries.sort_by_key(|entry| entry.timestamp);
        Ok(entries)
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
