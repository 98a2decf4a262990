//! Retrieval: the texts of a folder, split into passages, in a full-text index on disk.
//!
//! The index is brought up to date before a search: only files whose size or time of change differs are read again. A
//! search finds the passages with at least one word of the query, in the order of BM25. English words are found in all
//! of their forms. With an embedder it also finds passages of similar meaning. Nothing outside of the folder is read, and
//! nothing is written to it.

mod passages;
mod tool;
mod vectors;
mod walk;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hatchery_core::StoreError;
use rusqlite::{Connection, params};
use tokio::sync::{Mutex, OnceCell};
use uuid::Uuid;

use crate::memory::similarity::{SimilaritySearch, fuse};
use crate::memory::tokenizer::{query_words, text_words};
use crate::sqlite::{Database, Durability, Owner, Schema};
use passages::passages;
pub use tool::{FilesRetrieval, RetrievalToolset};
use vectors::{list_unembedded, nearest_passages, store_vectors};
use walk::{FileState, walk};

/// The schema of retrieval indexes: "HtRe".
static SCHEMA: Schema = Schema {
    noun: "retrieval index",
    application_id: 0x4874_5265,
    migrations: &[include_str!("retrieval/0001_passages.sql"), include_str!("retrieval/0002_vectors.sql")],
};

const LIST_FILES: &str = "SELECT path, modified, size FROM files";

const DELETE_FILE: &str = "DELETE FROM files WHERE path = ?1";

const INSERT_FILE: &str = "INSERT INTO files (path, modified, size) VALUES (?1, ?2, ?3) RETURNING file";

const INSERT_PASSAGE: &str =
    "INSERT INTO passages (file, first_line, last_line, text) VALUES (?1, ?2, ?3, ?4) RETURNING passage";

const INSERT_WORDS: &str = "INSERT INTO passage_words (rowid, words) VALUES (?1, ?2)";

const SEARCH: &str = "\
    SELECT passage FROM ( \
      SELECT rowid AS passage, rank FROM passage_words WHERE passage_words MATCH ?1 ORDER BY rank LIMIT ?2 \
    ) JOIN passages USING (passage) JOIN files USING (file) ORDER BY rank, path, first_line";

const LOAD_PASSAGE: &str =
    "SELECT path, first_line, last_line, text FROM passages JOIN files USING (file) WHERE passage = ?1";

/// Passages of one call of the embedder, and the most calls of an update: a search waits for it.
const EMBEDDED_PASSAGES: usize = 100;
const MAX_EMBEDDER_CALLS: usize = 20;

/// For how long an index counts as up to date.
const FRESHNESS: Duration = Duration::from_secs(1);

/// Which files of a folder are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderSource {
    /// The folder. Hidden files and symbolic links in it are left out.
    pub folder: PathBuf,
    /// Patterns of their paths below the folder, with `/`, in which `*` stands for any text.
    pub include: Vec<String>,
    /// Maximum size of a file in bytes. Larger ones are left out.
    pub max_file: u64,
    /// Maximum number of files.
    pub max_files: usize,
}

impl FolderSource {
    /// Creates a source of all text files of a folder, up to 1 MiB each, and 10,000 of them.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), include: vec!["*".into()], max_file: 1 << 20, max_files: 10_000 }
    }
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// The path below the folder, with `/`.
    pub source: String,
    /// Its lines, from 1.
    pub first_line: u32,
    pub last_line: u32,
    pub text: String,
}

/// An index of a folder. The file is opened at the first search.
pub struct FolderIndex {
    source: FolderSource,
    similarity: Option<SimilaritySearch>,
    file: IndexFile,
    database: OnceCell<Database>,
    /// When the index was brought up to date last. Held while that is done.
    updated: Mutex<Option<Instant>>,
}

/// The place of an index.
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

impl FolderIndex {
    /// Creates an index in a file, or in a temporary one.
    pub fn new(source: FolderSource, file: Option<PathBuf>) -> Self {
        let file = match file {
            Some(file) => IndexFile::Permanent(file),
            None => IndexFile::Temporary(std::env::temp_dir().join(format!("hatchery-{}.db", Uuid::new_v4()))),
        };
        Self { source, similarity: None, file, database: OnceCell::new(), updated: Mutex::new(None) }
    }

    /// Finds passages of similar meaning too. Up to 2,000 passages without a vector are embedded before a search; the others
    /// are found by their words until then.
    #[must_use]
    pub fn with_similarity(self, similarity: SimilaritySearch) -> Self {
        Self { similarity: Some(similarity), ..self }
    }

    async fn database(&self) -> Result<&Database, StoreError> {
        self.database.get_or_try_init(|| Database::open(self.file.path(), &SCHEMA, Durability::Process)).await
    }

    /// Returns the best passages for a query, best first. Brings the index up to date before, unless it was a moment ago.
    ///
    /// # Errors
    /// If the folder cannot be read, has too many files, or the index cannot be used.
    pub async fn search(&self, query: &str, limit: usize) -> Result<Vec<Passage>, StoreError> {
        let mut updated = self.updated.lock().await;
        if updated.is_none_or(|updated| updated.elapsed() > FRESHNESS) {
            self.update().await?;
            *updated = Some(Instant::now());
        }
        drop(updated);
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
        let found = database.read(move |connection| {
            let by_words = if words.is_empty() { Vec::new() } else { find_passages(connection, &words, limit)? };
            let by_similarity = match &similar {
                Some((query, embedder)) => nearest_passages(connection, query, embedder)?,
                None => Vec::new(),
            };
            load_passages(connection, fuse(&by_words, &by_similarity).into_iter().take(limit))
        });
        found.await.map_err(database.error("search"))
    }

    /// Reads the files that have changed, and forgets those that are gone. Returns how many files were read.
    ///
    /// # Errors
    /// As [`FolderIndex::search`].
    pub async fn update(&self) -> Result<usize, StoreError> {
        let database = self.database().await?;
        let known = database.read(list_files).await.map_err(database.error("list the files"))?;
        let source = self.source.clone();
        let walked = tokio::task::spawn_blocking(move || walk(&source)).await;
        let walked = walked.map_err(|error| StoreError::backend("cannot list a folder", error))?;
        let found = walked.map_err(StoreError::InvalidRequest)?;
        let gone = known.keys().filter(|path| !found.contains_key(*path)).cloned();
        for path in gone.collect::<Vec<_>>() {
            let deleted = database.write(Owner::NONE, move |connection| delete_file(connection, &path)).await;
            deleted.map_err(database.error("forget a file"))?;
        }
        let mut count = 0;
        for (path, state) in found {
            if known.get(&path) == Some(&state) {
                continue;
            }
            let file = self.source.folder.join(&path);
            let text = tokio::task::spawn_blocking(move || std::fs::read(file)).await;
            // A file that is gone again, or no text, has no passages.
            let text =
                text.ok().and_then(Result::ok).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
            let passages = passages(&path, &text);
            let write = move |connection: &Connection| replace_file(connection, &path, state, &passages);
            database.write(Owner::NONE, write).await.map_err(database.error("store a file"))?;
            count += 1;
        }
        if let Some(similarity) = &self.similarity {
            self.embed_passages(similarity).await?;
        }
        Ok(count)
    }

    /// Embeds passages that have no vector of this embedder, up to a limit. Stops if the embedder fails.
    async fn embed_passages(&self, similarity: &SimilaritySearch) -> Result<(), StoreError> {
        let database = self.database().await?;
        for _ in 0..MAX_EMBEDDER_CALLS {
            let embedder = similarity.name().clone();
            let found =
                database.read(move |connection| list_unembedded(connection, &embedder, EMBEDDED_PASSAGES)).await;
            let (passages, texts): (Vec<_>, Vec<_>) =
                found.map_err(database.error("list the passages"))?.into_iter().unzip();
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
            database.write(Owner::NONE, write).await.map_err(database.error("store vectors"))?;
        }
        Ok(())
    }

    /// Waits for running operations and closes the file.
    pub async fn close(&self) {
        if let Some(database) = self.database.get() {
            database.close().await;
        }
    }
}

fn list_files(connection: &Connection) -> rusqlite::Result<BTreeMap<String, FileState>> {
    let mut list = connection.prepare_cached(LIST_FILES)?;
    let read = list.query_map([], |row| Ok((row.get(0)?, FileState { modified: row.get(1)?, size: row.get(2)? })))?;
    read.collect()
}

fn delete_file(connection: &Connection, path: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(DELETE_FILE)?.execute(params![path]).map(drop)
}

fn replace_file(connection: &Connection, path: &str, state: FileState, passages: &[Passage]) -> rusqlite::Result<()> {
    delete_file(connection, path)?;
    let values = params![path, state.modified, state.size];
    let file: i64 = connection.prepare_cached(INSERT_FILE)?.query_row(values, |row| row.get(0))?;
    for Passage { first_line, last_line, text, .. } in passages {
        let values = params![file, first_line, last_line, text];
        let passage: i64 = connection.prepare_cached(INSERT_PASSAGE)?.query_row(values, |row| row.get(0))?;
        // The name of the file is searched too.
        let words = text_words(&format!("{path} {text}")).iter().map(|word| &**word).collect::<Vec<_>>().join(" ");
        connection.prepare_cached(INSERT_WORDS)?.execute(params![passage, words])?;
    }
    Ok(())
}

/// Returns the ids of the best passages, best first. `words` is a query of FTS5.
fn find_passages(connection: &Connection, words: &str, limit: usize) -> rusqlite::Result<Vec<i64>> {
    let mut search = connection.prepare_cached(SEARCH)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let read = search.query_map(params![words, limit], |row| row.get(0))?;
    read.collect()
}

fn load_passages(connection: &Connection, passages: impl Iterator<Item = i64>) -> rusqlite::Result<Vec<Passage>> {
    let mut load = connection.prepare_cached(LOAD_PASSAGE)?;
    let read = passages.map(|passage| {
        load.query_row(params![passage], |row| {
            Ok(Passage { source: row.get(0)?, first_line: row.get(1)?, last_line: row.get(2)?, text: row.get(3)? })
        })
    });
    read.collect()
}
