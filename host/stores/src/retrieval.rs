//! Retrieval: the texts of a folder, or of artifacts, split into passages, in a full-text index on disk.
//!
//! The index is brought up to date before a search: only files whose size or time of change differs are read again, and
//! only artifacts with a new version. A search finds the passages with at least one word of the query, in the order of
//! BM25. English words are found in all of their forms. With an embedder it also finds passages of similar meaning.
//! Nothing outside of the folder is read, and nothing is written to it.

mod artifacts;
mod folder;
mod index;
mod passages;
mod tool;
mod vectors;
mod walk;

use std::time::Duration;

pub use artifacts::{ArtifactIndex, ArtifactSource};
pub use folder::{FolderIndex, FolderSource};
pub use tool::{FilesRetrieval, RetrievalIndex, RetrievalToolset};

/// For how long the index of a folder counts as up to date, and the time between two searches for artifacts that are
/// gone.
const FRESHNESS: Duration = Duration::from_secs(1);

/// A part of a file or of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// The path below the folder, with `/`, or the name of the artifact.
    pub source: String,
    /// The version of the artifact; `None` for files.
    pub version: Option<u64>,
    /// Its lines, from 1.
    pub first_line: u32,
    pub last_line: u32,
    pub text: String,
}
