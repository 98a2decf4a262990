//! Files next to the agents of a served folder, whose author is not trusted: links must not lead out of the folder.

use std::io;
use std::path::{Path, PathBuf};

use super::files::{list_folder, read_file};

/// The files of apps. Only read.
pub(super) struct AppFiles {
    root: PathBuf,
}

impl AppFiles {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the content of a file of an app. `None` if there is none.
    pub(super) fn read(&self, app: &str, name: &str, max: usize) -> io::Result<Option<Vec<u8>>> {
        match self.resolve(app, Some(name))? {
            Some(path) => read_file(&path, max),
            None => Ok(None),
        }
    }

    /// Returns the names of an app's files with this suffix, without it.
    pub(super) fn list(&self, app: &str, suffix: &str) -> io::Result<Vec<String>> {
        match self.resolve(app, None)? {
            Some(folder) => list_folder(&folder, suffix),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the path of an app's folder, or of a file in it. `None` if it does not exist or is elsewhere.
    fn resolve(&self, app: &str, name: Option<&str>) -> io::Result<Option<PathBuf>> {
        let is_name = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
        if !is_name(app) || !name.is_none_or(is_name) {
            return Ok(None);
        }
        let folder = self.root.join(app);
        let path = name.map_or(folder.clone(), |name| folder.join(name));
        let resolved = match path.canonicalize() {
            Ok(path) => path,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let is_inside = resolved.starts_with(self.root.canonicalize()?.join(app));
        Ok(is_inside.then_some(resolved))
    }
}
