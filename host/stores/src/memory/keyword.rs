//! Keyword search in memory.
//!
//! A search scans all entries of one user, so its cost grows with their number. There is no stemming: "run" does not
//! find "running". With an embedder, messages of similar meaning are found too. Nothing is written to disk and nothing
//! is evicted.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use hatchery_core::sync::RwLockExt;
use hatchery_core::{Content, Event, MemoryEntry, MemoryService, RememberedSession, Session, SessionKey, StoreError};

use super::MAX_RESULTS;
use super::similarity::{SimilaritySearch, UnitVector, embedded_text, fuse};
use super::tokenizer::{entry_words, query_words};

/// A [`MemoryService`] that finds entries with at least one word of the query: those with most of the words first, then
/// the newest. Returns up to 100 entries. With a [`SimilaritySearch`], also finds entries of similar meaning.
/// Everything is lost when the process ends.
#[derive(Default)]
pub struct KeywordMemory {
    users: RwLock<HashMap<AppAndUser, Sessions>>,
    similarity: Option<SimilaritySearch>,
}

type AppAndUser = (Arc<str>, Arc<str>);

/// The indexed events of each session by its id.
type Sessions = BTreeMap<Arc<str>, Arc<[Arc<IndexedEvent>]>>;

struct IndexedEvent {
    event: Arc<Event>,
    content: Arc<Content>,
    words: BTreeSet<Box<str>>,
    vector: Option<UnitVector>,
}

impl KeywordMemory {
    /// Creates an empty service.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a search by meaning.
    #[must_use]
    pub fn with_similarity(self, similarity: SimilaritySearch) -> Self {
        Self { similarity: Some(similarity), ..self }
    }

    /// Indexes events of a session. Those that are indexed already are not embedded again.
    async fn index<'a>(
        &self,
        session: &SessionKey,
        events: impl Iterator<Item = &'a Arc<Event>>,
    ) -> Vec<Arc<IndexedEvent>> {
        let mut indexed: Vec<IndexedEvent> = events.filter_map(IndexedEvent::new).collect();
        if let Some(similarity) = &self.similarity {
            let mut known = self.vectors(session);
            let mut missing = Vec::new();
            for indexed in &mut indexed {
                match known.remove(&indexed.event.id) {
                    Some(vector) => indexed.vector = Some(vector),
                    None => missing.push(indexed),
                }
            }
            let texts = missing.iter().map(|indexed| embedded_text(&indexed.content)).collect();
            for (indexed, vector) in missing.into_iter().zip(similarity.embed(texts).await) {
                indexed.vector = vector;
            }
        }
        indexed.into_iter().map(Arc::new).collect()
    }

    /// Returns the vectors of a session by the ids of events.
    fn vectors(&self, session: &SessionKey) -> HashMap<String, UnitVector> {
        let users = self.users.read_unpoisoned();
        let sessions = users.get(&(session.app.clone(), session.user.clone()));
        let indexed = sessions.and_then(|sessions| sessions.get(&session.id));
        let vectors = indexed.into_iter().flat_map(|indexed| indexed.iter());
        vectors.filter_map(|indexed| Some((indexed.event.id.clone(), indexed.vector.clone()?))).collect()
    }
}

impl IndexedEvent {
    /// Indexes an event; `None` if it has no words.
    fn new(event: &Arc<Event>) -> Option<Self> {
        let content = event.content.clone()?;
        let words = entry_words(&content);
        (!words.is_empty()).then(|| Self { event: event.clone(), content, words, vector: None })
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
        let indexed: Arc<[Arc<IndexedEvent>]> = self.index(&session.key, session.events.iter()).await.into();
        let owner = (session.key.app.clone(), session.key.user.clone());
        let mut users = self.users.write_unpoisoned();
        users.entry(owner).or_default().insert(session.key.id.clone(), indexed);
        Ok(())
    }

    async fn add_events(&self, session: &SessionKey, events: &[Arc<Event>]) -> Result<(), StoreError> {
        let indexed = self.index(session, events.iter()).await;
        let owner = (session.app.clone(), session.user.clone());
        let mut users = self.users.write_unpoisoned();
        let known = users.entry(owner).or_default().entry(session.id.clone()).or_default();
        let mut all: Vec<Arc<IndexedEvent>> = known.to_vec();
        let mut places: HashMap<String, usize> =
            (0..).zip(&all).map(|(place, indexed)| (indexed.event.id.clone(), place)).collect();
        for indexed in indexed {
            match places.entry(indexed.event.id.clone()) {
                Entry::Vacant(vacant) => {
                    vacant.insert(all.len());
                    all.push(indexed);
                }
                Entry::Occupied(place) => match all.get_mut(*place.get()) {
                    // The embedder did not answer when it was added first.
                    Some(before) if before.vector.is_none() && indexed.vector.is_some() => *before = indexed,
                    Some(_) | None => {}
                },
            }
        }
        *known = all.into();
        Ok(())
    }

    async fn delete_session(&self, session: &SessionKey) -> Result<(), StoreError> {
        let owner = (session.app.clone(), session.user.clone());
        let mut users = self.users.write_unpoisoned();
        if let Some(sessions) = users.get_mut(&owner) {
            sessions.remove(&session.id);
            if sessions.is_empty() {
                users.remove(&owner);
            }
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

    fn embedder_calls(&self, texts: usize) -> usize {
        self.similarity.as_ref().map_or(0, |_| SimilaritySearch::calls(texts))
    }

    async fn search(&self, app: &str, user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        let words = query_words(query);
        let similar = match &self.similarity {
            Some(similarity) if !words.is_empty() => similarity.embed_query(query).await,
            Some(_) | None => None,
        };
        let owner = (app.into(), user.into());
        let sessions: Vec<Arc<[Arc<IndexedEvent>]>> = {
            let users = self.users.read_unpoisoned();
            users.get(&owner).map(|sessions| sessions.values().cloned().collect()).unwrap_or_default()
        };
        let all: Vec<&Arc<IndexedEvent>> = sessions.iter().flat_map(|session| session.iter()).collect();
        let mut found: Vec<(usize, usize, &Arc<IndexedEvent>)> = (0..)
            .zip(&all)
            .map(|(place, indexed)| (words.intersection(&indexed.words).count(), place, *indexed))
            .filter(|(matches, ..)| *matches > 0)
            .collect();
        found.sort_by_key(|(matches, _, indexed)| Reverse((*matches, indexed.event.timestamp)));
        let mut found: Vec<usize> = found.into_iter().take(MAX_RESULTS).map(|(_, place, _)| place).collect();
        if let Some(query) = &similar {
            let similarity = |indexed: &IndexedEvent| query.similarity(indexed.vector.as_ref()?.as_bytes());
            let compared = (0..)
                .zip(&all)
                .filter_map(|(place, indexed)| Some(((indexed.event.timestamp, place), similarity(indexed)?)));
            let nearest: Vec<usize> = query.nearest(compared).into_iter().map(|(_, place)| place).collect();
            found = fuse(&found, &nearest);
        }
        let found = found.into_iter().take(MAX_RESULTS).filter_map(|place| all.get(place));
        Ok(found.map(|indexed| indexed.entry()).collect())
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::EventData;

    use super::*;

    #[tokio::test]
    async fn a_user_without_sessions_takes_no_memory() {
        let (memory, session) = (KeywordMemory::new(), SessionKey::new("app", "ann", "s1"));
        let content = Some(Arc::new(Content::user("apples")));
        let event = Event::new(EventData { content, ..EventData::default() });
        memory.add_events(&session, &[event]).await.unwrap();
        memory.delete_session(&session).await.unwrap();
        assert!(memory.users.read_unpoisoned().is_empty());
    }
}
