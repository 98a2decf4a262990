//! Settings of the folders and artifacts that agents search: `retrieval`.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use hatchery_core::{ModelError, ModelResolver};
use hatchery_stores::SimilaritySearch;
use hatchery_stores::retrieval::{ArtifactIndex, ArtifactSource, FolderIndex, FolderSource, RetrievalIndex};
use serde::Deserialize;

use super::memory::check_similarity;
use crate::byte_size::ByteSize;

/// A folder, or the artifacts of a session and its user, that agents search by `FilesRetrieval`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetrievalConfig {
    /// The folder, which is below the folder of this file.
    pub folder: Option<PathBuf>,
    /// The folder of this file, below which no link leads to the folder.
    #[serde(skip)]
    pub(super) root: Option<PathBuf>,
    /// Whether artifacts are searched instead of a folder.
    pub artifacts: bool,
    /// The description of the texts for models.
    pub description: String,
    /// Patterns of the paths of files, or of the names of artifacts, in which `*` matches any text. Default: all.
    pub include: Option<Vec<String>>,
    /// Maximum size of a file. Larger files are skipped. Default: 1 MiB.
    pub max_file: Option<ByteSize>,
    /// Maximum number of files. Default: 10,000.
    pub max_files: Option<usize>,
    /// The name of the embedder by which passages of similar meaning are found too.
    pub embedder: Option<String>,
    /// Least cosine of the embeddings of similar texts, from 0 to 1. Default: 0.3.
    pub min_similarity: Option<f64>,
}

impl RetrievalConfig {
    /// Checks the name and the searched folders.
    ///
    /// # Errors
    /// The problem, with the key.
    pub(super) fn check(&self, name: &str, is_encrypted: bool) -> Result<(), String> {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
        if name.is_empty() || name.len() > 50 || !name.chars().all(is_plain) {
            return Err(format!(
                "retrieval: `{}` is not a valid name; use up to 50 letters, digits, `-` and `_`",
                name.escape_debug()
            ));
        }
        match &self.folder {
            Some(_) if self.artifacts => return Err(ambiguous(name)),
            None if !self.artifacts => return Err(ambiguous(name)),
            Some(folder) if !is_below(folder) => {
                return Err(format!(
                    "retrieval.{name}: `folder` must be a folder below the folder of hatchery.yaml, such as `docs`"
                ));
            }
            _ => {}
        }
        self.check_encryption(name, is_encrypted)?;
        check_similarity(&format!("retrieval.{name}"), self.embedder.as_deref(), self.min_similarity)
    }

    /// Returns the search by meaning. `None` if there is no embedder.
    ///
    /// # Errors
    /// If no model provider has the embedder.
    fn similarity(&self, models: &dyn ModelResolver) -> Result<Option<SimilaritySearch>, ModelError> {
        let Some(name) = &self.embedder else { return Ok(None) };
        let similarity = SimilaritySearch::new(name, models.embedder(name)?);
        Ok(Some(match self.min_similarity {
            Some(min_similarity) => similarity.with_min_similarity(min_similarity),
            None => similarity,
        }))
    }

    /// Checks that nothing is searched that is encrypted elsewhere.
    ///
    /// # Errors
    /// The problem, with the key.
    pub(crate) fn check_encryption(&self, name: &str, is_encrypted: bool) -> Result<(), String> {
        if self.artifacts && is_encrypted {
            return Err(format!(
                "retrieval.{name}: the index of artifacts would hold in plain text what `encryption` encrypts; remove one of \
                 both"
            ));
        }
        Ok(())
    }

    /// Returns the index, in a file or in a temporary one.
    ///
    /// # Errors
    /// If no model provider has the embedder.
    pub(crate) fn index(
        &self,
        file: Option<PathBuf>,
        models: &dyn ModelResolver,
    ) -> Result<RetrievalIndex, ModelError> {
        let similarity = self.similarity(models)?;
        Ok(match &self.folder {
            Some(folder) => {
                let index = FolderIndex::new(self.folder_source(folder), file);
                let index = similarity.into_iter().fold(index, FolderIndex::with_similarity);
                RetrievalIndex::Folder(Arc::new(index))
            }
            None => {
                let index = ArtifactIndex::new(self.artifact_source(), file);
                let index = similarity.into_iter().fold(index, ArtifactIndex::with_similarity);
                RetrievalIndex::Artifacts(Arc::new(index))
            }
        })
    }

    fn folder_source(&self, folder: &Path) -> FolderSource {
        let default = FolderSource::new(folder);
        FolderSource {
            include: self.include.clone().unwrap_or(default.include),
            max_file: self.max_file.map_or(default.max_file, |size| size.bytes() as u64),
            max_files: self.max_files.unwrap_or(default.max_files),
            folder: default.folder,
            root: self.root.clone(),
        }
    }

    fn artifact_source(&self) -> ArtifactSource {
        let default = ArtifactSource::default();
        ArtifactSource {
            include: self.include.clone().unwrap_or(default.include),
            max_file: self.max_file.map_or(default.max_file, |size| size.bytes() as u64),
            max_files: self.max_files.unwrap_or(default.max_files),
        }
    }
}

fn ambiguous(name: &str) -> String {
    format!(
        "retrieval.{name}: set either `folder`, a folder below the folder of hatchery.yaml such as `docs`, or `artifacts: true`"
    )
}

fn is_below(folder: &Path) -> bool {
    let mut components = folder.components();
    let is_below = components.all(|component| matches!(component, Component::Normal(_) | Component::CurDir));
    is_below && !folder.as_os_str().is_empty()
}
