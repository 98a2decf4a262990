//! Events: appending and reading them.

use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{Event, SessionKey, StoreError, Timestamp};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::change::{Plan, retries};
use super::state::SessionStateChange;
use super::stored::{StoredSession, check_fence};
use super::{Store, state};
use crate::firestore::document::{Document, Precondition, Write, fields};
use crate::firestore::query::{and, filter, order};
use crate::firestore::{keys, names};

/// Maximum bytes of JSON in one document, which Firestore limits to 1 MiB with everything else in it.
const MAX_PART_BYTES: usize = 900_000;

/// Maximum number of events, and of the parts of long ones, that one request reads.
const PAGE: usize = 300;
const PARTS_PAGE: usize = 8;

const DIGEST: &str = "digest";
const INVOCATION_ID: &str = "invocationId";

/// An event with its document.
pub(super) struct StoredEvent {
    pub(super) revision: u64,
    pub(super) event: Arc<Event>,
    /// The JSON as it was stored.
    pub(super) json: Bytes,
    pub(super) document: Document,
}

/// A range of revisions, after one and up to another one.
#[derive(Clone, Copy)]
pub(super) struct Revisions {
    pub(super) after: u64,
    pub(super) last: u64,
}

impl Store {
    /// Appends an event. An append whose answer was lost is repeated, which stores nothing twice.
    pub(super) async fn append(
        &self,
        key: &SessionKey,
        event: &Arc<Event>,
        fence: Option<u64>,
    ) -> Result<u64, StoreError> {
        let mut backoff = retries();
        loop {
            match self.append_once(key, event, fence).await {
                Err(StoreError::Busy { .. }) if backoff.wait().await => {}
                result => return result,
            }
        }
    }

    async fn append_once(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        if let Some(revision) = self.append_to_cached(key, event, fence).await? {
            return Ok(revision);
        }
        let delta = &event.actions.state_delta;
        let paths: Vec<String> = state::session_values(delta).map(|(name, _)| state::field_path(name)).collect();
        let mut read = vec![keys::JSON, keys::PARTS, DIGEST];
        read.extend(paths.iter().map(String::as_str));
        let name = self.names.event(key, &event.id);
        let plan = |stored: &StoredSession, others: &[Option<Document>]| {
            if let [Some(known)] = others {
                return if is_repeated(known, event) {
                    Ok(Plan::unchanged(known.unsigned(keys::REVISION)))
                } else {
                    Err(StoreError::EventExists(event.id.clone()))
                };
            }
            check_fence(key, stored, fence)?;
            Ok(Plan::new(self.append_writes(key, stored, event), stored.revision + 1))
        };
        self.change(key, std::slice::from_ref(&name), &read, plan).await
    }

    /// Appends an event to the cached session. Returns `None`, and has appended nothing, if the session must be read.
    async fn append_to_cached(
        &self,
        key: &SessionKey,
        event: &Event,
        fence: Option<u64>,
    ) -> Result<Option<u64>, StoreError> {
        let Some(stored) = self.cache.take(key) else { return Ok(None) };
        let changes_own = state::session_values(&event.actions.state_delta).next().is_some();
        if changes_own || check_fence(key, &stored, fence).is_err() {
            return Ok(None);
        }
        let is_applied = self.commit(key, &stored, &self.append_writes(key, &stored, event)).await?;
        Ok(is_applied.then_some(stored.revision + 1))
    }

    fn append_writes(&self, key: &SessionKey, stored: &StoredSession, event: &Event) -> Vec<Write> {
        let revision = stored.revision + 1;
        let mut writes = vec![append_to_session(key, stored, event, revision)];
        writes.extend(self.event_writes(key, event, revision));
        writes.extend(state::shared_writes(key, &event.actions.state_delta));
        writes
    }

    /// Returns the writes of an event's documents.
    fn event_writes(&self, key: &SessionKey, event: &Event, revision: u64) -> Vec<Write> {
        let role = event.content.as_ref().and_then(|content| content.role.as_deref());
        let is_user = role.map_or(event.author == keys::USER, |role| role == keys::USER);
        let fields = fields([
            (keys::ID, event.id.as_str().into()),
            (keys::APP_NAME, (*key.app).into()),
            (keys::USER_ID, (*key.user).into()),
            (keys::AUTHOR, event.author.as_str().into()),
            (keys::ROLE, if is_user { keys::USER } else { keys::MODEL }.into()),
            (keys::TIMESTAMP, event.timestamp.into()),
            (INVOCATION_ID, event.invocation_id.as_str().into()),
            (keys::REVISION, revision.into()),
        ]);
        let new = Write::set(self.names.event(key, &event.id), fields).with_condition(Precondition::Exists(false));
        json_writes(new, &String::from_utf8_lossy(event.json()))
    }

    /// Returns the writes of a copy of an event in another session of the same app and user.
    pub(super) fn copy_writes(&self, key: &SessionKey, stored: &StoredEvent) -> Vec<Write> {
        let mut fields = stored.document.fields.clone();
        fields.retain(|field, _| ![keys::JSON, keys::PARTS, DIGEST].contains(&field.as_str()));
        let id = stored.document.text(keys::ID).unwrap_or_default();
        json_writes(Write::set(self.names.event(key, id), fields), &String::from_utf8_lossy(&stored.json))
    }

    /// Reads the events of a range, oldest first, at most `limit`.
    pub(super) async fn read_events(
        &self,
        key: &SessionKey,
        revisions: Revisions,
        limit: usize,
        read_time: &str,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let (session, mut events) = (self.names.session(key), Vec::new());
        let Revisions { mut after, last } = revisions;
        while after < last && events.len() < limit {
            let page = PAGE.min(limit - events.len());
            let range = [
                filter(keys::REVISION, "GREATER_THAN", after.into()),
                filter(keys::REVISION, "LESS_THAN_OR_EQUAL", last.into()),
            ];
            let query = json!({
                "from": [{"collectionId": keys::EVENTS}],
                "where": and(&range),
                "orderBy": [order(keys::REVISION, "ASCENDING")],
                "limit": page,
            });
            let documents = self.client.query(&session, &query, Some(read_time)).await?;
            let is_last = documents.len() < page;
            events.extend(self.parse(documents, read_time).await?);
            match events.last() {
                Some(newest) if !is_last => after = newest.revision,
                _ => break,
            }
        }
        Ok(events)
    }

    /// Reads the events at or after a time, up to a revision, in the order of revisions.
    pub(super) async fn read_events_since(
        &self,
        key: &SessionKey,
        time: Timestamp,
        last: u64,
        read_time: &str,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let query = json!({
            "from": [{"collectionId": keys::EVENTS}],
            "where": filter(keys::TIMESTAMP, "GREATER_THAN_OR_EQUAL", time.into()),
        });
        let mut documents = self.client.query(&self.names.session(key), &query, Some(read_time)).await?;
        documents.retain(|document| document.unsigned(keys::REVISION) <= last);
        documents.sort_by_key(|document| document.unsigned(keys::REVISION));
        self.parse(documents, read_time).await
    }

    async fn parse(&self, documents: Vec<Document>, read_time: &str) -> Result<Vec<StoredEvent>, StoreError> {
        let mut events = Vec::with_capacity(documents.len());
        for document in documents {
            let json = Bytes::from(self.json_of(&document, read_time).await?);
            let revision = document.unsigned(keys::REVISION);
            let event = Event::from_json(json.clone()).unwrap_or_else(|error| {
                tracing::error!(event = document.name, %error, "a stored event cannot be read and is left out");
                Event::unreadable(&json, revision, &error.to_string())
            });
            events.push(StoredEvent { revision, event, json, document });
        }
        Ok(events)
    }

    /// Returns the JSON of an event. The parts of a long one are read.
    async fn json_of(&self, document: &Document, read_time: &str) -> Result<String, StoreError> {
        if let Some(json) = document.text(keys::JSON) {
            return Ok(json.to_owned());
        }
        let names: Vec<_> = part_names(self.client.relative(&document.name), document).collect();
        let mut json = String::new();
        for names in names.chunks(PARTS_PAGE) {
            let parts = self.client.read(names, None, Some(read_time)).await?;
            for part in parts.documents.iter().flatten() {
                json.push_str(part.text(keys::JSON).unwrap_or_default());
            }
        }
        Ok(json)
    }

    /// Returns the writes that delete an event's documents.
    pub(super) fn delete_event_writes(&self, document: &Document) -> Vec<Write> {
        let name = self.client.relative(&document.name);
        part_names(name, document).chain([name.to_owned()]).map(Write::delete).collect()
    }
}

/// Returns the write of a session's document for an append.
fn append_to_session(key: &SessionKey, stored: &StoredSession, event: &Event, revision: u64) -> Write {
    let bytes = stored.event_bytes + event.json_len() as u64;
    let mut update = fields([
        (keys::UPDATE_TIME, event.timestamp.into()),
        (keys::LISTING, names::listing_key(&key.app, event.timestamp, &key.id).into()),
        (keys::REVISION, revision.into()),
        (keys::EVENT_BYTES, bytes.into()),
    ]);
    let change = SessionStateChange::from_delta(&stored.document, &event.actions.state_delta);
    if !change.fields.is_empty() {
        update.extend(fields([
            (keys::STATE_KEYS, change.usage.keys.into()),
            (keys::STATE_BYTES, change.usage.bytes.into()),
        ]));
    }
    let mut write = stored.update(update);
    for (field, value) in change.fields {
        write.set_map_key(keys::STATE, &field, value);
    }
    write
}

/// Adds the JSON to the write of a document. Long JSON is stored in parts, which are separate documents.
fn json_writes(mut document: Write, json: &str) -> Vec<Write> {
    if json.len() <= MAX_PART_BYTES {
        document.set_field(keys::JSON, json.into());
        return vec![document];
    }
    let (mut rest, mut parts) = (json, Vec::new());
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.floor_char_boundary(MAX_PART_BYTES));
        parts.push(Write::set(names::part(document.name(), parts.len()), fields([(keys::JSON, part.into())])));
        rest = after;
    }
    document.set_field(keys::PARTS, (parts.len() as u64).into());
    document.set_field(DIGEST, digest(json.as_bytes()).into());
    parts.insert(0, document);
    parts
}

fn part_names<'a>(name: &'a str, document: &Document) -> impl Iterator<Item = String> + use<'a> {
    let count = usize::try_from(document.unsigned(keys::PARTS)).unwrap_or_default();
    (0..count).map(move |index| names::part(name, index))
}

fn is_repeated(known: &Document, event: &Event) -> bool {
    match known.text(keys::JSON) {
        Some(json) => json.as_bytes() == event.json(),
        None => known.text(DIGEST).is_some_and(|known| known == digest(event.json())),
    }
}

fn digest(json: &[u8]) -> String {
    Sha256::digest(json).iter().map(|byte| format!("{byte:02x}")).collect()
}
