//! Memory in this process, searched by word.
//!
//! A search looks up its words in everything that is remembered of one user, so its cost grows with that. It knows neither stems
//! nor meanings: "run" does not find "running". Nothing is written to disk and nothing is evicted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use hatchery_core::{Content, Event, MemoryEntry, MemoryService, Session, StoreError};

use super::words::{Of, words_of};

const MAX_RESULTS: usize = 100;

/// A [`MemoryService`] that finds what holds a word of the query: those with most of its words first, then the newest. It gives up to
/// 100 entries and forgets everything when the process ends.
#[derive(Default)]
pub struct KeywordMemory {
    users: RwLock<HashMap<AppAndUser, Sessions>>,
}

type AppAndUser = (Arc<str>, Arc<str>);

/// What is remembered of each session, by its id.
type Sessions = BTreeMap<Arc<str>, Arc<[Remembered]>>;

struct Remembered {
    event: Arc<Event>,
    content: Arc<Content>,
    words: BTreeSet<Box<str>>,
}

impl KeywordMemory {
    /// A service that remembers nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Remembered {
    /// What is worth remembering of an event: nothing when it has no words. A model's thinking does not count.
    fn of(event: &Arc<Event>) -> Option<Self> {
        let content = event.content.clone()?;
        let texts = content.parts.iter().filter(|part| !part.thought).filter_map(|part| part.as_text());
        let words: BTreeSet<_> = texts.flat_map(|text| words_of(text, Of::Entry)).collect();
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
        let remembered: Arc<[Remembered]> = session.events.iter().filter_map(Remembered::of).collect();
        let owner = (session.key.app.clone(), session.key.user.clone());
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        users.entry(owner).or_default().insert(session.key.id.clone(), remembered);
        Ok(())
    }

    async fn search(&self, app: &str, user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        let words = words_of(query, Of::Query);
        let owner = (app.into(), user.into());
        let sessions: Vec<Arc<[Remembered]>> = {
            let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
            users.get(&owner).map(|sessions| sessions.values().cloned().collect()).unwrap_or_default()
        };
        let mut found: Vec<(usize, &Remembered)> = sessions
            .iter()
            .flat_map(|session| session.iter())
            .map(|remembered| (words.intersection(&remembered.words).count(), remembered))
            .filter(|(matches, _)| *matches > 0)
            .collect();
        found.sort_by_key(|(matches, remembered)| Reverse((*matches, remembered.event.timestamp)));
        Ok(found.into_iter().take(MAX_RESULTS).map(|(_, remembered)| remembered.entry()).collect())
    }
}
