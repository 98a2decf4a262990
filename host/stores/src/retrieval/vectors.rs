//! Embeddings of passages.

use rusqlite::{Connection, params};

use super::index::Scopes;
use crate::memory::similarity::{Query, UnitVector};

const LIST_UNEMBEDDED: &str = "\
    SELECT passage, path, text FROM passages JOIN files USING (file) \
    WHERE scope IN (?3, ?4) AND NOT EXISTS (SELECT 1 FROM passage_vectors WHERE passage_vectors.passage = passages.passage AND embedder = ?1) \
    ORDER BY passage LIMIT ?2";

const INSERT_VECTOR: &str = "INSERT OR REPLACE INTO passage_vectors (passage, embedder, vector) SELECT passage, ?2, ?3 FROM passages WHERE passage = ?1";

const LIST_VECTORS: &str = "\
    SELECT passage, vector FROM files JOIN passages USING (file) JOIN passage_vectors USING (passage) \
    WHERE scope IN (?2, ?3) AND embedder = ?1";

/// Returns passages of these owners without a vector of this embedder, with the texts to embed.
pub(super) fn list_unembedded(
    connection: &Connection,
    [own, shared]: Scopes,
    embedder: &str,
    limit: usize,
) -> rusqlite::Result<Vec<(i64, String)>> {
    let mut list = connection.prepare_cached(LIST_UNEMBEDDED)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let read = list.query_map(params![embedder, limit, own, shared], |row| {
        let (path, text): (String, String) = (row.get(1)?, row.get(2)?);
        Ok((row.get(0)?, format!("{path}\n{text}")))
    })?;
    read.collect()
}

/// Stores the vectors of passages that still exist. One without direction is stored as empty, so that its passage is
/// not embedded again.
pub(super) fn store_vectors<'a>(
    connection: &Connection,
    embedder: &str,
    vectors: impl Iterator<Item = (&'a i64, &'a Option<UnitVector>)>,
) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(INSERT_VECTOR)?;
    for (passage, vector) in vectors {
        let bytes = vector.as_ref().map(UnitVector::as_bytes).unwrap_or_default();
        insert.execute(params![passage, embedder, bytes])?;
    }
    Ok(())
}

/// Returns the passages of these owners that are similar enough to the query, most similar first.
pub(super) fn nearest_passages(
    connection: &Connection,
    [own, shared]: Scopes,
    query: &Query,
    embedder: &str,
) -> rusqlite::Result<Vec<i64>> {
    let mut list = connection.prepare_cached(LIST_VECTORS)?;
    let mut rows = list.query(params![embedder, own, shared])?;
    let mut similarities = Vec::new();
    while let Some(row) = rows.next()? {
        let passage: i64 = row.get(0)?;
        let vector = row.get_ref(1)?.as_blob()?;
        similarities.extend(query.similarity(vector).map(|similarity| (passage, similarity)));
    }
    Ok(query.nearest(similarities.into_iter()))
}
