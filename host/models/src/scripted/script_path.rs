//! The path of a script, and path traversal checks. Authors of agents choose the names of scripts, so a name must not
//! resolve to other files of the host or block its threads. Only regular files of bounded length below the scripts
//! folder are read.
//!
//! Errors reach clients, so they contain the script's name only. Paths of the host are only logged.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use crate::WritableFolders;

/// Maximum length of a script.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Returns the file of a script in `folder`. If `folder` is the folder of one app, `APP/answers.yaml` is the file
/// `answers.yaml` in it, so that an app has the same scripts whether it is served alone or with its neighbours.
pub(super) fn resolve_script(folder: &Path, name: &str) -> PathBuf {
    let in_app_folder = name.split_once('/').filter(|(app, _)| {
        let is_named_so = || folder.canonicalize().is_ok_and(|folder| folder.file_name() == Some(OsStr::new(app)));
        !folder.join(app).exists() && is_named_so()
    });
    folder.join(in_app_folder.map_or(name, |(_, rest)| rest))
}

/// The path of a script.
#[derive(Debug)]
pub(super) struct ScriptPath {
    path: PathBuf,
    /// The name in error messages.
    name: String,
    /// The folder that must contain the file after links are resolved. `None` if it may be anywhere.
    folder: Option<PathBuf>,
    /// Folders that must not contain the file.
    excluded: WritableFolders,
}

impl ScriptPath {
    /// Creates a path to a file in any folder.
    pub(super) fn anywhere(path: PathBuf) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { path, name, folder: None, excluded: WritableFolders::default() }
    }

    /// Creates a path below `folder` and outside of `excluded`. `None` if `name` is not a plain relative path, or has a
    /// hidden part.
    pub(super) fn below(folder: &Path, name: &str, excluded: WritableFolders) -> Option<Self> {
        let is_visible = |part: &OsStr| !part.as_encoded_bytes().starts_with(b".");
        let is_plain = |part| matches!(part, Component::Normal(part) if is_visible(part));
        let path = || Self {
            path: resolve_script(folder, name),
            name: name.to_owned(),
            folder: Some(folder.to_owned()),
            excluded,
        };
        Path::new(name).components().all(is_plain).then(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file's current metadata.
    pub(super) fn metadata(&self) -> Result<Metadata, String> {
        // The excluded folders can change after the script has been read.
        if self.excluded.contain(&self.path) {
            return Err(format!(
                "the script {} is in a folder that a component may write, so it is not read; move it elsewhere",
                self.name
            ));
        }
        fs::metadata(&self.path).map_err(|error| self.unreadable(&error))
    }

    /// Reads the file. The error contains the script's name, but nothing of its text.
    pub(super) fn read(&self) -> Result<String, String> {
        let path = self.resolve()?;
        // Checked before opening too, because opening a named pipe blocks.
        self.check(&fs::metadata(&path).map_err(|error| self.unreadable(&error))?)?;
        let file = File::open(&path).map_err(|error| self.unreadable(&error))?;
        self.check(&file.metadata().map_err(|error| self.unreadable(&error))?)?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| self.unreadable(&error))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(self.too_long());
        }
        String::from_utf8(bytes).map_err(|_| format!("the script {} is wrong: it is not UTF-8 text", self.name))
    }

    /// Resolves links and checks that the file is in the scripts folder.
    fn resolve(&self) -> Result<PathBuf, String> {
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
        if metadata.len() > MAX_BYTES {
            return Err(self.too_long());
        }
        Ok(())
    }

    fn too_long(&self) -> String {
        format!("the script {} has more than {MAX_BYTES} bytes, which is the most", self.name)
    }

    fn unreadable(&self, error: &io::Error) -> String {
        let name = &self.name;
        if error.kind() == io::ErrorKind::NotFound && self.folder.is_some() {
            return format!(
                "cannot read the script {name}: the served folder has no such file; check the name after `scripted:`, which \
                 begins at that folder, and which folder is served"
            );
        }
        format!("cannot read the script {name}: {error}; check the name after `scripted:`")
    }
}
