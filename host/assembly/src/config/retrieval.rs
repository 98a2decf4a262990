//! Settings of folders that agents search: `retrieval`.

use std::path::{Component, PathBuf};

use hatchery_core::{ModelError, ModelResolver};
use hatchery_stores::SimilaritySearch;
use hatchery_stores::retrieval::FolderSource;
use serde::Deserialize;

use super::memory::check_similarity;
use crate::byte_size::ByteSize;

/// A folder that agents search by `FilesRetrieval`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetrievalConfig {
    /// The folder, which is below that of this file.
    pub folder: PathBuf,
    /// Its description for models.
    pub description: String,
    /// Patterns of the paths of its files, in which `*` stands for any text. Default: all.
    pub include: Option<Vec<String>>,
    /// Maximum size of a file. Larger ones are left out. Default: 1 MiB.
    pub max_file: Option<ByteSize>,
    /// Maximum number of files. Default: 10,000.
    pub max_files: Option<usize>,
    /// The name of the embedder by which passages of similar meaning are found too.
    pub embedder: Option<String>,
    /// Least cosine of the embeddings of similar texts, from 0 to 1. Default: 0.3.
    pub min_similarity: Option<f64>,
}

impl RetrievalConfig {
    /// Checks the name and the folder.
    ///
    /// # Errors
    /// The problem, with the key.
    pub(super) fn check(&self, name: &str) -> Result<(), String> {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
        if name.is_empty() || name.len() > 50 || !name.chars().all(is_plain) {
            return Err(format!(
                "retrieval: `{}` is not a valid name; use up to 50 letters, digits, `-` and `_`",
                name.escape_debug()
            ));
        }
        let mut components = self.folder.components();
        let is_below = components.all(|component| matches!(component, Component::Normal(_) | Component::CurDir));
        if self.folder.as_os_str().is_empty() || !is_below {
            return Err(format!(
                "retrieval.{name}: `folder` must be a folder below that of hatchery.yaml, such as `docs`"
            ));
        }
        check_similarity(&format!("retrieval.{name}"), self.embedder.as_deref(), self.min_similarity)
    }

    /// Returns the search by meaning. `None` if there is no embedder.
    ///
    /// # Errors
    /// If no model provider has the embedder.
    pub(crate) fn similarity(&self, models: &dyn ModelResolver) -> Result<Option<SimilaritySearch>, ModelError> {
        let Some(name) = &self.embedder else { return Ok(None) };
        let similarity = SimilaritySearch::new(name, models.embedder(name)?);
        Ok(Some(match self.min_similarity {
            Some(min_similarity) => similarity.with_min_similarity(min_similarity),
            None => similarity,
        }))
    }

    /// Returns the files that are searched.
    pub(crate) fn source(&self) -> FolderSource {
        let default = FolderSource::new(&self.folder);
        FolderSource {
            include: self.include.clone().unwrap_or(default.include),
            max_file: self.max_file.map_or(default.max_file, |size| size.bytes() as u64),
            max_files: self.max_files.unwrap_or(default.max_files),
            folder: default.folder,
        }
    }
}
