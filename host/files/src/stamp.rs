//! Detection of changed files, without reading them.

use std::fs::{self, Metadata};
use std::path::Path;
use std::time::SystemTime;

/// The size of a file, and the times at which it was modified and changed. They differ between two versions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    size: u64,
    modified: Option<SystemTime>,
    /// Seconds and nanoseconds. Programs cannot set it, so a replacement with the same size and modification time is
    /// noticed, and other permissions as well.
    changed: Option<(i64, i64)>,
}

impl FileStamp {
    /// Returns the stamp of a file or folder with this metadata.
    pub fn new(metadata: &Metadata) -> Self {
        Self { size: metadata.len(), modified: metadata.modified().ok(), changed: change_time(metadata) }
    }

    /// Returns the stamp of a file or folder. `None` if its metadata cannot be read.
    pub fn read(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::new(&metadata))
    }
}

#[cfg(unix)]
fn change_time(metadata: &Metadata) -> Option<(i64, i64)> {
    use std::os::unix::fs::MetadataExt;

    Some((metadata.ctime(), metadata.ctime_nsec()))
}

#[cfg(not(unix))]
fn change_time(_: &Metadata) -> Option<(i64, i64)> {
    None
}
