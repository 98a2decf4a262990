//! The folders whose configuration the user trusts, in a file of the user's own: `trusted.json`.
//!
//! A decision is for one canonical folder and one SHA-256 of its `hatchery.yaml`. Looking one up reads the file; changing one rewrites it
//! in one step while a lock is held, so that processes at the same time lose nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The largest file that is read.
const MAX_BYTES: u64 = 4 << 20;

/// Why the list of trusted folders cannot be used.
#[derive(Debug, Error)]
pub enum TrustError {
    /// The list cannot be read or written.
    #[error("the list of trusted folders {}: {source}", file.display())]
    Io {
        /// The list.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The list is not as this command writes it.
    #[error("the list of trusted folders {}: {reason}; delete it and trust your folders again", file.display())]
    Invalid {
        /// The list.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Somebody other than its owner may write the list.
    #[error(
        "the list of trusted folders {}: others can write it (mode {mode:o}); look at what is in it, then run `chmod 600`",
        file.display()
    )]
    WritableByOthers {
        /// The list.
        file: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The folder has no canonical path, or none that is text.
    #[error("{}: the folder cannot be trusted: {reason}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// A folder in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedFolder {
    /// Its canonical path.
    pub folder: PathBuf,
    /// SHA-256 of the `hatchery.yaml` that is trusted, in hexadecimal.
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

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl TrustStore {
    /// The list in `$XDG_CONFIG_HOME/hatchery` or else `$HOME/.config/hatchery`. `None` if neither variable is an absolute path.
    pub fn of_user(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let configuration = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
        Some(Self::at(configuration.join("hatchery/trusted.json")))
    }

    /// The list in this file, which need not exist yet.
    pub fn at(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into() }
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The hash of the configuration that is trusted in `folder`.
    ///
    /// # Errors
    /// When the list cannot be used, or the folder does not exist.
    pub fn trusted_hash(&self, folder: &Path) -> Result<Option<String>, TrustError> {
        let folder = canonical(folder)?;
        Ok(self.read()?.folders.remove(&folder).map(|entry| entry.sha256))
    }

    /// Trusts the configuration of this hash in `folder`, in place of an earlier one.
    ///
    /// # Errors
    /// When the list cannot be written, or the folder does not exist.
    pub fn trust(&self, folder: &Path, sha256: &str) -> Result<(), TrustError> {
        let folder = canonical(folder)?;
        self.update(|folders| {
            folders.insert(folder, Entry { sha256: sha256.into() });
        })
    }

    /// Takes the trust in `folder` back. `false` if there was none. The folder may be gone; then its path must be as it is in the list.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn revoke(&self, folder: &Path) -> Result<bool, TrustError> {
        let name = canonical(folder).or_else(|error| folder.to_str().map(Into::into).ok_or(error))?;
        let mut was_trusted = false;
        self.update(|folders| was_trusted = folders.remove(&name).is_some())?;
        Ok(was_trusted)
    }

    /// All trusted folders, by path.
    ///
    /// # Errors
    /// When the list cannot be used.
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
        let temporary = self.file.with_extension(format!("{}.tmp", std::process::id()));
        let written = || {
            let mut file = private(OpenOptions::new().create(true).truncate(true).write(true)).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &self.file)
        };
        written().map_err(failed)
    }
}

fn canonical(folder: &Path) -> Result<String, TrustError> {
    let wrong = |reason: String| TrustError::Folder { folder: folder.into(), reason };
    let path = folder.canonicalize().map_err(|error| wrong(error.to_string()))?;
    path.into_os_string().into_string().map_err(|_| wrong("its path is not UTF-8 text".into()))
}

/// The permissions of a file if one of the bits in `mask` is set.
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
    fn a_decision_is_kept_until_it_is_revoked() {
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
    fn a_folder_is_the_same_by_whatever_path() {
        let (folder, store) = store();
        fs::create_dir(folder.path().join("agents")).unwrap();
        store.trust(&folder.path().join("agents/../agents/."), "abc").unwrap();
        assert_eq!(store.trusted_hash(&folder.path().join("agents")).unwrap().as_deref(), Some("abc"));
    }

    #[test]
    fn a_folder_that_is_gone_can_be_revoked() {
        let (folder, store) = store();
        let gone = folder.path().canonicalize().unwrap().join("gone");
        fs::create_dir(&gone).unwrap();
        store.trust(&gone, "abc").unwrap();
        fs::remove_dir(&gone).unwrap();
        assert!(store.revoke(&gone).unwrap());
    }

    #[test]
    fn many_at_once_lose_no_decision() {
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
    fn only_its_owner_reads_and_writes_the_list() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, store) = store();
        store.trust(folder.path(), "abc").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(store.file()), mode(store.file().parent().unwrap())), (0o600, 0o700));
        fs::set_permissions(store.file(), fs::Permissions::from_mode(0o622)).unwrap();
        let error = store.trusted_hash(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("others can write it (mode 622); look at what is in it, then run `chmod 600`"),
            "{error}"
        );
    }

    #[test]
    fn a_list_that_somebody_has_broken_is_named() {
        let (folder, store) = store();
        store.trust(folder.path(), "abc").unwrap();
        fs::write(store.file(), "{}").unwrap();
        let error = store.list().unwrap_err().to_string();
        assert!(
            error.contains("missing field `folders`") && error.ends_with("; delete it and trust your folders again")
        );
    }

    #[test]
    fn the_list_is_in_the_users_configuration() {
        let find = |variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            TrustStore::of_user(find).map(|store| store.file().display().to_string())
        };
        assert_eq!(find(&[("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")]).unwrap(), "/c/hatchery/trusted.json");
        assert_eq!(find(&[("HOME", "/h")]).unwrap(), "/h/.config/hatchery/trusted.json");
        assert_eq!(find(&[("XDG_CONFIG_HOME", "agents")]), None, "it must not lie in the served folder by accident");
    }
}
