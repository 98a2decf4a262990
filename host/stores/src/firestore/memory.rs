//! Memory in Firestore.
//!
//! A search asks for the entries with any keyword of the query, 30 keywords at a time, and ranks the results. Its cost
//! grows with the number of the user's entries that have one of the words. Stop words keep it low.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    Content, Event, MemoryEntry, MemoryService, RememberedSession, Session, SessionKey, StoreError, Timestamp,
};
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::client::{Backoff, Commit, FirestoreClient, set, split};
use super::document::{Document, Precondition, Value, Values, Write, fields};
use super::names::Names;
use super::properties::FirestoreProperties;
use super::query::filter;
use super::{keys, keywords, query};
use crate::memory::MAX_RESULTS;

/// Maximum number of keywords that one query looks for, and of entries that it returns.
const MAX_QUERY_KEYWORDS: usize = 30;
const MAX_FOUND: usize = 2_000;

/// Maximum bytes of an entry, which Firestore limits to 1 MiB with its name and its indexed values.
const MAX_ENTRY_BYTES: usize = 1_000_000;

/// The fields of the document of a remembered session.
const NEWEST: &str = "newest";
const COUNT: &str = "entries";
/// A value that every change of a session's entries replaces.
const VERSION: &str = "version";

/// A [`MemoryService`] in a Firestore database, which finds entries with at least one keyword of the query: those with
/// most of the keywords first, then the newest. Returns up to 100 entries.
#[derive(Clone)]
pub struct FirestoreMemoryService {
    client: FirestoreClient,
    names: Names,
    stop_words: Arc<BTreeSet<String>>,
}

/// The memory of a session, with the precondition that it has not changed since it was read.
struct Summary {
    name: String,
    totals: Totals,
    condition: Precondition,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    entries: u64,
    newest: Timestamp,
}

impl FirestoreMemoryService {
    /// Remembers in the database of this client, below the collection `adk-session` and without English stop words.
    pub fn new(client: FirestoreClient) -> Self {
        Self::with_properties(client, &FirestoreProperties::default())
    }

    /// Stores entries below the root collection and uses the stop words of these properties.
    pub fn with_properties(client: FirestoreClient, properties: &FirestoreProperties) -> Self {
        let names = Names { root: properties.root_collection.clone() };
        Self { client, names, stop_words: Arc::new(properties.stop_words.clone()) }
    }

    /// Returns the write of an event's entry; `None` if it has no keywords, or is too large.
    fn entry_write(&self, key: &SessionKey, event: &Event) -> Option<Write> {
        let content = event.content.as_deref()?;
        let words = keywords::entry_keywords(content, &self.stop_words);
        let json = serde_json::to_string(content).ok().filter(|_| !words.is_empty())?;
        let values = words.iter().map(|word| Value::from(&**word)).collect();
        let fields = fields([
            (keys::ID, event.id.as_str().into()),
            (keys::APP_NAME, (*key.app).into()),
            (keys::USER_ID, (*key.user).into()),
            (keys::SESSION_ID, (*key.id).into()),
            (keys::AUTHOR, event.author.as_str().into()),
            (keys::TIMESTAMP, event.timestamp.into()),
            (keys::CONTENT, json.into()),
            (keys::KEYWORDS, Value::Array(Values { values })),
        ]);
        let write = Write::set(self.names.memory_entry(key, &event.id), fields);
        if write.bytes() > MAX_ENTRY_BYTES {
            tracing::warn!(session = %key, event = event.id, "a message is too large to be remembered in Firestore");
            return None;
        }
        Some(write)
    }

    async fn summary(&self, key: &SessionKey) -> Result<Summary, StoreError> {
        let name = self.names.remembered_session(key);
        let read = self.client.read(std::slice::from_ref(&name), None, None).await?;
        let found = read.documents.into_iter().next().flatten();
        let totals = found.as_ref().map_or_else(Totals::default, |found| Totals {
            entries: found.unsigned(COUNT),
            newest: found.time(NEWEST),
        });
        Ok(Summary { name, totals, condition: Precondition::unchanged(found.as_ref()) })
    }

    /// Returns the fields `select` of a session's entries, or all fields if it is empty.
    async fn entries_of(&self, key: &SessionKey, select: &[&str]) -> Result<Vec<Document>, StoreError> {
        let condition = filter(keys::SESSION_ID, "EQUAL", (*key.id).into());
        let mut query = json!({"from": [{"collectionId": keys::ENTRIES}], "where": condition});
        if !select.is_empty() {
            set(&mut query, "select", query::select(select));
        }
        self.client.query(&self.names.memory(&key.app, &key.user), &query, None).await
    }

    /// Makes the writes of a session's entries, with its new summary. Returns false if others have changed them
    /// meanwhile.
    async fn write(
        &self,
        key: &SessionKey,
        before: Summary,
        after: Totals,
        writes: Vec<Write>,
    ) -> Result<bool, StoreError> {
        let set = |condition| {
            let fields = fields([
                (keys::ID, (*key.id).into()),
                (keys::APP_NAME, (*key.app).into()),
                (keys::USER_ID, (*key.user).into()),
                (COUNT, after.entries.into()),
                (NEWEST, after.newest.into()),
                (VERSION, Uuid::new_v4().to_string().into()),
            ]);
            Write::set(before.name.clone(), fields).with_condition(condition)
        };
        let (mut condition, mut commits) = (before.condition, split(writes));
        if commits.len() <= 1 && after.entries == 0 {
            let mut last = commits.pop().unwrap_or_default();
            if !matches!(condition, Precondition::Exists(false)) {
                last.insert(0, Write::delete(before.name.clone()).with_condition(condition));
            }
            return self.is_committed(&last).await;
        }
        for mut writes in commits {
            writes.insert(0, set(condition));
            match self.client.commit(&writes).await? {
                Commit::Applied(time) => condition = Precondition::UpdateTime(time),
                Commit::Conflict => return Ok(false),
            }
        }
        if after.entries == 0 {
            return self.is_committed(&[Write::delete(before.name.clone()).with_condition(condition)]).await;
        }
        Ok(true)
    }

    async fn is_committed(&self, writes: &[Write]) -> Result<bool, StoreError> {
        if writes.is_empty() {
            return Ok(true);
        }
        Ok(matches!(self.client.commit(writes).await?, Commit::Applied(_)))
    }

    async fn replace(&self, key: &SessionKey, events: &[&Event]) -> Result<bool, StoreError> {
        let before = self.summary(key).await?;
        let known = self.entries_of(key, &["__name__"]).await?;
        let (mut writes, mut names) = (Vec::new(), HashSet::new());
        let mut after = Totals::default();
        for event in events {
            let Some(write) = self.entry_write(key, event) else { continue };
            if names.insert(write.name().to_owned()) {
                after.add(event);
                writes.push(write);
            }
        }
        let known = known.iter().map(|document| self.client.relative(&document.name));
        writes.extend(known.filter(|name| !names.contains(*name)).map(|name| Write::delete(name.to_owned())));
        self.write(key, before, after, writes).await
    }

    async fn extend(&self, key: &SessionKey, events: &[Arc<Event>]) -> Result<bool, StoreError> {
        let before = self.summary(key).await?;
        let mut names = HashSet::new();
        let mut new: Vec<_> = events.iter().filter_map(|event| Some((event, self.entry_write(key, event)?))).collect();
        new.retain(|(_, write)| names.insert(write.name().to_owned()));
        let wanted: Vec<_> = new.iter().map(|(_, write)| write.name().to_owned()).collect();
        let known = self.client.read(&wanted, Some(&[keys::ID.to_owned()]), None).await?;
        let mut after = before.totals;
        let mut writes = Vec::new();
        for ((event, write), known) in new.into_iter().zip(known.documents) {
            if known.is_none() {
                after.add(event);
                writes.push(write);
            }
        }
        if writes.is_empty() { Ok(true) } else { self.write(key, before, after, writes).await }
    }

    async fn retry(&self, backoff: &mut Backoff) -> Result<(), StoreError> {
        if backoff.wait().await {
            return Ok(());
        }
        let context = "other hosts change the memory of the session at the same time".into();
        Err(StoreError::Busy { context, retry_after: Duration::from_secs(1) })
    }

    /// Returns the keywords and the times of the entries with any of these keywords.
    async fn find(&self, app: &str, user: &str, words: &[Box<str>]) -> Result<Vec<Document>, StoreError> {
        let values = words.iter().map(|word| Value::from(&**word)).collect();
        let any = filter(keys::KEYWORDS, "ARRAY_CONTAINS_ANY", Value::Array(Values { values }));
        let query = json!({
            "select": query::select(&[keys::KEYWORDS, keys::TIMESTAMP]),
            "from": [{"collectionId": keys::ENTRIES}],
            "where": any,
            "limit": MAX_FOUND,
        });
        self.client.query(&self.names.memory(app, user), &query, None).await
    }
}

impl Totals {
    fn add(&mut self, event: &Event) {
        self.entries += 1;
        self.newest = self.newest.max(event.timestamp);
    }
}

#[async_trait]
impl MemoryService for FirestoreMemoryService {
    async fn add_session(&self, session: &Session) -> Result<(), StoreError> {
        let events: Vec<&Event> = session.events.iter().map(AsRef::as_ref).collect();
        let mut backoff = Backoff::new();
        while !self.replace(&session.key, &events).await? {
            self.retry(&mut backoff).await?;
        }
        Ok(())
    }

    async fn add_events(&self, session: &SessionKey, events: &[Arc<Event>]) -> Result<(), StoreError> {
        let mut backoff = Backoff::new();
        while !self.extend(session, events).await? {
            self.retry(&mut backoff).await?;
        }
        Ok(())
    }

    async fn delete_session(&self, session: &SessionKey) -> Result<(), StoreError> {
        let mut backoff = Backoff::new();
        while !self.replace(session, &[]).await? {
            self.retry(&mut backoff).await?;
        }
        Ok(())
    }

    async fn sessions(&self, app: Option<&str>, user: Option<&str>) -> Result<Vec<RememberedSession>, StoreError> {
        let filters: Vec<Json> = [(keys::APP_NAME, app), (keys::USER_ID, user)]
            .into_iter()
            .filter_map(|(field, value)| Some(filter(field, "EQUAL", value?.into())))
            .collect();
        let mut query = json!({"from": [{"collectionId": self.names.remembered_sessions()}]});
        if !filters.is_empty() {
            set(&mut query, "where", query::and(&filters));
        }
        let documents = self.client.query("", &query, None).await?;
        let mut sessions: Vec<_> = documents.iter().map(remembered_session).filter(|it| it.entries > 0).collect();
        sessions.sort_by(|one, other| (other.newest, &*one.key.id).cmp(&(one.newest, &*other.key.id)));
        Ok(sessions)
    }

    async fn entries(&self, session: &SessionKey) -> Result<Vec<MemoryEntry>, StoreError> {
        let mut entries: Vec<_> = self.entries_of(session, &[]).await?.iter().filter_map(memory_entry).collect();
        entries.sort_by_key(|entry| entry.timestamp);
        Ok(entries)
    }

    async fn search(&self, app: &str, user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        let words = keywords::query_keywords(query, &self.stop_words);
        let mut found: HashMap<String, (usize, Timestamp)> = HashMap::new();
        let wanted: HashSet<&str> = words.iter().map(AsRef::as_ref).collect();
        for words in words.chunks(MAX_QUERY_KEYWORDS) {
            for document in self.find(app, user, words).await? {
                let matches = document.texts(keys::KEYWORDS).filter(|word| wanted.contains(word)).count();
                let time = document.time(keys::TIMESTAMP);
                found.insert(self.client.relative(&document.name).to_owned(), (matches, time));
            }
        }
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_by(|(one, rank), (other, other_rank)| (Reverse(rank), one).cmp(&(Reverse(other_rank), other)));
        found.truncate(MAX_RESULTS);
        let names: Vec<_> = found.into_iter().map(|(name, _)| name).collect();
        let fields = [keys::CONTENT, keys::AUTHOR, keys::TIMESTAMP].map(ToOwned::to_owned);
        let read = self.client.read(&names, Some(&fields), None).await?;
        Ok(read.documents.iter().flatten().filter_map(memory_entry).collect())
    }
}

fn remembered_session(document: &Document) -> RememberedSession {
    let text = |field| document.text(field).unwrap_or_default().to_owned();
    let key = SessionKey::new(text(keys::APP_NAME), text(keys::USER_ID), text(keys::ID));
    RememberedSession { key, entries: document.unsigned(COUNT), newest: document.time(NEWEST) }
}

/// Converts an entry's document; `None` if its content cannot be read.
fn memory_entry(document: &Document) -> Option<MemoryEntry> {
    let content: Content = serde_json::from_str(document.text(keys::CONTENT)?)
        .inspect_err(
            |error| tracing::error!(entry = document.name, %error, "a memory entry cannot be read and is left out"),
        )
        .ok()?;
    let author = document.text(keys::AUTHOR).filter(|author| !author.is_empty()).map(ToOwned::to_owned);
    Some(MemoryEntry { content, author, timestamp: document.time(keys::TIMESTAMP) })
}
