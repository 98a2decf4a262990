//! The data folder of services without a URI.

use std::path::{Path, PathBuf};

/// The data folder of a served folder.
pub(crate) const DATA_FOLDER: &str = ".hatchery";

/// The folder of eval sets and results in the data folder.
pub(crate) const EVALUATIONS_FOLDER: &str = "evaluations";

/// Storage of services without a URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In files of this folder, which is created if necessary.
    Directory(PathBuf),
    /// In the memory of the process. The data is lost when it exits.
    InMemory,
}

impl Storage {
    /// Returns the default storage of a served folder: the folder `.hatchery` in it.
    pub fn in_folder(folder: &Path) -> Self {
        Self::Directory(folder.join(DATA_FOLDER))
    }
}
