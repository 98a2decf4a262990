//! Where a script is, and reading it: from a regular file of bounded length, and for a script that a model's name names only below the
//! scripts folder. Whoever writes an agent writes such names, so they must not lead to the host's other files, nor hold up its threads.
//!
//! Errors reach clients: they call a script what its model's name calls it, and paths of the host are in the log only.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use crate::WritableFolders;

/// No script is longer.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// Where a script is.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// What errors call it.
    name: String,
    /// The folder that it must be in, whatever links lead through.
    folder: Option<PathBuf>,
    /// Folders that it must not be in.
    written: WritableFolders,
}

impl Place {
    /// Anywhere.
    pub(super) fn anywhere(path: PathBuf) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { path, name, folder: None, written: WritableFolders::default() }
    }

    /// Below `folder`, and not in one of the folders `written`. `None` when `name` is not a plain relative path, or has a hidden part.
    pub(super) fn below(folder: &Path, name: &str, written: WritableFolders) -> Option<Self> {
        let is_visible = |part: &OsStr| !part.as_encoded_bytes().starts_with(b".");
        let is_plain = |part| matches!(part, Component::Normal(part) if is_visible(part));
        let place =
            || Self { path: folder.join(name), name: name.to_owned(), folder: Some(folder.to_owned()), written };
        Path::new(name).components().all(is_plain).then(place)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What the file system says about the script now.
    pub(super) fn metadata(&self) -> Result<Metadata, String> {
        // Which folders are written can change after the script has been read.
        if self.written.contain(&self.path) {
            return Err(format!(
                "the script {} is in a folder that a component may write, so it is not read; move it elsewhere",
                self.name
            ));
        }
        fs::metadata(&self.path).map_err(|error| self.unreadable(&error))
    }

    /// The script's text. The error names the script, and nothing of what is in it.
    pub(super) fn read(&self) -> Result<String, String> {
        let path = self.confined()?;
        // Opening a pipe would wait for a writer.
        self.check(&fs::metadata(&path).map_err(|error| self.unreadable(&error))?)?;
        let file = File::open(&path).map_err(|error| self.unreadable(&error))?;
        self.check(&file.metadata().map_err(|error| self.unreadable(&error))?)?;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| self.unreadable(&error))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(self.too_long());
        }
        String::from_utf8(bytes).map_err(|_| format!("the script {} is wrong: it is not UTF-8 text", self.name))
    }

    fn confined(&self) -> Result<PathBuf, String> {
        let canonical = |path: &Path| path.canonicalize().map_err(|error| self.unreadable(&error));
        let path = canonical(&self.path)?;
        match &self.folder {
            Some(folder) if !path.starts_with(canonical(folder)?) => Err(format!(
                "the script {} is a link that leads out of the scripts folder; put the file itself there",
                self.name
            )),
            _ => Ok(path),
        }
    }

    fn check(&self, metadata: &Metadata) -> Result<(), String> {
        if !metadata.is_file() {
            return Err(format!("the script {} is not a regular file", self.name));
        }
        if metadata.len() > MOST_BYTES {
            return Err(self.too_long());
        }
        Ok(())
    }

    fn too_long(&self) -> String {
        format!("the script {} has more than {MOST_BYTES} bytes, which is the most", self.name)
    }

    fn unreadable(&self, error: &io::Error) -> String {
        format!("cannot read the script {}: {error}; check the name after `scripted:`", self.name)
    }
}
