//! The corpus: small files in the repository that mutations start from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the folder of the corpus of a target.
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// Reads the files of a target. Returns names and contents, sorted by name.
pub fn read(target: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder(target))? {
        let entry = entry?;
        files.push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
    }
    files.sort();
    Ok(files)
}
