//! The index of passages: an SQLite database with a full-text table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hatchery_core::StoreError;
use rusqlite::{Connection, params};
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::Passage;
use super::passages::{Lines, passages};
use super::vectors::{list_unembedded, nearest_passages, store_vectors};
use crate::memory::similarity::{SimilaritySearch, fuse};
use crate::memory::tokenizer::{query_words, text_words};
use crate::sqlite::{Database, Durability, Owner, Schema, read_transaction};

const LIST_FILES: &str = "SELECT path, modified, size, version FROM files WHERE scope = ?1";

const DELETE_FILE: &str = "DELETE FROM files WHERE scope = ?1 AND path = ?2";

const INSERT_FILE: &str =
    "INSERT INTO files (scope, path, modified, size, version) VALUES (?1, ?2, ?3, ?4, ?5) RETURNING file";

const INSERT_PASSAGE: &str =
    "INSERT INTO passages (file, first_line, last_line, text) VALUES (?1, ?2, ?3, ?4) RETURNING passage";

const INSERT_WORDS: &str = "INSERT INTO passage_words (rowid, words) VALUES (?1, ?2)";

/// The full-text table is read in the order of its rank until there are enough passages of the scopes.
const SEARCH: &str = "\
    SELECT passage FROM ( \
      SELECT passage, rank, path, first_line FROM passage_words \
      CROSS JOIN passages ON passage = passage_words.rowid CROSS JOIN files USING (file) \
      WHERE passage_words MATCH ?1 AND scope IN (?3, ?4) ORDER BY rank LIMIT ?2 \
    ) ORDER BY rank, path, first_line";

const LOAD_PASSAGE: &str =
    "SELECT path, first_line, last_line, text, version FROM passages JOIN files USING (file) WHERE passage = ?1";

/// Number of passages of one call of the embedder, and the maximum number of calls of an update, for which a search
/// waits.
const EMBEDDED_PASSAGES: usize = 100;
const MAX_EMBEDDER_CALLS: usize = 20;

/// The owners whose texts are searched. A search in the texts of one owner has the same owner twice.
pub(super) type Scopes = [i64; 2];

/// The stamp of a text, which changes with its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileState {
    /// Microseconds since 1970.
    pub(super) modified: i64,
    pub(super) size: i64,
    /// The version of an artifact.
    pub(super) version: Option<i64>,
}

/// A text of one owner.
#[derive(Debug, Clone)]
pub(super) struct FileKey {
    pub(super) scope: i64,
    pub(super) path: String,
}

/// An index whose file is opened when it is used first.
pub(super) struct PassageIndex {
    schema: &'static Schema,
    similarity: Option<SimilaritySearch>,
    file: IndexFile,
    database: OnceCell<Database>,
}

/// The storage of an index.
enum IndexFile {
    Permanent(PathBuf),
    /// Deleted with the index.
    Temporary(PathBuf),
}

impl IndexFile {
    fn path(&self) -> &Path {
        match self {
            Self::Permanent(file) | Self::Temporary(file) => file,
        }
    }
}

impl Drop for IndexFile {
    fn drop(&mut self) {
        if let Self::Temporary(file) = self {
            for suffix in ["", "-wal", "-shm"] {
                let mut name = file.clone().into_os_string();
                name.push(suffix);
                // It does not exist if there was no search.
                let _ = std::fs::remove_file(name);
            }
        }
    }
}

impl PassageIndex {
    /// Creates an index in a file, or in a temporary one.
    pub(super) fn new(schema: &'static Schema, file: Option<PathBuf>) -> Self {
        let file = match file {
            Some(file) => IndexFile::Permanent(file),
            None => IndexFile::Temporary(std::env::temp_dir().join(format!("hatchery-{}.db", Uuid::new_v4()))),
        };
        Self { schema, similarity: None, file, database: OnceCell::new() }
    }

    pub(super) fn set_similarity(&mut self, similarity: SimilaritySearch) {
        self.similarity = Some(similarity);
    }

    pub(super) async fn database(&self) -> Result<&Database, StoreError> {
        self.database.get_or_try_init(|| Database::open(self.file.path(), self.schema, Durability::Process)).await
    }

    /// Returns the best passages of these owners for a query, best first.
    pub(super) async fn search(&self, scopes: Scopes, query: &str, limit: usize) -> Result<Vec<Passage>, StoreError> {
        let words: Vec<String> = query_words(query).iter().map(|word| format!("\"{word}\"")).collect();
        let similar = match &self.similarity {
            Some(similarity) => similarity.embed_query(query).await.map(|query| (query, similarity.name().clone())),
            None => None,
        };
        if words.is_empty() && similar.is_none() {
            return Ok(Vec::new());
        }
        let words = words.join(" OR ");
        let database = self.database().await?;
        // Another search may replace passages concurrently.
        let search = move |connection: &Connection| {
            let by_words =
                if words.is_empty() { Vec::new() } else { find_passages(connection, scopes, &words, limit)? };
            let by_similarity = match &similar {
                Some((query, embedder)) => nearest_passages(connection, scopes, query, embedder)?,
                None => Vec::new(),
            };
            load_passages(connection, fuse(&by_words, &by_similarity).into_iter().take(limit))
        };
        let found = database.read(move |connection| read_transaction(connection, search));
        found.await.map_err(database.error("search"))
    }

    /// Returns the texts of an owner by their paths.
    pub(super) async fn files(&self, scope: i64) -> Result<BTreeMap<String, FileState>, StoreError> {
        let database = self.database().await?;
        let found = database.read(move |connection| list_files(connection, scope)).await;
        found.map_err(database.error("list the files"))
    }

    /// Forgets a text. Succeeds if it is unknown.
    pub(super) async fn remove(&self, owner: Owner<'_>, key: FileKey) -> Result<(), StoreError> {
        let database = self.database().await?;
        let deleted = database.write(owner, move |connection| delete_file(connection, &key)).await;
        deleted.map_err(database.error("forget a file"))
    }

    /// Stores a text. Replaces the earlier one.
    pub(super) async fn replace(
        &self,
        owner: Owner<'_>,
        key: FileKey,
        state: FileState,
        text: &str,
    ) -> Result<(), StoreError> {
        let database = self.database().await?;
        let passages = passages(text);
        let write = move |connection: &Connection| replace_file(connection, &key, state, &passages);
        database.write(owner, write).await.map_err(database.error("store a file"))
    }

    /// Embeds passages of these owners that have no vector of this embedder, up to a limit. Stops if the embedder
    /// fails.
    pub(super) async fn embed(&self, owner: Owner<'_>, scopes: Scopes) -> Result<(), StoreError> {
        let Some(similarity) = &self.similarity else { return Ok(()) };
        let database = self.database().await?;
        for _ in 0..MAX_EMBEDDER_CALLS {
            let embedder = similarity.name().clone();
            let list = move |connection: &Connection| list_unembedded(connection, scopes, &embedder, EMBEDDED_PASSAGES);
            let found = database.read(list).await.map_err(database.error("list the passages"))?;
            let (passages, texts): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            if passages.is_empty() {
                break;
            }
            let vectors = similarity.embed(texts).await;
            if vectors.iter().all(Option::is_none) {
                break;
            }
            let embedder = similarity.name().clone();
            let write =
                move |connection: &Connection| store_vectors(connection, &embedder, passages.iter().zip(&vectors));
            database.write(owner, write).await.map_err(database.error("store vectors"))?;
        }
        Ok(())
    }

    /// Waits for running operations and closes the file.
    pub(super) async fn close(&self) {
        if let Some(database) = self.database.get() {
            database.close().await;
        }
    }
}

fn list_files(connection: &Connection, scope: i64) -> rusqlite::Result<BTreeMap<String, FileState>> {
    let mut list = connection.prepare_cached(LIST_FILES)?;
    let read = list.query_map([scope], |row| {
        Ok((row.get(0)?, FileState { modified: row.get(1)?, size: row.get(2)?, version: row.get(3)? }))
    })?;
    read.collect()
}

fn delete_file(connection: &Connection, FileKey { scope, path }: &FileKey) -> rusqlite::Result<()> {
    connection.prepare_cached(DELETE_FILE)?.execute(params![scope, path]).map(drop)
}

fn replace_file(connection: &Connection, key: &FileKey, state: FileState, passages: &[Lines]) -> rusqlite::Result<()> {
    delete_file(connection, key)?;
    let FileKey { scope, path } = key;
    let values = params![scope, path, state.modified, state.size, state.version];
    let file: i64 = connection.prepare_cached(INSERT_FILE)?.query_row(values, |row| row.get(0))?;
    for Lines { first, last, text } in passages {
        let values = params![file, first, last, text];
        let passage: i64 = connection.prepare_cached(INSERT_PASSAGE)?.query_row(values, |row| row.get(0))?;
        // The name of the file is searched too.
        let words = text_words(&format!("{path} {text}")).iter().map(|word| &**word).collect::<Vec<_>>().join(" ");
        connection.prepare_cached(INSERT_WORDS)?.execute(params![passage, words])?;
    }
    Ok(())
}

/// Returns the ids of the best passages, best first. `words` is a query of FTS5.
fn find_passages(connection: &Connection, scopes: Scopes, words: &str, limit: usize) -> rusqlite::Result<Vec<i64>> {
    let mut search = connection.prepare_cached(SEARCH)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let [own, shared] = scopes;
    let read = search.query_map(params![words, limit, own, shared], |row| row.get(0))?;
    read.collect()
}

fn load_passages(connection: &Connection, passages: impl Iterator<Item = i64>) -> rusqlite::Result<Vec<Passage>> {
    let mut load = connection.prepare_cached(LOAD_PASSAGE)?;
    let read = passages.map(|passage| {
        load.query_row(params![passage], |row| {
            let version: Option<i64> = row.get(4)?;
            Ok(Passage {
                source: row.get(0)?,
                version: version.and_then(|version| u64::try_from(version).ok()),
                first_line: row.get(1)?,
                last_line: row.get(2)?,
                text: row.get(3)?,
            })
        })
    });
    read.collect()
}
