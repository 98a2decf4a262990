//! Revision store: copies of the last good revisions of each component, for rollback. A copy is named by its hash and
//! stored in a folder with the component's name, next to the signature that the file had. The modification time of a
//! copy is when it last began to serve. Copies are written atomically (temporary file and rename), so that a crash
//! leaves a complete copy or none. A copy is only returned if its bytes still have its hash.
//!
//! If the folder cannot be written, a line is logged and rollback is not possible; nothing else is affected.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use hatchery_core::Timestamp;
use hatchery_files::{FileAccess, create_temporary, write_atomically};
use serde::Serialize;

use crate::catalog::loader::LoadPolicy;
use crate::catalog::scan::{FileKind, scan};
use crate::catalog::settings::Settings;
use crate::runtime::cache::sha256;

/// A folder of stored revisions.
#[derive(Debug, Clone)]
pub struct Revisions {
    directory: PathBuf,
    /// Clones share it.
    max_per_component: Arc<AtomicUsize>,
}

/// A revision that can be restored.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRevision {
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Bytes of the file.
    pub size: u64,
    /// When the revision last began to serve.
    pub served_since: Timestamp,
}

impl Revisions {
    /// Stores up to `max_per_component` revisions of each component in `directory`, which is created when the first one
    /// is stored.
    pub fn new(directory: PathBuf, max_per_component: usize) -> Self {
        Self { directory, max_per_component: Arc::new(AtomicUsize::new(max_per_component)) }
    }

    /// Sets the number of stored revisions of each component. Surplus ones are removed when the next one is stored.
    pub(crate) fn set_max(&self, max_per_component: usize) {
        self.max_per_component.store(max_per_component, Ordering::Relaxed);
    }

    fn max_per_component(&self) -> usize {
        self.max_per_component.load(Ordering::Relaxed)
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the names of components with stored revisions, sorted.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in entries(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !self.list(&name)?.is_empty() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the revisions of a component, most recently served first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&self, component: &str) -> io::Result<Vec<StoredRevision>> {
        let mut revisions = Vec::new();
        for entry in entries(&self.directory.join(component))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let metadata = entry.metadata()?;
            if let (Some(sha256), true) = (name.strip_suffix(".wasm").filter(|name| is_hash(name)), metadata.is_file())
            {
                revisions.push((metadata.modified()?, sha256.to_owned(), metadata.len()));
            }
        }
        revisions.sort_by(|a, b| b.cmp(a));
        let revisions = revisions.into_iter().map(|(time, sha256, size)| StoredRevision {
            sha256,
            size,
            served_since: timestamp(time),
        });
        Ok(revisions.collect())
    }

    /// Returns the bytes of a revision.
    ///
    /// # Errors
    /// If the copy cannot be read or its hash does not match.
    pub fn read(&self, component: &str, revision: &str) -> io::Result<Vec<u8>> {
        let bytes = fs::read(self.path(component, revision))?;
        if sha256(&bytes) != revision {
            return Err(io::Error::other("the copy is damaged: its bytes do not have the hash that it is named by"));
        }
        Ok(bytes)
    }

    /// Returns the signature that the revision had, `None` if it had none. The signature is not verified.
    ///
    /// # Errors
    /// If the copy cannot be read.
    pub fn read_signature(&self, component: &str, revision: &str) -> io::Result<Option<String>> {
        read_if_present(&signature_path(&self.path(component, revision)))
    }

    /// Calls `policy` with a revision and a path with the component's name, next to the signature that the revision
    /// had: signatures are for a name.
    ///
    /// # Errors
    /// If the copy cannot be read or the signature cannot be copied.
    pub fn check(&self, component: &str, revision: &str, policy: &LoadPolicy) -> io::Result<Result<(), String>> {
        let bytes = self.read(component, revision)?;
        let (folder, ()) =
            create_temporary(&self.path(component, revision), |folder| fs::DirBuilder::new().create(folder))?;
        let file = folder.join(format!("{component}.wasm"));
        let checked = copy_signature(&self.path(component, revision), &file).map(|()| policy(&file, &bytes));
        fs::remove_dir_all(&folder)?;
        checked
    }

    /// Replaces `file` and its signature by a stored revision. The signature is written first, because a host that
    /// watches the folder reads both when the component changes.
    ///
    /// # Errors
    /// If the copy cannot be read or does not have its hash, or a file cannot be written.
    pub fn restore(&self, component: &str, revision: &str, file: &Path) -> io::Result<()> {
        let bytes = self.read(component, revision)?;
        copy_signature(&self.path(component, revision), file)?;
        write_atomically(file, &bytes, FileAccess::Default)
    }

    /// Stores a revision that serves from now on, from `file`, and removes the oldest ones above the maximum.
    pub(crate) fn store(&self, component: &str, revision: &str, bytes: &[u8], file: &Path) {
        self.attempt(component, || self.try_store(component, revision, bytes, file));
    }

    /// Stores the signature next to `file`, which may be new, with a revision that is already stored.
    pub(crate) fn store_signature(&self, component: &str, revision: &str, file: &Path) {
        let copy = self.path(component, revision);
        self.attempt(component, || if copy.is_file() { copy_signature(file, &copy) } else { Ok(()) });
    }

    fn attempt(&self, component: &str, store: impl FnOnce() -> io::Result<()>) {
        if self.max_per_component() == 0 {
            return;
        }
        if let Err(error) = store() {
            let folder = self.directory.join(component);
            tracing::warn!(component, "{}: this revision cannot be stored for a rollback: {error}", folder.display());
        }
    }

    fn try_store(&self, component: &str, revision: &str, bytes: &[u8], file: &Path) -> io::Result<()> {
        let path = self.path(component, revision);
        let mut folders = fs::DirBuilder::new();
        folders.recursive(true);
        // Components may contain secrets of their authors.
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut folders, 0o700);
        folders.create(self.directory.join(component))?;
        copy_signature(file, &path)?;
        // An existing copy may be damaged, and reading it costs as much as writing it.
        write_atomically(&path, bytes, FileAccess::Default)?;
        for revision in self.list(component)?.iter().skip(self.max_per_component()) {
            let file = self.path(component, &revision.sha256);
            fs::remove_file(&file)?;
            remove_if_present(&signature_path(&file))?;
        }
        Ok(())
    }

    fn path(&self, component: &str, revision: &str) -> PathBuf {
        self.directory.join(component).join(format!("{revision}.wasm"))
    }
}

/// Returns the files below `directory` that the loader finds for this component.
pub fn component_files(directory: &Path, component: &str, settings: &Settings) -> Vec<PathBuf> {
    let is_it = |path: &Path| path.file_stem().is_some_and(|name| name == component);
    let files = scan(directory, &settings.writable_folders()).files.into_iter();
    files.filter(|(path, (kind, _))| *kind == FileKind::Component && is_it(path)).map(|(path, _)| path).collect()
}

/// Returns the path of the signature: `x.wasm.minisig` for `x.wasm`.
fn signature_path(file: &Path) -> PathBuf {
    file.with_extension("wasm.minisig")
}

/// Copies the signature of `file` to the signature of `copy`, or removes the latter if `file` has none.
fn copy_signature(file: &Path, copy: &Path) -> io::Result<()> {
    let target = signature_path(copy);
    match read_if_present(&signature_path(file))? {
        Some(signature) => write_atomically(&target, signature.as_bytes(), FileAccess::Default),
        None => remove_if_present(&target),
    }
}

fn read_if_present(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the entries of a folder. Empty if it does not exist.
fn entries(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None.into_iter().flatten())
        }
        Err(error) => Err(error),
    }
}

fn is_hash(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn timestamp(time: SystemTime) -> Timestamp {
    let micros = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    fn listed(revisions: &Revisions) -> Vec<String> {
        revisions.list("swap").unwrap().into_iter().map(|revision| revision.sha256).collect()
    }

    #[test]
    fn a_revision_is_checked_under_the_name_of_its_component_and_then_restored_with_its_signature() {
        let folder = tempfile::tempdir().unwrap();
        let revisions = Revisions::new(folder.path().join("revisions"), 2);
        let file = folder.path().join("swap.wasm");
        fs::write(signature_path(&file), "signed").unwrap();
        let hash = sha256(b"a");
        revisions.store("swap", &hash, b"a", &file);
        let policy: LoadPolicy = Arc::new(|path, bytes| {
            let signature = fs::read_to_string(signature_path(path)).unwrap();
            let name = path.file_name().unwrap().to_string_lossy();
            Err(format!("{name} {signature} {}", String::from_utf8_lossy(bytes)))
        });
        assert_eq!(revisions.check("swap", &hash, &policy).unwrap().unwrap_err(), "swap.wasm signed a");
        fs::write(&file, "b").unwrap();
        fs::remove_file(signature_path(&file)).unwrap();
        revisions.restore("swap", &hash, &file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "a");
        assert_eq!(fs::read_to_string(signature_path(&file)).unwrap(), "signed");
        assert_eq!(listed(&revisions), [hash]);
    }

    #[test]
    fn the_last_revisions_are_stored_in_the_order_in_which_they_served() {
        let folder = tempfile::tempdir().unwrap();
        let revisions = Revisions::new(folder.path().join("revisions"), 2);
        assert!(revisions.names().unwrap().is_empty() && listed(&revisions).is_empty());
        let [a, b, c] = ["a", "b", "c"].map(|text| (text.as_bytes(), sha256(text.as_bytes())));
        let store = |(bytes, hash): &(&[u8], String)| {
            // File systems have a coarse clock, so the served revision is made older.
            for earlier in listed(&revisions) {
                let copy = fs::File::options().write(true).open(revisions.path("swap", &earlier)).unwrap();
                let served = copy.metadata().unwrap().modified().unwrap();
                copy.set_modified(served - Duration::from_secs(1)).unwrap();
            }
            revisions.store("swap", hash, bytes, Path::new("swap.wasm"));
        };
        for revision in [&a, &b, &c] {
            store(revision);
        }
        assert_eq!(listed(&revisions), [c.1.clone(), b.1.clone()]);
        store(&b);
        assert_eq!(listed(&revisions), [b.1.clone(), c.1.clone()]);
        assert_eq!(revisions.read("swap", &c.1).unwrap(), b"c");
        assert_eq!(revisions.names().unwrap(), ["swap"]);
    }

    #[cfg(unix)]
    #[test]
    fn folders_of_revisions_are_for_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let revisions = Revisions::new(folder.path().join("revisions"), 1);
        revisions.store("swap", &sha256(b"a"), b"a", &folder.path().join("swap.wasm"));
        for made in ["revisions", "revisions/swap"] {
            assert_eq!(folder.path().join(made).metadata().unwrap().permissions().mode() & 0o777, 0o700, "{made}");
        }
    }

    #[test]
    fn each_revision_keeps_its_own_signature() {
        let folder = tempfile::tempdir().unwrap();
        let revisions = Revisions::new(folder.path().join("revisions"), 1);
        let file = folder.path().join("swap.wasm");
        let signature = folder.path().join("swap.wasm.minisig");
        let (old, new) = (sha256(b"old"), sha256(b"new"));
        fs::write(&signature, "of the old one").unwrap();
        revisions.store("swap", &old, b"old", &file);
        assert_eq!(revisions.read_signature("swap", &old).unwrap().as_deref(), Some("of the old one"));
        fs::write(&signature, "a better one").unwrap();
        revisions.store_signature("swap", &old, &file);
        assert_eq!(revisions.read_signature("swap", &old).unwrap().as_deref(), Some("a better one"));
        fs::remove_file(&signature).unwrap();
        revisions.store("swap", &old, b"old", &file);
        assert_eq!(revisions.read_signature("swap", &old).unwrap(), None);
        fs::write(&signature, "of the new one").unwrap();
        revisions.store_signature("swap", &old, &file);
        let served =
            fs::File::options().write(true).open(folder.path().join("revisions/swap").join(format!("{old}.wasm")));
        served.unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        revisions.store("swap", &new, b"new", &file);
        assert_eq!(listed(&revisions), [new.as_str()]);
        assert_eq!(fs::read_dir(folder.path().join("revisions/swap")).unwrap().count(), 2, "one file, one signature");
        revisions.store_signature("swap", &sha256(b"never stored"), &file);
        assert_eq!(revisions.read_signature("swap", &sha256(b"never stored")).unwrap(), None);
    }

    #[test]
    fn a_damaged_copy_is_not_returned_and_is_replaced_when_it_serves_again() {
        let folder = tempfile::tempdir().unwrap();
        let revisions = Revisions::new(folder.path().to_owned(), 2);
        let hash = sha256(b"complete");
        revisions.store("swap", &hash, b"complete", Path::new("swap.wasm"));
        fs::write(folder.path().join("swap").join(format!("{hash}.wasm")), "half").unwrap();
        let error = revisions.read("swap", &hash).unwrap_err();
        assert_eq!(error.to_string(), "the copy is damaged: its bytes do not have the hash that it is named by");
        revisions.store("swap", &hash, b"complete", Path::new("swap.wasm"));
        assert_eq!(revisions.read("swap", &hash).unwrap(), b"complete");
    }

    #[test]
    fn a_temporary_folder_of_another_process_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let revisions = Revisions::new(folder.path().to_owned(), 1);
        let hash = sha256(b"complete");
        revisions.store("swap", &hash, b"complete", Path::new("swap.wasm"));
        // Two processes of this id check the same revision in different containers.
        let copy = revisions.path("swap", &hash);
        let (other_folder, ()) = create_temporary(&copy, |path| fs::DirBuilder::new().create(path)).unwrap();
        let policy: LoadPolicy = Arc::new(|_, _| Ok(()));
        revisions.check("swap", &hash, &policy).unwrap().unwrap();
        assert!(other_folder.is_dir());
    }

    #[test]
    fn nothing_is_stored_if_the_maximum_is_0_or_the_folder_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        Revisions::new(folder.path().join("none"), 0).store("swap", &sha256(b"a"), b"a", Path::new("swap.wasm"));
        assert!(!folder.path().join("none").exists());
        fs::write(folder.path().join("file"), "").unwrap();
        let revisions = Revisions::new(folder.path().join("file"), 1);
        revisions.store("swap", &sha256(b"a"), b"a", Path::new("swap.wasm"));
        assert!(listed(&revisions).is_empty());
    }
}
