//! Memory Bank of Vertex AI Agent Engine: facts that a model of Google extracts from messages, found by their meaning.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Content, Event, MemoryEntry, MemoryService, Part, PartData, RememberedSession, Session, SessionKey, StoreError,
    Timestamp,
};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::agent_engine::{AgentEngine, Request};
use crate::firestore::AccessTokens;
use crate::uri::MEMORY_URIS;

/// Maximum number of facts that a search returns. Memory Bank returns all facts by similarity, however low it is.
const MAX_FACTS: u32 = 10;

/// The author that ADK sets for facts.
const AUTHOR: &str = "user";

/// A [`MemoryService`] in Vertex AI Memory Bank. Stores facts about a user instead of messages. Added messages cannot
/// be listed or deleted by session; adding a session again merges its facts with the known ones.
pub struct AgentEngineMemory {
    engine: AgentEngine,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RetrieveResponse {
    retrieved_memories: Vec<RetrievedMemory>,
}

#[derive(Deserialize)]
struct RetrievedMemory {
    memory: Memory,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    #[serde(default)]
    fact: String,
    #[serde(default)]
    update_time: String,
}

impl AgentEngineMemory {
    /// Opens an engine, as [`AgentEngineSessions::open`](crate::AgentEngineSessions::open).
    ///
    /// # Errors
    /// [`StoreError::InvalidName`] for any other URI, [`StoreError::InvalidRequest`] if a variable is missing or
    /// invalid.
    pub fn open(
        uri: &str,
        tokens: Arc<dyn AccessTokens>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, StoreError> {
        Ok(Self { engine: AgentEngine::open(uri, MEMORY_URIS, tokens, variable)? })
    }

    /// Hands messages to Memory Bank, which extracts facts from them later.
    async fn generate<'a>(
        &self,
        key: &SessionKey,
        events: impl Iterator<Item = &'a Arc<Event>>,
    ) -> Result<(), StoreError> {
        let activity = "add messages to the memory";
        let events: Vec<Value> = events
            .filter_map(|event| to_remembered_content(event))
            .map(|content| json!({ "content": content }))
            .collect();
        if events.is_empty() {
            return Ok(());
        }
        let body = json!({ "scope": scope(&key.app, &key.user), "directContentsSource": { "events": events } });
        let request =
            Request { activity, method: Method::POST, path: &["memories:generate"], query: &[], body: Some(&body) };
        let operation = self.engine.call(&request).await?;
        match operation.pointer("/error/message").and_then(Value::as_str) {
            Some(message) => Err(self.engine.error(activity, message)),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl MemoryService for AgentEngineMemory {
    async fn add_session(&self, session: &Session) -> Result<(), StoreError> {
        self.generate(&session.key, session.events.iter()).await
    }

    async fn add_events(&self, session: &SessionKey, events: &[Arc<Event>]) -> Result<(), StoreError> {
        self.generate(session, events.iter()).await
    }

    async fn delete_session(&self, _: &SessionKey) -> Result<(), StoreError> {
        Err(invalid_operation("delete the entries of a session"))
    }

    async fn sessions(&self, _: Option<&str>, _: Option<&str>) -> Result<Vec<RememberedSession>, StoreError> {
        Err(invalid_operation("list sessions"))
    }

    async fn entries(&self, _: &SessionKey) -> Result<Vec<MemoryEntry>, StoreError> {
        Err(invalid_operation("list the entries of a session"))
    }

    async fn search(&self, app: &str, user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        if query.trim().is_empty() {
            return Ok(Vec::new());
        }
        let activity = "search the memory";
        let similarity = json!({ "searchQuery": query, "topK": MAX_FACTS });
        let body = json!({ "scope": scope(app, user), "similaritySearchParams": similarity });
        let request =
            Request { activity, method: Method::POST, path: &["memories:retrieve"], query: &[], body: Some(&body) };
        let found = self.engine.call(&request).await?;
        let found: RetrieveResponse =
            serde_json::from_value(found).map_err(|error| self.engine.error(activity, &error.to_string()))?;
        let facts = found.retrieved_memories.into_iter().map(|retrieved| retrieved.memory);
        let facts = facts.filter(|memory| !memory.fact.is_empty()).map(|memory| MemoryEntry {
            content: Content::user(&memory.fact),
            author: Some(AUTHOR.into()),
            timestamp: Timestamp::from_iso(&memory.update_time).unwrap_or_default(),
        });
        Ok(facts.collect())
    }
}

/// Returns the owner of facts, under the names that ADK uses.
fn scope(app: &str, user: &str) -> Value {
    json!({ "app_name": app, "user_id": user })
}

/// Returns the content of an event without thoughts and empty parts; `None` if nothing is left.
fn to_remembered_content(event: &Event) -> Option<Content> {
    let content = event.content.as_deref()?;
    let is_empty = |part: &Part| match &part.data {
        PartData::Other => true,
        PartData::Text(text) => text.trim().is_empty(),
        _ => false,
    };
    let parts: Vec<Part> = content.parts.iter().filter(|part| !part.thought && !is_empty(part)).cloned().collect();
    (!parts.is_empty()).then(|| Content { parts, ..content.clone() })
}

fn invalid_operation(operation: &str) -> StoreError {
    StoreError::InvalidRequest(format!(
        "Memory Bank cannot {operation}, because it stores facts about users; use Google's console for single facts"
    ))
}
