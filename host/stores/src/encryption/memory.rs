//! Encrypted memory.
//!
//! The service inside sees no words, so it cannot search: a search reads and decrypts the entries of the user.

use std::cmp::Reverse;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Content, Event, EventData, FileData, MemoryEntry, MemoryService, Part, PartData, RememberedSession, Session,
    SessionKey, State, StoreError,
};

use super::keys::EncryptionKeys;
use super::records::{Record, unreadable};
use crate::memory::MAX_RESULTS;
use crate::memory::tokenizer::{entry_words, query_words};

/// The text of a sealed message, because stores keep nothing of one without text.
const PLACEHOLDER: &str = "encrypted";

/// A [`MemoryService`] that encrypts messages. It searches as [`KeywordMemory`](crate::KeywordMemory) does, and reads
/// all entries of the user for it.
pub struct EncryptedMemory {
    inner: Arc<dyn MemoryService>,
    keys: Arc<EncryptionKeys>,
}

impl EncryptedMemory {
    /// Wraps a service, which must be able to list its sessions and entries.
    pub fn new(inner: Arc<dyn MemoryService>, keys: Arc<EncryptionKeys>) -> Self {
        Self { inner, keys }
    }

    /// Returns the events that are stored for those with words.
    fn seal<'a>(
        &self,
        session: &SessionKey,
        events: impl Iterator<Item = &'a Arc<Event>>,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        let remembered = events.filter_map(|event| {
            let content = event.content.as_deref()?;
            (!entry_words(content).is_empty()).then_some((event, content))
        });
        remembered.map(|(event, content)| self.seal_message(session, event, content)).collect()
    }

    fn seal_message(&self, session: &SessionKey, event: &Event, content: &Content) -> Result<Arc<Event>, StoreError> {
        let subject = format!("the message of event `{}` ({session})", event.id);
        let record = Record { subject: &subject, context: &message_context(session) };
        let json = serde_json::to_vec(content).map_err(|error| unreadable(record, error))?;
        let sealed = FileData { file_uri: self.keys.seal(record, &json)?, ..FileData::default() };
        let parts = vec![Part::text(PLACEHOLDER), PartData::FileData(sealed).into()];
        Ok(Event::new(EventData {
            id: event.id.clone(),
            author: event.author.clone(),
            content: Some(Arc::new(Content::new("user", parts))),
            timestamp: event.timestamp,
            ..EventData::default()
        }))
    }

    fn open(&self, session: &SessionKey, stored: MemoryEntry) -> Result<MemoryEntry, StoreError> {
        let record = Record { subject: &format!("a message ({session})"), context: &message_context(session) };
        let [_, Part { data: PartData::FileData(FileData { file_uri, .. }), .. }] = stored.content.parts.as_slice()
        else {
            self.keys.check_plain(record.subject)?;
            return Ok(stored);
        };
        let Some(json) = self.keys.open(record, file_uri)? else { return Ok(stored) };
        let content = serde_json::from_slice(&json).map_err(|error| unreadable(record, error))?;
        Ok(MemoryEntry { content, ..stored })
    }
}

/// Returns the associated data of a message.
fn message_context(session: &SessionKey) -> [&str; 4] {
    ["message", &session.app, &session.user, &session.id]
}

#[async_trait]
impl MemoryService for EncryptedMemory {
    async fn add_session(&self, session: &Session) -> Result<(), StoreError> {
        let events = self.seal(&session.key, session.events.iter())?.into_iter().collect();
        self.inner.add_session(&Session { events, state: State::default(), ..session.clone() }).await
    }

    async fn add_events(&self, session: &SessionKey, events: &[Arc<Event>]) -> Result<(), StoreError> {
        let sealed = self.seal(session, events.iter())?;
        self.inner.add_events(session, &sealed).await
    }

    async fn delete_session(&self, session: &SessionKey) -> Result<(), StoreError> {
        self.inner.delete_session(session).await
    }

    async fn sessions(&self, app: Option<&str>, user: Option<&str>) -> Result<Vec<RememberedSession>, StoreError> {
        self.inner.sessions(app, user).await
    }

    async fn entries(&self, session: &SessionKey) -> Result<Vec<MemoryEntry>, StoreError> {
        let stored = self.inner.entries(session).await?;
        stored.into_iter().map(|entry| self.open(session, entry)).collect()
    }

    fn embedder_calls(&self, texts: usize) -> usize {
        self.inner.embedder_calls(texts)
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    async fn search(&self, app: &str, user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        let words = query_words(query);
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for session in self.inner.sessions(Some(app), Some(user)).await? {
            for entry in self.entries(&session.key).await? {
                let matches = words.intersection(&entry_words(&entry.content)).count();
                if matches > 0 {
                    found.push((matches, entry));
                }
            }
        }
        found.sort_by_key(|(matches, entry)| Reverse((*matches, entry.timestamp)));
        Ok(found.into_iter().take(MAX_RESULTS).map(|(_, entry)| entry).collect())
    }
}
