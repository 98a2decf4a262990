//! Vectors of entries in the extension `vector` (pgvector), and the search that uses them.
//!
//! The server compares the query with all vectors of the user, without an index. An index of all users' vectors would
//! miss near vectors of a single user.

use std::collections::HashMap;
use std::sync::Arc;

use hatchery_core::{Content, MemoryEntry, SessionKey, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{NewEntries, PostgresMemory, read_entry};
use crate::memory::MAX_RESULTS;
use crate::memory::similarity::{MAX_SIMILAR, Query, SimilaritySearch, UnitVector, embedded_text, fuse};
use crate::postgres::{Database, Failure, Repeat, Schema, SessionOperation, UserOperation};

static SCHEMA: Schema =
    Schema { noun: "memory database", part: "memory vectors", migrations: &[include_str!("vectors/0001_vectors.sql")] };

/// Selects whether the database has the extension, and whether the server could create it.
const FIND_EXTENSION: &str = "\
    SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector'), \
      EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector')";

const REMEMBER: &str = "SELECT remember_vectors($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

const RECALL: &str = "\
    SELECT out_author, out_time, out_content, out_entry, out_is_similar \
    FROM recall_similar($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// Selects the vectors of a session's entries by an embedder.
const LIST_VECTORS: &str = "\
    SELECT event, vector::TEXT FROM owners JOIN entries USING (owner) JOIN entry_vectors USING (entry) \
    WHERE app = $1 AND user_id = $2 AND session = $3 AND embedder = $4";

/// Creates the tables of vectors if they are missing.
///
/// # Errors
/// [`StoreError::InvalidRequest`] if the server does not have the extension, [`StoreError::Backend`] if the account may
/// not create it.
pub(super) async fn prepare(database: &Database) -> Result<(), StoreError> {
    let activity = "find the extension `vector`";
    let rows = database.query(&activity, Repeat::Safe, FIND_EXTENSION, &[]).await?;
    let mut is_there = false;
    for row in &rows {
        let read = || Ok::<_, Failure>(row.try_get::<_, bool>(0)? || row.try_get::<_, bool>(1)?);
        is_there = read().map_err(|failure| database.error(&activity, failure))?;
    }
    if !is_there {
        return Err(StoreError::InvalidRequest(format!(
            "{}: the server does not have the extension `vector`, by which embeddings are compared: install pgvector there, or \
             search without an embedder",
            database.pool.name()
        )));
    }
    SCHEMA.migrate(&database.pool).await
}

impl PostgresMemory {
    /// Inserts entries with their vectors. Only those without a vector are embedded.
    pub(super) async fn insert_embedded(
        &self,
        similarity: &SimilaritySearch,
        session: &SessionKey,
        new: NewEntries,
        messages: &[&Content],
        replaces: bool,
    ) -> Result<(), StoreError> {
        let vectors = self.vectors(similarity, session, &new.events, messages, replaces).await?;
        let embedder: &str = similarity.name();
        let values: [&(dyn ToSql + Sync); 12] = [
            &&*session.app,
            &&*session.user,
            &&*session.id,
            &replaces,
            &self.text_search,
            &new.events,
            &new.authors,
            &new.times,
            &new.contents,
            &new.words,
            &embedder,
            &vectors,
        ];
        let activity = SessionOperation("add to the memory", session);
        self.database.query(&activity, Repeat::Safe, REMEMBER, &values).await.map(drop)
    }

    /// Returns the vector of each event as PostgreSQL reads it; `None` to keep the stored one.
    async fn vectors(
        &self,
        similarity: &SimilaritySearch,
        session: &SessionKey,
        events: &[String],
        messages: &[&Content],
        replaces: bool,
    ) -> Result<Vec<Option<String>>, StoreError> {
        let activity = SessionOperation("read the memory", session);
        let embedder: &str = similarity.name();
        let values: [&(dyn ToSql + Sync); 4] = [&&*session.app, &&*session.user, &&*session.id, &embedder];
        let rows = self.database.query(&activity, Repeat::Safe, LIST_VECTORS, &values).await?;
        let read = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
        let known = rows.iter().map(read).collect::<Result<HashMap<String, String>, Failure>>();
        let mut known = known.map_err(|failure| self.database.error(&activity, failure))?;
        let mut vectors: Vec<Option<String>> = vec![None; events.len()];
        let mut missing = Vec::new();
        for ((event, vector), message) in events.iter().zip(&mut vectors).zip(messages) {
            match known.remove(event) {
                Some(stored) => *vector = replaces.then_some(stored),
                None => missing.push((vector, embedded_text(message))),
            }
        }
        let (missing, texts): (Vec<_>, Vec<_>) = missing.into_iter().unzip();
        for (vector, embedded) in missing.into_iter().zip(similarity.embed(texts).await) {
            *vector = embedded.as_ref().map(UnitVector::to_list);
        }
        Ok(vectors)
    }

    /// Finds the entries with one of the words, and those that are similar to the query.
    pub(super) async fn find_similar(
        &self,
        (app, user): (&str, &str),
        words: &[String],
        embedder: &Arc<str>,
        query: &Query,
    ) -> Result<Vec<MemoryEntry>, StoreError> {
        let activity = UserOperation { operation: "search the memory", app, user };
        let embedder: &str = embedder;
        let values: [&(dyn ToSql + Sync); 9] = [
            &app,
            &user,
            &self.text_search,
            &words,
            &(MAX_RESULTS as i64),
            &embedder,
            &query.vector().to_list(),
            &query.min_similarity(),
            &(MAX_SIMILAR as i64),
        ];
        let rows = self.database.query(&activity, Repeat::Safe, RECALL, &values).await?;
        fuse_rows(&rows).map_err(|failure| self.database.error(&activity, failure))
    }
}

/// Returns the entries of two rankings. Each has its rows in order.
fn fuse_rows(rows: &[Row]) -> Result<Vec<MemoryEntry>, Failure> {
    let (mut by_words, mut by_similarity): (Vec<i64>, Vec<i64>) = Default::default();
    let mut entries = HashMap::new();
    for row in rows {
        let number: i64 = row.try_get(3)?;
        if row.try_get(4)? {
            by_similarity.push(number)
        } else {
            by_words.push(number)
        }
        entries.insert(number, read_entry(row)?);
    }
    let found = fuse(&by_words, &by_similarity);
    Ok(found.iter().take(MAX_RESULTS).filter_map(|number| entries.remove(number)).collect())
}
