//! Keyword search in a SQLite database, by its full-text index FTS5.
//!
//! The index has the words of each entry and its owner, so a search reads the entries of one user that have one of its
//! words. There is no stemming: "run" does not find "running". With an embedder, messages of similar meaning are found
//! too.

mod vectors;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{Event, MemoryEntry, MemoryService, RememberedSession, Session, SessionKey, StoreError, Timestamp};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::MAX_RESULTS;
use super::similarity::{SimilaritySearch, UnitVector, embedded_text};
use super::tokenizer::{entry_words, query_words};
use crate::sqlite::{Database, Durability, Owner, Schema};

/// The schema of memory databases: "HtMe".
static SCHEMA: Schema = Schema {
    noun: "memory database",
    application_id: 0x4874_4D65,
    migrations: &[include_str!("sqlite/0001_entries.sql"), include_str!("sqlite/0002_vectors.sql")],
};

const FIND_OWNER: &str = "SELECT owner FROM owners WHERE app = ?1 AND user = ?2";

const INSERT_OWNER: &str = "INSERT INTO owners (app, user) VALUES (?1, ?2) RETURNING owner";

const INSERT_ENTRY: &str = "\
    INSERT INTO entries (owner, session, event, author, time, content) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
    ON CONFLICT DO NOTHING RETURNING entry";

const INSERT_WORDS: &str = "INSERT INTO entry_words (rowid, words) VALUES (?1, ?2)";

const DELETE_SESSION: &str = "DELETE FROM entries WHERE owner = ?1 AND session = ?2";

/// Selects the sessions with entries, of one app and one user if these are given.
const LIST_SESSIONS: &str = "\
    SELECT app, user, session, count(*), max(time) FROM owners JOIN entries USING (owner) \
    WHERE (?1 IS NULL OR app = ?1) AND (?2 IS NULL OR user = ?2) GROUP BY owner, session ORDER BY 5 DESC, session";

const LIST_ENTRIES: &str =
    "SELECT author, time, content FROM entries WHERE owner = ?1 AND session = ?2 ORDER BY time, entry";

/// Selects the entries of an owner with one of the words in a JSON array: those with most of them first, then the
/// newest.
const SEARCH: &str = "\
    SELECT author, time, content, entry FROM ( \
      SELECT entry_words.rowid AS entry, count(*) AS matches FROM json_each(?2) AS query \
      JOIN entry_words ON entry_words MATCH '_' || ?1 || ' AND \"' || query.value || '\"' GROUP BY 1 \
    ) JOIN entries USING (entry) ORDER BY matches DESC, time DESC, entry LIMIT ?3";

/// A [`MemoryService`] in a SQLite database that finds entries with at least one word of the query: those with most of
/// the words first, then the newest. Returns up to 100 entries. With a [`SimilaritySearch`], also finds entries of
/// similar meaning.
pub struct SqliteMemory {
    database: Database,
    similarity: Option<SimilaritySearch>,
}

/// The row of an event, encoded.
struct NewEntry {
    event: String,
    author: String,
    time: i64,
    content: String,
    words: String,
    /// The name of the embedder, with the vector.
    vector: Option<(Arc<str>, UnitVector)>,
}

impl NewEntry {
    /// Encodes an event; `None` if it has no words.
    fn encode(event: &Arc<Event>) -> Option<Self> {
        let content = event.content.as_deref()?;
        let words = entry_words(content);
        if words.is_empty() {
            return None;
        }
        Some(Self {
            event: event.id.clone(),
            author: event.author.clone(),
            time: event.timestamp.as_micros(),
            content: serde_json::to_string(content).ok()?,
            words: words.iter().map(|word| &**word).collect::<Vec<_>>().join(" "),
            vector: None,
        })
    }
}

impl SqliteMemory {
    /// Opens the database, and creates the file and its parent folders if they are missing.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] for the database of another program or of a newer version,
    /// [`StoreError::Backend`] if the file cannot be used.
    pub async fn open(file: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(file, Durability::default()).await
    }

    /// Opens the database with this durability.
    ///
    /// # Errors
    /// As [`SqliteMemory::open`].
    pub async fn open_with(file: impl AsRef<Path>, durability: Durability) -> Result<Self, StoreError> {
        Ok(Self { database: Database::open(file.as_ref(), &SCHEMA, durability).await?, similarity: None })
    }

    /// Adds a search by meaning. Messages that were added without it, or with another embedder, are found by their
    /// words until they are added again.
    #[must_use]
    pub fn with_similarity(self, similarity: SimilaritySearch) -> Self {
        Self { similarity: Some(similarity), ..self }
    }

    /// Waits for running operations and closes the file. Later calls fail.
    pub async fn close(&self) {
        self.database.close().await;
    }

    /// Inserts entries, after the deletion of the session's entries if they are to be replaced.
    async fn insert<'a>(
        &self,
        session: &SessionKey,
        events: impl Iterator<Item = &'a Arc<Event>>,
        replaces: bool,
    ) -> Result<(), StoreError> {
        let mut entries: Vec<NewEntry> = Vec::new();
        let mut texts = Vec::new();
        for event in events {
            let (Some(entry), Some(content)) = (NewEntry::encode(event), &event.content) else { continue };
            entries.push(entry);
            if self.similarity.is_some() {
                texts.push(embedded_text(content));
            }
        }
        if let Some(similarity) = &self.similarity {
            self.embed(similarity, session, &mut entries, texts, replaces).await?;
        }
        let key = session.clone();
        let inserted = self
            .database
            .write(Owner::new(session), move |connection| insert_entries(connection, &key, &entries, replaces));
        inserted.await.map_err(self.database.error(format_args!("add to the memory ({session})")))
    }
}

#[async_trait]
impl MemoryService for SqliteMemory {
    async fn close(&self) {
        SqliteMemory::close(self).await;
    }

    async fn add_session(&self, session: &Session) -> Result<(), StoreError> {
        self.insert(&session.key, session.events.iter(), true).await
    }

    async fn add_events(&self, session: &SessionKey, events: &[Arc<Event>]) -> Result<(), StoreError> {
        self.insert(session, events.iter(), false).await
    }

    async fn delete_session(&self, session: &SessionKey) -> Result<(), StoreError> {
        self.insert(session, [].into_iter(), true).await
    }

    async fn sessions(&self, app: Option<&str>, user: Option<&str>) -> Result<Vec<RememberedSession>, StoreError> {
        let (app, user) = (app.map(str::to_owned), user.map(str::to_owned));
        let found = self.database.read(move |connection| list_sessions(connection, app.as_deref(), user.as_deref()));
        found.await.map_err(self.database.error(format_args!("list the sessions of the memory")))
    }

    async fn entries(&self, session: &SessionKey) -> Result<Vec<MemoryEntry>, StoreError> {
        let key = session.clone();
        let found = self.database.read(move |connection| list_entries(connection, &key));
        found.await.map_err(self.database.error(format_args!("list the entries of the memory ({session})")))
    }

    fn embedder_calls(&self, texts: usize) -> usize {
        self.similarity.as_ref().map_or(0, |_| SimilaritySearch::calls(texts))
    }

    async fn search(&self, app: &str, user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        let words: Vec<Box<str>> = query_words(query).into_iter().collect();
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let similar = match &self.similarity {
            Some(similarity) => similarity.embed_query(query).await.map(|query| (similarity.name().clone(), query)),
            None => None,
        };
        let words = serde_json::Value::from_iter(words.into_iter().map(String::from)).to_string();
        let (own_app, own_user) = (app.to_owned(), user.to_owned());
        let found = self.database.read(move |connection| {
            let Some(owner) = find_owner(connection, &own_app, &own_user)? else { return Ok(Vec::new()) };
            match &similar {
                None => find_entries(connection, owner, &words),
                Some((embedder, query)) => vectors::find_similar(connection, owner, &words, embedder, query),
            }
        });
        found.await.map_err(self.database.error(format_args!("search the memory of appName={app}, userId={user}")))
    }
}

fn find_owner(connection: &Connection, app: &str, user: &str) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(FIND_OWNER)?.query_row(params![app, user], |row| row.get(0)).optional()
}

fn insert_entries(
    connection: &Connection,
    session: &SessionKey,
    entries: &[NewEntry],
    replaces: bool,
) -> rusqlite::Result<()> {
    let owner: i64 = match find_owner(connection, &session.app, &session.user)? {
        Some(owner) => owner,
        None if entries.is_empty() => return Ok(()),
        None => {
            let values = params![session.app, session.user];
            connection.prepare_cached(INSERT_OWNER)?.query_row(values, |row| row.get(0))?
        }
    };
    if replaces {
        connection.prepare_cached(DELETE_SESSION)?.execute(params![owner, session.id])?;
    }
    for NewEntry { event, author, time, content, words, vector } in entries {
        let values = params![owner, session.id, event, author, time, content];
        let entry = connection.prepare_cached(INSERT_ENTRY)?.query_row(values, |row| row.get::<_, i64>(0));
        if let Some(entry) = entry.optional()? {
            connection.prepare_cached(INSERT_WORDS)?.execute(params![entry, format!("_{owner} {words}")])?;
        }
        if let Some((embedder, vector)) = vector {
            vectors::set(connection, vectors::EntryKey { owner, session: &session.id, event }, embedder, vector)?;
        }
    }
    Ok(())
}

fn list_sessions(
    connection: &Connection,
    app: Option<&str>,
    user: Option<&str>,
) -> rusqlite::Result<Vec<RememberedSession>> {
    let mut list = connection.prepare_cached(LIST_SESSIONS)?;
    let read = |row: &Row<'_>| {
        let (app, user, id): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(RememberedSession {
            key: SessionKey::new(app, user, id),
            entries: row.get::<_, u32>(3)?.into(),
            newest: Timestamp::from_micros(row.get(4)?),
        })
    };
    list.query_map(params![app, user], read)?.collect()
}

fn list_entries(connection: &Connection, session: &SessionKey) -> rusqlite::Result<Vec<MemoryEntry>> {
    let Some(owner) = find_owner(connection, &session.app, &session.user)? else { return Ok(Vec::new()) };
    connection.prepare_cached(LIST_ENTRIES)?.query_map(params![owner, session.id], read_entry)?.collect()
}

/// `words` is a JSON array.
fn find_entries(connection: &Connection, owner: i64, words: &str) -> rusqlite::Result<Vec<MemoryEntry>> {
    let mut search = connection.prepare_cached(SEARCH)?;
    search.query_map(params![owner, words, MAX_RESULTS as i64], read_entry)?.collect()
}

fn read_entry(row: &Row<'_>) -> rusqlite::Result<MemoryEntry> {
    let content = serde_json::from_slice(row.get_ref(2)?.as_bytes()?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(2, Type::Text, error.into()))?;
    Ok(MemoryEntry {
        content,
        author: Some(row.get(0)?).filter(|author: &String| !author.is_empty()),
        timestamp: Timestamp::from_micros(row.get(1)?),
    })
}
