//! Sessions of the contract tests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    Content, Embedder, Event, EventActions, EventData, EventWindow, JsonMap, MemoryService, ModelError, SessionKey,
    SessionService, Timestamp,
};
use hatchery_stores::SimilaritySearch;
use hatchery_stores::encryption::{EncryptedMemory, EncryptedSessions, EncryptionKeys};
use hatchery_stores::quotas::QuotaSessions;
pub use hatchery_test_support::map;
use serde_json::Value;

/// Longer than any test takes.
pub const LONG: Duration = Duration::from_secs(60);

pub fn behind_quotas(sessions: impl SessionService + 'static) -> QuotaSessions {
    QuotaSessions::new(Arc::new(sessions), Arc::default())
}

/// Returns two keys. The second one has encrypted nothing yet.
pub fn keys() -> Arc<EncryptionKeys> {
    let (first, second) = ("01".repeat(32), "02".repeat(32));
    Arc::new(EncryptionKeys::from_hex([("first", first.as_str()), ("second", &second)]).unwrap())
}

pub fn encrypted(sessions: impl SessionService + 'static) -> EncryptedSessions {
    EncryptedSessions::new(Arc::new(sessions), keys())
}

pub fn encrypted_messages(memory: impl MemoryService + 'static) -> EncryptedMemory {
    EncryptedMemory::new(Arc::new(memory), keys())
}

/// Embeds texts by the concepts that they name. One that names none has no direction.
pub struct ConceptEmbedder;

/// Words of the same meaning.
const CONCEPTS: [&[&str]; 3] = [&["vehicle", "automobile"], &["doctor", "physician"], &["meal", "pizza"]];

impl ConceptEmbedder {
    pub fn search() -> SimilaritySearch {
        SimilaritySearch::new("concepts", Arc::new(Self))
    }
}

#[async_trait]
impl Embedder for ConceptEmbedder {
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, ModelError> {
        let has =
            |text: &str, words: &[&str]| text.split(|c: char| !c.is_alphanumeric()).any(|word| words.contains(&word));
        let embed = |text: &String| CONCEPTS.iter().map(|words| f32::from(u8::from(has(text, words)))).collect();
        Ok(texts.iter().map(embed).collect())
    }
}

pub fn event(text: &str) -> Arc<Event> {
    Event::new(EventData {
        author: "user".into(),
        content: Some(Arc::new(Content::user(text))),
        ..EventData::default()
    })
}

pub fn event_at(micros: i64) -> Arc<Event> {
    Event::new(EventData { timestamp: Timestamp::from_micros(micros), ..EventData::default() })
}

pub fn delta(state: Value) -> Arc<Event> {
    Event::new(EventData {
        actions: EventActions { state_delta: map(state), ..EventActions::default() },
        ..EventData::default()
    })
}

pub async fn create(sessions: &dyn SessionService, user: &str, id: &str) -> SessionKey {
    sessions.create("app", user, Some(id), JsonMap::new()).await.unwrap().key
}

pub async fn append(sessions: &dyn SessionService, key: &SessionKey, events: impl IntoIterator<Item = Arc<Event>>) {
    for event in events {
        sessions.append(key, &event).await.unwrap();
    }
}

pub async fn state(sessions: &dyn SessionService, key: &SessionKey) -> Value {
    let session = sessions.get(key, EventWindow::AfterRevision(u64::MAX)).await.unwrap().unwrap();
    serde_json::to_value(&session.state).unwrap()
}

pub async fn ids(sessions: &dyn SessionService, key: &SessionKey, window: EventWindow) -> Vec<String> {
    let session = sessions.get(key, window).await.unwrap().unwrap();
    session.events.iter().map(|event| event.id.clone()).collect()
}
