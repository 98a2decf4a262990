//! The directory of a code cache: its permissions, its owner and its key.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::clean_up;
use super::key::{KEY, Key};

const KEY_FILE: &str = "key";

/// File extension of a file that is being written.
const TEMPORARY: &str = "tmp";

/// Age after which a temporary file was left behind by a killed process.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A directory that belongs to the user of this process, and that no other user can enter.
#[derive(Debug, Clone)]
pub(super) struct CacheDirectory {
    path: PathBuf,
    owner: Owner,
    pub(super) key: Key,
}

impl CacheDirectory {
    /// Creates the directory and its key if they do not exist.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        create(directory)?;
        // The owner of a new file is the user of this process.
        let (temporary, mut file) = create_temporary(directory)?;
        let mut open = || {
            let owner = Owner::new(&file.metadata()?);
            check(&fs::symlink_metadata(directory)?, owner, FileKind::Directory)?;
            close(directory)?;
            let fresh = Key::random()?;
            file.write_all(fresh.bytes())?;
            file.sync_data()?;
            let key = key(directory, owner, &temporary)?;
            Ok(Self { path: directory.to_path_buf(), owner, key })
        };
        let cache = clean_up(&temporary, open())?;
        fs::remove_file(&temporary)?;
        remove_abandoned(directory);
        Ok(cache)
    }

    pub(super) fn as_path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file that no other user can have written.
    pub(super) fn open_file(&self, name: &str) -> io::Result<File> {
        let path = self.file(name);
        check(&fs::symlink_metadata(&path)?, self.owner, FileKind::File)?;
        File::open(path)
    }

    /// Creates a temporary file that only its owner can read.
    pub(super) fn create_temporary(&self) -> io::Result<(PathBuf, File)> {
        create_temporary(&self.path)
    }
}

/// Returns the key in the directory; if there is none, the one in the file `fresh` becomes the key. Atomic: of
/// several processes at the same time, one sets it.
fn key(directory: &Path, owner: Owner, fresh: &Path) -> io::Result<Key> {
    let path = directory.join(KEY_FILE);
    let stored = || -> io::Result<Key> {
        let bytes = read(&path, owner)?;
        Key::from_bytes(&bytes).ok_or_else(|| io::Error::other(format!("it has {} bytes, not {KEY}", bytes.len())))
    };
    match stored() {
        Ok(key) => return Ok(key),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!("{}: is replaced by a new key, so components are compiled again: {error}", path.display());
            fs::remove_file(&path)?;
        }
    }
    match fs::hard_link(fresh, &path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => stored(),
    }
}

fn read(path: &Path, owner: Owner) -> io::Result<Vec<u8>> {
    check(&fs::symlink_metadata(path)?, owner, FileKind::File)?;
    fs::read(path)
}

/// Creates a file with a random name. Process ids would collide in two containers that share the directory.
fn create_temporary(directory: &Path) -> io::Result<(PathBuf, File)> {
    let mut name = [0; 16];
    getrandom::fill(&mut name)?;
    let path = directory.join(format!("{:032x}.{TEMPORARY}", u128::from_ne_bytes(name)));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(&path).map(|file| (path, file))
}

/// Removes temporary files of killed processes. Errors are ignored: a remaining file does no harm.
fn remove_abandoned(directory: &Path) {
    let is_abandoned = |path: &Path| {
        let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
        path.extension().is_some_and(|extension| extension == TEMPORARY) && age.is_some_and(|age| age > ABANDONED)
    };
    for path in fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())) {
        if is_abandoned(&path) {
            let _ = fs::remove_file(path);
        }
    }
}

fn create(directory: &Path) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Directory,
    /// Readable and writable by its owner only.
    File,
}

/// Fails for links, for files of other users, and for files that other users can access.
fn check(metadata: &Metadata, owner: Owner, kind: FileKind) -> io::Result<()> {
    let is_kind = match kind {
        FileKind::Directory => metadata.is_dir(),
        FileKind::File => metadata.is_file(),
    };
    if metadata.is_symlink() {
        return Err(io::Error::other("it is a link"));
    }
    if !is_kind {
        return Err(io::Error::other("it is not of the expected type"));
    }
    if Owner::new(metadata) != owner {
        return Err(io::Error::other("it belongs to another user"));
    }
    if kind == FileKind::File && is_open_to_others(metadata) {
        return Err(io::Error::other("others can use it"));
    }
    Ok(())
}

/// The owner of a file. All are equal on systems without owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner(u32);

#[cfg(unix)]
impl Owner {
    fn new(metadata: &Metadata) -> Self {
        Self(std::os::unix::fs::MetadataExt::uid(metadata))
    }
}

#[cfg(not(unix))]
impl Owner {
    fn new(_: &Metadata) -> Self {
        Self(0)
    }
}

#[cfg(unix)]
fn is_open_to_others(metadata: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::mode(metadata) & 0o077 != 0
}

#[cfg(not(unix))]
fn is_open_to_others(_: &Metadata) -> bool {
    false
}

/// Restricts the directory to its owner.
#[cfg(unix)]
fn close(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
}

#[cfg(not(unix))]
fn close(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_users_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let metadata = directory.path().symlink_metadata().unwrap();
        let Owner(uid) = Owner::new(&metadata);
        check(&metadata, Owner(uid), FileKind::Directory).unwrap();
        let error = check(&metadata, Owner(uid + 1), FileKind::Directory).unwrap_err();
        assert_eq!(error.to_string(), "it belongs to another user");
    }

    #[test]
    fn a_link_in_place_of_the_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert_eq!(CacheDirectory::open(&link).unwrap_err().to_string(), "it is a link");
        assert_eq!(fs::read_dir(&real).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn a_temporary_file_is_removed_when_nobody_can_still_be_writing_it() {
        let directory = tempfile::tempdir().unwrap();
        let (old, _file) = create_temporary(directory.path()).unwrap();
        let (new, _file) = create_temporary(directory.path()).unwrap();
        let past = SystemTime::now() - 2 * ABANDONED;
        File::options().write(true).open(&old).unwrap().set_modified(past).unwrap();
        CacheDirectory::open(directory.path()).unwrap();
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn processes_that_open_a_directory_at_the_same_time_have_one_key() {
        let directory = tempfile::tempdir().unwrap();
        let all = std::sync::Barrier::new(8);
        let open = || {
            all.wait();
            CacheDirectory::open(directory.path()).unwrap().key
        };
        let keys: Vec<Key> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
    }

    #[test]
    fn the_key_is_for_the_owner_only_and_is_found_again() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let first = CacheDirectory::open(directory.path()).unwrap().key;
        assert!(CacheDirectory::open(directory.path()).unwrap().key == first);
        let path = directory.path().join(KEY_FILE);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left behind");
    }

    #[test]
    fn a_key_that_others_can_have_seen_or_made_is_replaced() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(KEY_FILE);
        let mut last = CacheDirectory::open(directory.path()).unwrap().key;
        let planted = directory.path().join("planted");
        fs::write(&planted, [7; KEY]).unwrap();
        let spoil: [&dyn Fn(); 3] = [
            &|| fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap(),
            &|| fs::write(&path, [7; KEY - 1]).unwrap(),
            &|| {
                fs::remove_file(&path).unwrap();
                std::os::unix::fs::symlink(&planted, &path).unwrap();
            },
        ];
        for spoil in spoil {
            spoil();
            let key = CacheDirectory::open(directory.path()).unwrap().key;
            assert!(key != last && key.bytes() != [7; KEY]);
            assert!(path.symlink_metadata().unwrap().is_file());
            last = key;
        }
    }
}
