//! Backups of the services that store data on this machine, also while hosts use them.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use hatchery_core::StoreError;
use rusqlite::{Connection, OpenFlags};

use crate::permissions;
use crate::tasks::run_blocking;
use crate::uri;

/// The state of a service in a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backup {
    /// The data was copied.
    Copied,
    /// Nothing is stored yet.
    Empty,
    /// The data is not on this machine's disk.
    Elsewhere,
}

/// Copies the SQLite database of a session or memory service to the new file `target`. The copy is one consistent state
/// of the database, without its free pages.
///
/// # Errors
/// [`StoreError::Backend`] or [`StoreError::Full`] if a file cannot be read or written, or `target` exists.
pub async fn back_up_database(uri: &str, target: &Path) -> Result<Backup, StoreError> {
    let Some(file) = uri::local_path(uri, "sqlite") else { return Ok(Backup::Elsewhere) };
    if !file.exists() {
        return Ok(Backup::Empty);
    }
    let target = target.to_owned();
    let context = format!("cannot copy {} to {}", file.display(), target.display());
    let copy = move || {
        let name = target.to_str().ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidInput, "SQLite needs a path in UTF-8; choose another folder")
        })?;
        permissions::create_file(&target)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(&file, flags).map_err(io::Error::other)?;
        // `VACUUM INTO` accepts an existing file only if it is empty.
        database.execute("VACUUM INTO ?1", [name]).map_err(io::Error::other)?;
        File::open(&target)?.sync_all()
    };
    run_blocking(|| context, copy).await.map(|()| Backup::Copied)
}

/// Copies the folder of an artifact service to the new folder `target`. A version that is saved or deleted concurrently
/// may be missing.
///
/// # Errors
/// [`StoreError::Backend`] or [`StoreError::Full`] if a file cannot be read or written.
pub async fn back_up_artifacts(uri: &str, target: &Path) -> Result<Backup, StoreError> {
    let Some(folder) = uri::local_path(uri, "file") else { return Ok(Backup::Elsewhere) };
    if !folder.exists() {
        return Ok(Backup::Empty);
    }
    let target = target.to_owned();
    let context = format!("cannot copy {} to {}", folder.display(), target.display());
    run_blocking(|| context, move || copy_folder(&folder, &target)).await.map(|()| Backup::Copied)
}

/// Copies a folder recursively. Files deleted in between are skipped; symbolic links and special files are skipped with
/// a warning.
///
/// # Errors
/// If a file cannot be read or written.
pub fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    permissions::create_dir_all(to)?;
    let entries = match fs::read_dir(from) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = match entry.file_type() {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            kind => kind?,
        };
        if kind.is_dir() {
            copy_folder(&source, &target)?;
        } else if kind.is_file() {
            copy_file(&source, &target)?;
        } else {
            tracing::warn!(path = %source.display(), "not a file or folder; skipped");
        }
    }
    Ok(())
}

/// Copies a file with its modification time (an artifact's creation time), readable by its owner only. Does nothing if
/// the file no longer exists.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = match File::open(from) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        source => source?,
    };
    let mut target = permissions::create_file(to)?;
    io::copy(&mut source, &mut target)?;
    target.set_modified(source.metadata()?.modified()?)?;
    target.sync_all()
}
