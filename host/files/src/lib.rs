//! Atomic writes of files, reads in folders that others may change, stamps by which changes are detected, and the
//! serialization of paths.
//!
//! To write a file, a temporary file in the folder of the target is written and renamed over it. Readers see the old
//! content or all of the new, also after a crash of the process or the machine.
//!
//! The temporary file of `x` has the hidden name `.x.PID-NUMBER.tmp`, so that a host that watches the folder does
//! not load it. A writer holds an advisory lock on it: a file without a lock was left by a killed process.

mod inside;
mod path;
mod stamp;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub use inside::read_inside;
pub use path::serialize_path;
pub use stamp::FileStamp;

/// The end of the name of a temporary file.
const EXTENSION: &str = ".tmp";

/// Who may access a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// Everybody whom the process's umask does not exclude.
    Default,
    /// The owner. On other systems than Unix as [`FileAccess::Default`].
    OwnerOnly,
}

/// Writes a file atomically. Replaces an existing file and its permissions. The last of several writers wins.
///
/// # Errors
/// If the file cannot be written; then nothing has changed. The name may have at most 220 bytes where names of files
/// have at most 255.
pub fn write_atomically(path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()> {
    write_with(path, access, |file| file.write_all(bytes))
}

fn write_with(path: &Path, access: FileAccess, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let (temporary, mut file) = create_temporary(path, |temporary| create_file(temporary, access))?;
    // Not every file system has locks.
    let _ = file.try_lock();
    let written = write(&mut file).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| {
        // The original error is more useful than the error of the removal.
        let _ = fs::remove_file(&temporary);
    })
}

fn create_file(path: &Path, access: FileAccess) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if access == FileAccess::OwnerOnly {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = access;
    options.open(path)
}

/// Calls `create` with hidden names in the folder of `path` until one is free. Returns the path of the file or folder,
/// and the result of `create`. Containers that share a folder may have processes with the same id, so an existing file
/// may belong to another process.
///
/// # Errors
/// Errors of `create` other than [`io::ErrorKind::AlreadyExists`].
pub fn create_temporary<T>(path: &Path, create: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut number = 0_u32;
    loop {
        let temporary = path.with_file_name(format!(".{name}.{}-{number}{EXTENSION}", std::process::id()));
        match create(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            created => return created.map(|created| (temporary, created)),
        }
    }
}

/// Removes the temporary files that killed processes have left in `folder` when they wrote the file `name`. Returns
/// their paths. Keeps files that were changed within `min_age`, and files that cannot be locked or removed.
///
/// # Errors
/// If the folder cannot be read.
pub fn remove_abandoned(folder: &Path, name: &str, min_age: Duration) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_temporary = entry.file_name().to_str().is_some_and(|found| is_temporary(found, name));
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_temporary && is_file && remove_unlocked(&entry.path(), min_age).unwrap_or(false) {
            removed.push(entry.path());
        }
    }
    Ok(removed)
}

/// Returns true if a file has the name of a temporary file of `target`.
fn is_temporary(name: &str, target: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let rest = name.strip_prefix('.').and_then(|name| name.strip_prefix(target)?.strip_prefix('.'));
    let numbers = rest.and_then(|rest| rest.strip_suffix(EXTENSION)?.split_once('-'));
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// Removes a file of at least this age that no process has locked. Returns false if there is another one.
fn remove_unlocked(path: &Path, min_age: Duration) -> io::Result<bool> {
    // Some file systems lock only files that are open for writing.
    let file = OpenOptions::new().write(true).open(path)?;
    let age = SystemTime::now().duration_since(file.metadata()?.modified()?).unwrap_or_default();
    if age < min_age || file.try_lock().is_err() {
        return Ok(false);
    }
    fs::remove_file(path)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn write(path: &Path, text: &str) -> io::Result<()> {
        write_atomically(path, text.as_bytes(), FileAccess::Default)
    }

    #[test]
    fn readers_see_the_complete_content_of_one_of_two_writers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let contents = ["a".repeat(256 << 10), "b".repeat(128 << 10)];
        write(&path, &contents[0]).unwrap();
        std::thread::scope(|scope| {
            let writers = contents.each_ref().map(|content| {
                let path = &path;
                scope.spawn(move || (0..20).for_each(|_| write(path, content).unwrap()))
            });
            while !writers.iter().all(|writer| writer.is_finished()) {
                let read = fs::read_to_string(&path).unwrap();
                assert!(contents.contains(&read), "{} bytes", read.len());
            }
        });
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn a_failed_write_changes_nothing_and_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        write(&folder.path().join("folder"), "new").unwrap_err();
        let missing = write(&folder.path().join("missing/x"), "new").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let file = folder.path().join("file");
        write(&file, "old").unwrap();
        let failed = write_with(&file, FileAccess::Default, |file| {
            file.write_all(b"ne")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(names(folder.path()), ["file", "folder"]);
    }

    #[test]
    fn a_temporary_file_of_another_process_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        // Two processes of this id write in different containers.
        let (other, ()) = create_temporary(&path, |path| create_file(path, FileAccess::Default).map(drop)).unwrap();
        fs::write(&other, "half").unwrap();
        write(&path, "whole").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(fs::read_to_string(&other).unwrap(), "half");
    }

    #[cfg(unix)]
    #[test]
    fn a_written_file_has_the_permissions_of_a_new_one_or_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (new, path) = (folder.path().join("new"), folder.path().join("x"));
        fs::write(&new, "").unwrap();
        write_atomically(&path, b"secret", FileAccess::OwnerOnly).unwrap();
        assert_eq!(mode(&path), 0o600);
        write(&path, "public").unwrap();
        assert_eq!(mode(&path), mode(&new));
        write_atomically(&path, b"secret", FileAccess::OwnerOnly).unwrap();
        assert_eq!(mode(&path), 0o600, "the permissions of the replaced file do not matter");
    }

    #[test]
    fn a_name_of_220_bytes_leaves_room_for_the_name_of_the_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("x".repeat(220)), "whole").unwrap();
        let longest = format!(".{}.{}-{}{EXTENSION}", "x".repeat(220), u32::MAX, u32::MAX);
        assert!(longest.len() <= 255, "{}", longest.len());
    }

    #[test]
    fn a_temporary_file_is_removed_once_its_writer_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let (left, ()) = create_temporary(&path, |path| fs::write(path, "half")).unwrap();
        write_with(&path, FileAccess::Default, |file| {
            file.write_all(b"whole")?;
            assert_eq!(remove_abandoned(folder.path(), "x", Duration::from_secs(3600))?, Vec::<PathBuf>::new());
            assert_eq!(
                remove_abandoned(folder.path(), "x", Duration::ZERO)?,
                std::slice::from_ref(&left),
                "its writer is gone"
            );
            Ok(())
        })
        .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn only_temporary_files_of_the_file_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let others = ["x", ".x.tmp", ".x.1-.tmp", ".x.old-1.tmp", ".y.1-0.tmp", "x.1-0.tmp"];
        for name in others {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::create_dir(folder.path().join(".x.2-0.tmp")).unwrap();
        let left = folder.path().join(".x.1-0.tmp");
        fs::write(&left, "").unwrap();
        assert_eq!(remove_abandoned(folder.path(), "x", Duration::ZERO).unwrap(), [left]);
        assert_eq!(names(folder.path()).len(), others.len() + 1);
    }
}
