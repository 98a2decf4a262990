//! The last good revisions of each component, to go back to: a copy of each file that has served, named by its hash, in a folder of the
//! component's name, and of the signature that lay beside it. The time of a copy is when it last began to serve. Copies are written beside their place and renamed, so that a
//! crash leaves a whole one or none, and a copy is given only when its bytes still have its hash.
//!
//! A folder that cannot be written costs a log line and the way back, nothing else.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use hatchery_core::Timestamp;
use serde::Serialize;

use crate::catalog::scan::{Kind, scan};
use crate::catalog::settings::Settings;
use crate::runtime::cache::sha256;

/// A folder of revisions.
#[derive(Debug, Clone)]
pub struct Revisions {
    directory: PathBuf,
    most: usize,
}

/// A revision that can be gone back to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRevision {
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Bytes of the file.
    pub size: u64,
    /// When it last began to serve.
    pub served_since: Timestamp,
}

impl Revisions {
    /// Keeps `most` revisions of each component in `directory`, which is made when there is something to keep.
    pub fn new(directory: PathBuf, most: usize) -> Self {
        Self { directory, most }
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Names of the components that have revisions, sorted.
    ///
    /// # Errors
    /// When the folder cannot be read.
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

    /// The revisions of a component, the one that began to serve last first.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self, component: &str) -> io::Result<Vec<StoredRevision>> {
        let mut kept = Vec::new();
        for entry in entries(&self.directory.join(component))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let metadata = entry.metadata()?;
            if let (Some(sha256), true) = (name.strip_suffix(".wasm").filter(|name| is_hash(name)), metadata.is_file())
            {
                kept.push((metadata.modified()?, sha256.to_owned(), metadata.len()));
            }
        }
        kept.sort_by(|a, b| b.cmp(a));
        let kept =
            kept.into_iter().map(|(time, sha256, size)| StoredRevision { sha256, size, served_since: stamp(time) });
        Ok(kept.collect())
    }

    /// The bytes of a revision.
    ///
    /// # Errors
    /// When the copy cannot be read, or is not what its name says.
    pub fn read(&self, component: &str, revision: &str) -> io::Result<Vec<u8>> {
        let bytes = fs::read(self.path(component, revision))?;
        if sha256(&bytes) != revision {
            return Err(io::Error::other("the copy is damaged: its bytes do not have the hash that it is named by"));
        }
        Ok(bytes)
    }

    /// The signature that a revision had, `None` if it had none. It is as it was found: nobody has verified it.
    ///
    /// # Errors
    /// When the copy cannot be read.
    pub fn read_signature(&self, component: &str, revision: &str) -> io::Result<Option<String>> {
        read_if_present(&signature_of(&self.path(component, revision)))
    }

    /// Keeps a revision that serves from now on, from `file`, and drops those that are too many.
    pub(crate) fn keep(&self, component: &str, revision: &str, bytes: &[u8], file: &Path) {
        self.attempt(component, || self.try_keep(component, revision, bytes, file));
    }

    /// Keeps the signature beside `file`, which may be new, with a revision that is kept already.
    pub(crate) fn keep_signature(&self, component: &str, revision: &str, file: &Path) {
        let copy = self.path(component, revision);
        self.attempt(component, || if copy.is_file() { copy_signature(file, &copy) } else { Ok(()) });
    }

    fn attempt(&self, component: &str, keep: impl FnOnce() -> io::Result<()>) {
        if self.most == 0 {
            return;
        }
        if let Err(error) = keep() {
            let folder = self.directory.join(component);
            tracing::warn!(component, "{}: this revision cannot be gone back to: {error}", folder.display());
        }
    }

    fn try_keep(&self, component: &str, revision: &str, bytes: &[u8], file: &Path) -> io::Result<()> {
        let path = self.path(component, revision);
        let mut folders = fs::DirBuilder::new();
        folders.recursive(true);
        // What served may hold secrets of its author.
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut folders, 0o700);
        folders.create(self.directory.join(component))?;
        copy_signature(file, &path)?;
        // What is there may be damaged, and reading it costs as much as writing it.
        write_atomically(&path, bytes)?;
        for old in self.list(component)?.iter().skip(self.most) {
            let old = self.path(component, &old.sha256);
            fs::remove_file(&old)?;
            remove_if_present(&signature_of(&old))?;
        }
        Ok(())
    }

    fn path(&self, component: &str, revision: &str) -> PathBuf {
        self.directory.join(component).join(format!("{revision}.wasm"))
    }
}

/// The files below `directory` that are this component, as the loader finds them.
pub fn component_files(directory: &Path, component: &str, settings: &Settings) -> Vec<PathBuf> {
    let is_it = |path: &Path| path.file_stem().is_some_and(|name| name == component);
    let files = scan(directory, &settings.written()).files.into_iter();
    files.filter(|(path, (kind, _))| *kind == Kind::Component && is_it(path)).map(|(path, _)| path).collect()
}

/// Puts a file in its place in one step: whoever looks sees what was there before or all of this. What is on its way has a hidden name.
///
/// # Errors
/// When it cannot be written; then nothing has changed.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}-{count}.tmp", std::process::id()));
    let written = File::create(&beside)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, path));
    written.inspect_err(|_| {
        // Nothing more can be done about a file that cannot be removed either.
        let _ = fs::remove_file(&beside);
    })
}

/// The signature's file, `x.wasm.minisig` of `x.wasm`.
fn signature_of(file: &Path) -> PathBuf {
    file.with_extension("wasm.minisig")
}

/// Makes the signature beside `copy` that beside `file`.
fn copy_signature(file: &Path, copy: &Path) -> io::Result<()> {
    let kept = signature_of(copy);
    match read_if_present(&signature_of(file))? {
        Some(signature) => write_atomically(&kept, signature.as_bytes()),
        None => remove_if_present(&kept),
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

/// What is in a folder; nothing in one that is not there.
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

fn stamp(time: SystemTime) -> Timestamp {
    let micros = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(revisions: &Revisions) -> Vec<String> {
        revisions.list("swap").unwrap().into_iter().map(|kept| kept.sha256).collect()
    }

    #[test]
    fn the_last_revisions_are_kept_in_the_order_in_which_they_served() {
        let folder = tempfile::tempdir().unwrap();
        let revisions = Revisions::new(folder.path().join("revisions"), 2);
        assert!(revisions.names().unwrap().is_empty() && listed(&revisions).is_empty());
        let [a, b, c] = ["a", "b", "c"].map(|text| (text.as_bytes(), sha256(text.as_bytes())));
        let keep = |(bytes, hash): &(&[u8], String)| {
            // File systems count time in ticks.
            std::thread::sleep(std::time::Duration::from_millis(20));
            revisions.keep("swap", hash, bytes, Path::new("swap.wasm"));
        };
        for revision in [&a, &b, &c] {
            keep(revision);
        }
        assert_eq!(listed(&revisions), [c.1.clone(), b.1.clone()]);
        keep(&b);
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
        revisions.keep("swap", &sha256(b"a"), b"a", &folder.path().join("swap.wasm"));
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
        revisions.keep("swap", &old, b"old", &file);
        assert_eq!(revisions.read_signature("swap", &old).unwrap().as_deref(), Some("of the old one"));
        fs::write(&signature, "a better one").unwrap();
        revisions.keep_signature("swap", &old, &file);
        assert_eq!(revisions.read_signature("swap", &old).unwrap().as_deref(), Some("a better one"));
        fs::remove_file(&signature).unwrap();
        revisions.keep("swap", &old, b"old", &file);
        assert_eq!(revisions.read_signature("swap", &old).unwrap(), None);
        fs::write(&signature, "of the new one").unwrap();
        revisions.keep_signature("swap", &old, &file);
        let served = File::options().write(true).open(folder.path().join("revisions/swap").join(format!("{old}.wasm")));
        served.unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        revisions.keep("swap", &new, b"new", &file);
        assert_eq!(listed(&revisions), [new.as_str()]);
        assert_eq!(fs::read_dir(folder.path().join("revisions/swap")).unwrap().count(), 2, "one file, one signature");
        revisions.keep_signature("swap", &sha256(b"never kept"), &file);
        assert_eq!(revisions.read_signature("swap", &sha256(b"never kept")).unwrap(), None);
    }

    #[test]
    fn a_damaged_copy_is_not_given_and_is_mended_when_it_serves_again() {
        let folder = tempfile::tempdir().unwrap();
        let revisions = Revisions::new(folder.path().to_owned(), 2);
        let hash = sha256(b"whole");
        revisions.keep("swap", &hash, b"whole", Path::new("swap.wasm"));
        fs::write(folder.path().join("swap").join(format!("{hash}.wasm")), "half").unwrap();
        let error = revisions.read("swap", &hash).unwrap_err();
        assert_eq!(error.to_string(), "the copy is damaged: its bytes do not have the hash that it is named by");
        revisions.keep("swap", &hash, b"whole", Path::new("swap.wasm"));
        assert_eq!(revisions.read("swap", &hash).unwrap(), b"whole");
    }

    #[test]
    fn nothing_is_kept_when_nothing_is_wanted_or_nothing_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        Revisions::new(folder.path().join("none"), 0).keep("swap", &sha256(b"a"), b"a", Path::new("swap.wasm"));
        assert!(!folder.path().join("none").exists());
        fs::write(folder.path().join("file"), "").unwrap();
        let revisions = Revisions::new(folder.path().join("file"), 1);
        revisions.keep("swap", &sha256(b"a"), b"a", Path::new("swap.wasm"));
        assert!(listed(&revisions).is_empty());
    }
}
