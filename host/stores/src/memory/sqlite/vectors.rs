//! Vectors of entries, and the search that uses them.

use std::collections::HashMap;

use hatchery_core::{MemoryEntry, SessionKey, StoreError};
use rusqlite::{Connection, params};

use super::{MAX_RESULTS, NewEntry, SEARCH, SqliteMemory, find_owner, read_entry};
use crate::memory::similarity::{Query, SimilaritySearch, UnitVector, fuse};
use crate::sqlite::read_transaction;

/// Selects the vectors of a session's entries by an embedder.
const LIST_VECTORS: &str = "\
    SELECT event, vector FROM entries JOIN entry_vectors USING (entry) \
    WHERE owner = ?1 AND session = ?2 AND embedder = ?3";

/// Selects the vectors of an owner's entries by an embedder.
const COMPARE: &str =
    "SELECT time, entry, vector FROM entries JOIN entry_vectors USING (entry) WHERE owner = ?1 AND embedder = ?2";

const SET_VECTOR: &str = "\
    INSERT INTO entry_vectors (entry, embedder, vector) \
    SELECT entry, ?4, ?5 FROM entries WHERE owner = ?1 AND session = ?2 AND event = ?3 \
    ON CONFLICT DO UPDATE SET embedder = excluded.embedder, vector = excluded.vector";

const FIND_ENTRY: &str = "SELECT author, time, content FROM entries WHERE entry = ?1";

impl SqliteMemory {
    /// Sets the vectors that are to be stored with new entries. Only texts without a vector are embedded.
    pub(super) async fn embed(
        &self,
        similarity: &SimilaritySearch,
        session: &SessionKey,
        entries: &mut [NewEntry],
        texts: Vec<String>,
        replaces: bool,
    ) -> Result<(), StoreError> {
        let (key, embedder) = (session.clone(), similarity.name().clone());
        let known = self.database.read(move |connection| list(connection, &key, &embedder));
        let mut known = known.await.map_err(self.database.error(format_args!("read the memory ({session})")))?;
        let mut missing = Vec::new();
        for (entry, text) in entries.iter_mut().zip(texts) {
            match known.remove(&entry.event) {
                Some(vector) => entry.vector = replaces.then(|| (similarity.name().clone(), vector)),
                None => missing.push((entry, text)),
            }
        }
        let (missing, texts): (Vec<_>, Vec<_>) = missing.into_iter().unzip();
        for (entry, vector) in missing.into_iter().zip(similarity.embed(texts).await) {
            entry.vector = vector.map(|vector| (similarity.name().clone(), vector));
        }
        Ok(())
    }
}

/// Returns the vectors of a session by the ids of events.
fn list(
    connection: &Connection,
    session: &SessionKey,
    embedder: &str,
) -> rusqlite::Result<HashMap<String, UnitVector>> {
    let Some(owner) = find_owner(connection, &session.app, &session.user)? else { return Ok(HashMap::new()) };
    let mut list = connection.prepare_cached(LIST_VECTORS)?;
    let read = list.query_map(params![owner, session.id, embedder], |row| {
        Ok((row.get(0)?, UnitVector::from_bytes(row.get_ref(1)?.as_blob()?)))
    })?;
    read.collect()
}

/// The unique key of an entry.
pub(super) struct EntryKey<'a> {
    pub(super) owner: i64,
    pub(super) session: &'a str,
    pub(super) event: &'a str,
}

/// Sets the vector of an entry.
pub(super) fn set(
    connection: &Connection,
    EntryKey { owner, session, event }: EntryKey<'_>,
    embedder: &str,
    vector: &UnitVector,
) -> rusqlite::Result<()> {
    let values = params![owner, session, event, embedder, vector.as_bytes()];
    connection.prepare_cached(SET_VECTOR)?.execute(values).map(drop)
}

/// Finds the entries with one of the words in a JSON array, and those that are similar to the query.
pub(super) fn find_similar(
    connection: &Connection,
    owner: i64,
    words: &str,
    embedder: &str,
    query: &Query,
) -> rusqlite::Result<Vec<MemoryEntry>> {
    read_transaction(connection, |connection| {
        let mut search = connection.prepare_cached(SEARCH)?;
        let by_words = search.query_map(params![owner, words, MAX_RESULTS as i64], |row| row.get("entry"))?;
        let by_words = by_words.collect::<rusqlite::Result<Vec<i64>>>()?;
        let mut compare = connection.prepare_cached(COMPARE)?;
        let compared = compare.query_map(params![owner, embedder], |row| {
            Ok(((row.get(0)?, row.get(1)?), query.similarity(row.get_ref(2)?.as_blob()?)))
        })?;
        let compared = compared.collect::<rusqlite::Result<Vec<((i64, i64), Option<f32>)>>>()?;
        let compared = compared.into_iter().filter_map(|(entry, similarity)| Some((entry, similarity?)));
        let similar: Vec<i64> = query.nearest(compared).into_iter().map(|(_, entry)| entry).collect();
        let found = fuse(&by_words, &similar);
        let mut find = connection.prepare_cached(FIND_ENTRY)?;
        found.iter().take(MAX_RESULTS).map(|entry| find.query_row(params![entry], read_entry)).collect()
    })
}
