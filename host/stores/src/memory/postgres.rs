//! Keyword search in PostgreSQL, by its full text index.
//!
//! The host splits texts into words, as for the other backends. With a configuration of text search, such as `english`,
//! the lexemes of the words are in the index too, so that "run" finds "running". An index entry has the number of its
//! owner, so a search reads the entries of one user that have one of its words. With an embedder, messages of similar
//! meaning are found too.

mod vectors;

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Content, Event, MemoryEntry, MemoryService, RememberedSession, Session, SessionKey, StoreError, Timestamp,
};
use sha2::{Digest, Sha256};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::MAX_RESULTS;
use super::similarity::SimilaritySearch;
use super::tokenizer::{entry_words, query_words};
use crate::postgres::{
    Database, Failure, OperationName, PostgresAddress, Repeat, Schema, SessionOperation, UserOperation, escape,
    unescape,
};

static SCHEMA: Schema = Schema {
    noun: "memory database",
    part: "memory",
    migrations: &[include_str!("postgres/0001_entries.sql"), include_str!("postgres/0002_entries_of_words.sql")],
};

/// The longest word that is not hashed. PostgreSQL has a limit of 2 kB.
const MAX_WORD_BYTES: usize = 1024;

/// The most bytes of the words of an entry. PostgreSQL has a limit of 1 MB, and lexemes are stored in addition to the
/// words.
const MAX_WORDS_BYTES: usize = 300_000;

const REMEMBER: &str = "SELECT remember($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

const RECALL: &str = "SELECT out_author, out_time, out_content FROM recall_entries($1, $2, $3, $4, $5)";

/// Selects the sessions with entries, of one app and one user if these are given.
const LIST_SESSIONS: &str = "\
    SELECT app, user_id, session, count(*), max(time) FROM owners JOIN entries USING (owner) \
    WHERE ($1::TEXT IS NULL OR app = $1) AND ($2::TEXT IS NULL OR user_id = $2) \
    GROUP BY owner, session ORDER BY 5 DESC, session";

const LIST_ENTRIES: &str = "\
    SELECT author, time, content FROM owners JOIN entries USING (owner) \
    WHERE app = $1 AND user_id = $2 AND session = $3 ORDER BY time, entry";

/// Selects nothing, and fails if there is no such configuration of text search.
const CHECK_TEXT_SEARCH: &str = "SELECT WHERE ($1::TEXT)::REGCONFIG IS NULL";

/// A [`MemoryService`] in a PostgreSQL database that finds entries with at least one word of the query: those with most
/// of the words first, then the newest. Returns up to 100 entries. With a [`SimilaritySearch`], also finds entries of
/// similar meaning.
pub struct PostgresMemory {
    database: Database,
    /// The configuration of text search.
    text_search: Option<String>,
    similarity: Option<SimilaritySearch>,
}

/// Columns of new entries.
#[derive(Default)]
struct NewEntries {
    events: Vec<String>,
    authors: Vec<String>,
    times: Vec<i64>,
    contents: Vec<String>,
    words: Vec<String>,
}

impl NewEntries {
    /// Encodes events, and returns their messages too. Events without words are omitted.
    fn encode<'a>(events: impl Iterator<Item = &'a Arc<Event>>) -> (Self, Vec<&'a Content>) {
        let (mut new, mut messages) = (Self::default(), Vec::new());
        for event in events {
            let Some(content) = event.content.as_deref() else { continue };
            let words = entry_words(content);
            let Ok(json) = serde_json::to_string(content) else { continue };
            if words.is_empty() {
                continue;
            }
            new.events.push(escape(&event.id).into_owned());
            new.authors.push(escape(&event.author).into_owned());
            new.times.push(event.timestamp.as_micros());
            new.contents.push(json);
            new.words.push(join_words(words.iter()));
            messages.push(content);
        }
        (new, messages)
    }
}

/// Returns words, separated by spaces; those that come first if they are too many.
fn join_words<'a>(words: impl Iterator<Item = &'a Box<str>>) -> String {
    let mut joined = String::new();
    for word in words.map(|word| lexeme(word)) {
        if joined.len() + word.len() >= MAX_WORDS_BYTES {
            break;
        }
        if !joined.is_empty() {
            joined.push(' ');
        }
        joined.push_str(&word);
    }
    joined
}

/// Returns the stored form of a word: the hash of a very long word.
fn lexeme(word: &str) -> String {
    if word.len() <= MAX_WORD_BYTES {
        return word.to_owned();
    }
    Sha256::digest(word).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl PostgresMemory {
    /// Opens the database of a URI such as `postgres://user@host/database`, as
    /// [`PostgresSessions::open`](crate::PostgresSessions::open). Its parameter `text_search` names a configuration of
    /// text search, such as `english`.
    ///
    /// # Errors
    /// As [`PostgresSessions::open`](crate::PostgresSessions::open), and [`StoreError::InvalidRequest`] if the database
    /// has no such configuration.
    pub async fn open(uri: &str) -> Result<Self, StoreError> {
        let address = PostgresAddress::parse(uri, |name| std::env::var(name).ok())?;
        let text_search = address.text_search.clone();
        let database = Database::open(address, &SCHEMA).await?;
        if let Some(name) = &text_search {
            let found = database.pool.query(CHECK_TEXT_SEARCH, &[name], Repeat::Safe).await;
            found.map_err(|failure| no_text_search(&database, name, failure))?;
        }
        Ok(Self { database, text_search, similarity: None })
    }

    /// Adds a search by meaning, with the extension `vector` (pgvector), which is created in the database if the
    /// account may do that. Messages that were added without it, or with another embedder, are found by their words
    /// until they are added again.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] if the server does not have the extension, [`StoreError::Backend`] if the account
    /// may not create it.
    pub async fn with_similarity(self, similarity: SimilaritySearch) -> Result<Self, StoreError> {
        vectors::prepare(&self.database).await?;
        Ok(Self { similarity: Some(similarity), ..self })
    }

    /// Inserts entries, after the deletion of the session's entries if they are to be replaced.
    async fn insert<'a>(
        &self,
        session: &SessionKey,
        events: impl Iterator<Item = &'a Arc<Event>>,
        replaces: bool,
    ) -> Result<(), StoreError> {
        let (new, messages) = NewEntries::encode(events);
        if let Some(similarity) = &self.similarity {
            return self.insert_embedded(similarity, session, new, &messages, replaces).await;
        }
        let NewEntries { events, authors, times, contents, words } = new;
        let values: [&(dyn ToSql + Sync); 10] = [
            &&*session.app,
            &&*session.user,
            &&*session.id,
            &replaces,
            &self.text_search,
            &events,
            &authors,
            &times,
            &contents,
            &words,
        ];
        let activity = SessionOperation("add to the memory", session);
        self.database.query(&activity, Repeat::Safe, REMEMBER, &values).await.map(drop)
    }

    fn entries_of(&self, activity: OperationName<'_>, rows: &[Row]) -> Result<Vec<MemoryEntry>, StoreError> {
        let entries = rows.iter().map(read_entry).collect::<Result<Vec<_>, _>>();
        entries.map_err(|failure| self.database.error(activity, failure))
    }
}

#[async_trait]
impl MemoryService for PostgresMemory {
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
        let activity = "list the sessions of the memory";
        let rows = self.database.query(&activity, Repeat::Safe, LIST_SESSIONS, &[&app, &user]).await?;
        let read = |row: &Row| {
            let (app, user, id): (&str, &str, &str) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            Ok(RememberedSession {
                key: SessionKey::new(app, user, id),
                entries: row.try_get::<_, i64>(3)?.cast_unsigned(),
                newest: Timestamp::from_micros(row.try_get(4)?),
            })
        };
        let sessions = rows.iter().map(read).collect::<Result<Vec<_>, Failure>>();
        sessions.map_err(|failure| self.database.error(&activity, failure))
    }

    async fn entries(&self, session: &SessionKey) -> Result<Vec<MemoryEntry>, StoreError> {
        let activity = SessionOperation("list the entries of the memory", session);
        let values: [&(dyn ToSql + Sync); 3] = [&&*session.app, &&*session.user, &&*session.id];
        let rows = self.database.query(&activity, Repeat::Safe, LIST_ENTRIES, &values).await?;
        self.entries_of(&activity, &rows)
    }

    fn embedder_calls(&self, texts: usize) -> usize {
        self.similarity.as_ref().map_or(0, |_| SimilaritySearch::calls(texts))
    }

    async fn search(&self, app: &str, user: &str, query: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        let words: Vec<String> = query_words(query).iter().map(|word| lexeme(word)).collect();
        if words.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(similarity) = &self.similarity
            && let Some(query) = similarity.embed_query(query).await
        {
            return self.find_similar((app, user), &words, similarity.name(), &query).await;
        }
        let activity = UserOperation { operation: "search the memory", app, user };
        let values: [&(dyn ToSql + Sync); 5] = [&app, &user, &self.text_search, &words, &(MAX_RESULTS as i64)];
        let rows = self.database.query(&activity, Repeat::Safe, RECALL, &values).await?;
        self.entries_of(&activity, &rows)
    }
}

/// Returns the error of a configuration of text search that cannot be used.
fn no_text_search(database: &Database, name: &str, failure: Failure) -> StoreError {
    if failure.is_unknown_object() {
        return StoreError::InvalidRequest(format!(
            "{} has no configuration of text search `{name}`: `SELECT cfgname FROM pg_ts_config` lists those that it has",
            database.pool.name()
        ));
    }
    database.error(&"find the configuration of text search", failure)
}

fn read_entry(row: &Row) -> Result<MemoryEntry, Failure> {
    let content = serde_json::from_str(row.try_get(2)?)
        .map_err(|error| StoreError::backend("cannot read a stored message", error))?;
    let author: &str = row.try_get(0)?;
    Ok(MemoryEntry {
        content,
        author: Some(unescape(author).into_owned()).filter(|author| !author.is_empty()),
        timestamp: Timestamp::from_micros(row.try_get(1)?),
    })
}
