//! Presence of other processes: a file next to the database that each process locks while it has the database open.
//!
//! A process that is alone with the database need not wait for the leases of processes that have died. The lock is the
//! operating system's, so it ends with its process.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::permissions;

/// The lock file that shows other processes that the database is in use.
pub(super) struct Presence {
    file: File,
}

impl Presence {
    /// Opens the lock file of a database, and waits while another process checks whether it is alone. Blocks. Returns
    /// true if no other process has the database open; none can begin a turn before [`Presence::share`].
    ///
    /// # Errors
    /// If the file cannot be created, or its file system has no locks.
    pub(super) fn open(database: &Path) -> io::Result<(Self, bool)> {
        let mut path = database.as_os_str().to_owned();
        path.push("-hosts");
        let path = PathBuf::from(path);
        // If the file is there already, it is opened below.
        let _ = permissions::create_file(&path);
        let file = OpenOptions::new().write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok((Self { file }, true)),
            Err(std::fs::TryLockError::WouldBlock) => Ok((Self { file }, false)),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Lets other processes open the database. Blocks while another one looks whether it is alone. The lock is held
    /// until this is dropped.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub(super) fn share(&self) -> io::Result<()> {
        self.file.unlock()?;
        self.file.lock_shared()
    }
}
