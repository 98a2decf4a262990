//! The user's list of trusted folders: the file `trusted.json`.
//!
//! An entry is a canonical folder with the SHA-256 of its trusted `hatchery.yaml`. A lookup reads the file. A change
//! replaces the file atomically while a lock file is held, so that concurrent changes are not lost.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use hatchery_files::{FileAccess, write_atomically};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Maximum size of the list.
const MAX_BYTES: u64 = 4 << 20;

/// Reasons why the list of trusted folders cannot be used.
#[derive(Debug, Error)]
pub enum TrustError {
    /// The list cannot be read or written.
    #[error("the list of trusted folders {}: {source}", file.display())]
    Io { file: PathBuf, source: io::Error },
    /// The content of the list is invalid.
    #[error("the list of trusted folders {}: {reason}; delete it and trust your folders again", file.display())]
    Invalid { file: PathBuf, reason: String },
    /// Other users may write to the list.
    #[error(
        "the list of trusted folders {}: other users can write to it (mode {mode:o}); review its content, then run `chmod 600`",
        file.display()
    )]
    WritableByOthers {
        file: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The folder has no canonical path, or its path is not UTF-8.
    #[error("{}: the folder cannot be trusted: {reason}", folder.display())]
    Folder { folder: PathBuf, reason: String },
}

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedFolder {
    /// The canonical path.
    pub folder: PathBuf,
    /// SHA-256 of the trusted `hatchery.yaml`, in hexadecimal.
    pub sha256: String,
}

/// The user's list of trusted folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustStore {
    file: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    folders: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    sha256: String,
}

/// Returns the SHA-256 of bytes in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl TrustStore {
    /// Returns the list in `$XDG_CONFIG_HOME/hatchery` or `$HOME/.config/hatchery`. `None` if neither variable is an
    /// absolute path.
    pub fn for_user(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let configuration = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
        Some(Self::at(configuration.join("hatchery/trusted.json")))
    }

    /// Returns the list in this file, which need not exist.
    pub fn at(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into() }
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the SHA-256 of the trusted configuration of `folder`. `None` if it is not trusted.
    pub fn trusted_hash(&self, folder: &Path) -> Result<Option<String>, TrustError> {
        let folder = canonical(folder)?;
        Ok(self.read()?.folders.remove(&folder).map(|entry| entry.sha256))
    }

    /// Trusts the configuration with this hash in `folder`. Replaces an earlier entry.
    pub fn trust(&self, folder: &Path, sha256: &str) -> Result<(), TrustError> {
        let folder = canonical(folder)?;
        self.update(|folders| {
            folders.insert(folder, Entry { sha256: sha256.into() });
        })
    }

    /// Removes `folder` from the list. Returns false if it was not in the list. A folder that no longer exists must be
    /// given by its canonical path.
    pub fn revoke(&self, folder: &Path) -> Result<bool, TrustError> {
        let name = canonical(folder).or_else(|error| folder.to_str().map(Into::into).ok_or(error))?;
        let mut was_trusted = false;
        self.update(|folders| was_trusted = folders.remove(&name).is_some())?;
        Ok(was_trusted)
    }

    /// Returns all trusted folders, sorted by path.
    pub fn list(&self) -> Result<Vec<TrustedFolder>, TrustError> {
        let folders = self.read()?.folders.into_iter();
        Ok(folders.map(|(folder, entry)| TrustedFolder { folder: folder.into(), sha256: entry.sha256 }).collect())
    }

    fn read(&self) -> Result<Content, TrustError> {
        let failed = |source| TrustError::Io { file: self.file.clone(), source };
        let file = match File::open(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::default()),
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().map_err(failed)?;
        if let Some(mode) = writable_by(&metadata, 0o022) {
            return Err(TrustError::WritableByOthers { file: self.file.clone(), mode });
        }
        let invalid = |reason: String| TrustError::Invalid { file: self.file.clone(), reason };
        if metadata.len() > MAX_BYTES {
            return Err(invalid(format!("it has more than {MAX_BYTES} bytes")));
        }
        let text = io::read_to_string(file).map_err(failed)?;
        serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))
    }

    fn update(&self, change: impl FnOnce(&mut BTreeMap<String, Entry>)) -> Result<(), TrustError> {
        let failed = |source| TrustError::Io { file: self.file.clone(), source };
        let directory = self.file.parent().unwrap_or(Path::new("."));
        make_directory(directory).map_err(failed)?;
        let lock = private(OpenOptions::new().create(true).truncate(false).write(true))
            .open(self.file.with_extension("lock"))
            .map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut content = self.read()?;
        change(&mut content.folders);
        let text = serde_json::to_string_pretty(&content).map_err(|error| failed(error.into()))?;
        write_atomically(&self.file, text.as_bytes(), FileAccess::OwnerOnly).map_err(failed)
    }
}

fn canonical(folder: &Path) -> Result<String, TrustError> {
    let wrong = |reason: String| TrustError::Folder { folder: folder.into(), reason };
    let path = folder.canonicalize().map_err(|error| wrong(error.to_string()))?;
    path.into_os_string().into_string().map_err(|_| wrong("its path is not UTF-8 text".into()))
}

/// Returns the mode of a file if one of the bits in `mask` is set.
#[cfg(unix)]
pub(super) fn writable_by(metadata: &fs::Metadata, mask: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let mode = metadata.mode() & 0o7777;
    (mode & mask != 0).then_some(mode)
}

#[cfg(not(unix))]
pub(super) fn writable_by(_: &fs::Metadata, _: u32) -> Option<u32> {
    None
}

#[cfg(unix)]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600)
}

#[cfg(not(unix))]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

fn make_directory(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, TrustStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = TrustStore::at(folder.path().join("config/hatchery/trusted.json"));
        (folder, store)
    }

    #[test]
    fn a_folder_is_trusted_until_it_is_revoked() {
        let (folder, store) = store();
        assert_eq!(store.trusted_hash(folder.path()).unwrap(), None);
        store.trust(folder.path(), "abc").unwrap();
        store.trust(folder.path(), "def").unwrap();
        assert_eq!(store.trusted_hash(folder.path()).unwrap().as_deref(), Some("def"));
        let canonical = folder.path().canonicalize().unwrap();
        assert_eq!(store.list().unwrap(), [TrustedFolder { folder: canonical, sha256: "def".into() }]);
        assert!(store.revoke(folder.path()).unwrap());
        assert!(!store.revoke(folder.path()).unwrap());
        assert_eq!(store.trusted_hash(folder.path()).unwrap(), None);
    }

    #[test]
    fn different_paths_of_a_folder_are_the_same_entry() {
        let (folder, store) = store();
        fs::create_dir(folder.path().join("agents")).unwrap();
        store.trust(&folder.path().join("agents/../agents/."), "abc").unwrap();
        assert_eq!(store.trusted_hash(&folder.path().join("agents")).unwrap().as_deref(), Some("abc"));
    }

    #[test]
    fn a_removed_folder_can_be_revoked() {
        let (folder, store) = store();
        let removed = folder.path().canonicalize().unwrap().join("removed");
        fs::create_dir(&removed).unwrap();
        store.trust(&removed, "abc").unwrap();
        fs::remove_dir(&removed).unwrap();
        assert!(store.revoke(&removed).unwrap());
    }

    #[test]
    fn concurrent_changes_are_not_lost() {
        let (folder, store) = store();
        let folders: Vec<_> = (0..16).map(|number| folder.path().join(number.to_string())).collect();
        folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        std::thread::scope(|scope| {
            for folder in &folders {
                let store = store.clone();
                scope.spawn(move || store.trust(folder, "abc").unwrap());
            }
        });
        assert_eq!(store.list().unwrap().len(), folders.len());
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_can_read_and_write_the_list() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, store) = store();
        store.trust(folder.path(), "abc").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(store.file()), mode(store.file().parent().unwrap())), (0o600, 0o700));
        fs::set_permissions(store.file(), fs::Permissions::from_mode(0o622)).unwrap();
        let error = store.trusted_hash(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("other users can write to it (mode 622); review its content, then run `chmod 600`"),
            "{error}"
        );
    }

    #[test]
    fn an_invalid_list_is_an_error_with_the_next_step() {
        let (folder, store) = store();
        store.trust(folder.path(), "abc").unwrap();
        fs::write(store.file(), "{}").unwrap();
        let error = store.list().unwrap_err().to_string();
        assert!(
            error.contains("missing field `folders`") && error.ends_with("; delete it and trust your folders again")
        );
    }

    #[test]
    fn the_list_is_in_the_user_configuration_folder() {
        let find = |variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            TrustStore::for_user(find).map(|store| store.file().display().to_string())
        };
        assert_eq!(find(&[("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")]).unwrap(), "/c/hatchery/trusted.json");
        assert_eq!(find(&[("HOME", "/h")]).unwrap(), "/h/.config/hatchery/trusted.json");
        assert_eq!(find(&[("XDG_CONFIG_HOME", "agents")]), None, "a relative path could be in the served folder");
    }
}
