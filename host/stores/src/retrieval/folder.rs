//! The index of a folder.

use std::path::PathBuf;
use std::time::Instant;

use hatchery_core::StoreError;
use hatchery_files::read_inside;
use tokio::sync::Mutex;

use super::index::{FileKey, PassageIndex};
use super::walk::walk;
use super::{FRESHNESS, Passage};
use crate::memory::similarity::SimilaritySearch;
use crate::sqlite::{Owner, Schema};

/// The schema of indexes of folders: "HtRe".
static SCHEMA: Schema = Schema {
    noun: "retrieval index",
    application_id: 0x4874_5265,
    migrations: &[include_str!("0001_passages.sql"), include_str!("0002_vectors.sql"), include_str!("0003_scopes.sql")],
};

/// The only scope of an index of a folder.
const SCOPE: i64 = 0;

/// Which files of a folder are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderSource {
    /// The folder. Hidden files and symbolic links in it are skipped.
    pub folder: PathBuf,
    /// A folder above it. It is an error if one of the folders below this one, on the way to the folder, is a symbolic
    /// link. `None` follows all links to the folder.
    pub root: Option<PathBuf>,
    /// Patterns of their paths below the folder, with `/`, in which `*` matches any text.
    pub include: Vec<String>,
    /// Maximum size of a file in bytes. Larger ones are skipped.
    pub max_file: u64,
    /// Maximum number of files.
    pub max_files: usize,
}

impl FolderSource {
    /// Creates a source of all text files of a folder, up to 1 MiB each, and 10,000 of them.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), root: None, include: vec!["*".into()], max_file: 1 << 20, max_files: 10_000 }
    }
}

/// An index of a folder. The file is opened at the first search.
pub struct FolderIndex {
    source: FolderSource,
    index: PassageIndex,
    /// When the index was brought up to date last. Held while that is done.
    updated: Mutex<Option<Instant>>,
}

impl FolderIndex {
    /// Creates an index in a file, or in a temporary one.
    pub fn new(source: FolderSource, file: Option<PathBuf>) -> Self {
        Self { source, index: PassageIndex::new(&SCHEMA, file), updated: Mutex::new(None) }
    }

    /// Finds passages of similar meaning too. Up to 2,000 passages without a vector are embedded before a search; the
    /// others are found by their words until then.
    #[must_use]
    pub fn with_similarity(mut self, similarity: SimilaritySearch) -> Self {
        self.index.set_similarity(similarity);
        self
    }

    /// Returns the best passages for a query, best first. Brings the index up to date before, unless it was a moment
    /// ago.
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
        self.index.search([SCOPE; 2], query, limit).await
    }

    /// Reads the files that have changed, and forgets those that are gone. Returns the number of files that were read.
    ///
    /// # Errors
    /// As [`FolderIndex::search`].
    pub async fn update(&self) -> Result<usize, StoreError> {
        let known = self.index.files(SCOPE).await?;
        let source = self.source.clone();
        let walked = tokio::task::spawn_blocking(move || walk(&source)).await;
        let walked = walked.map_err(|error| StoreError::backend("cannot list a folder", error))?;
        let found = walked.map_err(StoreError::InvalidRequest)?;
        let gone = known.keys().filter(|path| !found.contains_key(*path)).cloned();
        for path in gone.collect::<Vec<_>>() {
            self.index.remove(Owner::NONE, FileKey { scope: SCOPE, path }).await?;
        }
        let mut count = 0;
        for (path, state) in found {
            if known.get(&path) == Some(&state) {
                continue;
            }
            let (folder, file, max) =
                (self.source.folder.clone(), self.source.folder.join(&path), self.source.max_file);
            // It may have been replaced since it was listed, also by a link.
            let read = tokio::task::spawn_blocking(move || read_inside(&folder, &file, max)).await;
            let (is_known, key) = (known.contains_key(&path), FileKey { scope: SCOPE, path });
            let Ok(Ok(bytes)) = read else {
                // The next update tries a file again that is not in the index.
                if is_known {
                    self.index.remove(Owner::NONE, key).await?;
                }
                continue;
            };
            // A file that is not text has no passages.
            let text = String::from_utf8(bytes).unwrap_or_default();
            self.index.replace(Owner::NONE, key, state, &text).await?;
            count += 1;
        }
        self.index.embed(Owner::NONE, [SCOPE; 2]).await?;
        Ok(count)
    }

    /// Waits for running operations and closes the file.
    pub async fn close(&self) {
        self.index.close().await;
    }
}
