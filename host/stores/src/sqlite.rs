//! SQLite databases in WAL mode: one writing thread with group commit, and a small pool of reading connections.
//!
//! All writes of a process to a database run in one thread, which owns the only writing connection. It takes all writes
//! that wait, commits them in one transaction and only then answers them, so that concurrent writes share the cost of a
//! commit, and with [`Durability::Power`] of the synchronization with the disk. If a write of a group fails, the
//! transaction is rolled back and each write of the group is repeated in a separate transaction.
//!
//! A deferred write is committed together with the next one, or soon: it costs no separate transaction.
//!
//! Users get the writer in turn (round robin). An operation that waits for [`MAX_WAIT`] fails. Several processes may
//! use one file; they wait for each other's transactions for up to five seconds.

mod failure;
mod queue;
mod readers;
mod schema;
mod writer;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{SessionKey, StoreError};
use rusqlite::{Connection, OpenFlags};

pub(crate) use self::failure::Failure;
use self::queue::Queue;
use self::readers::Readers;
pub(crate) use self::schema::Schema;
use crate::keyed_lock::MAX_WAIT;
use crate::permissions;

/// How long a connection waits for the transaction of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a deferred write may wait for another one, with which it is committed.
const MAX_DEFERRAL: Duration = Duration::from_millis(100);

/// Number of statements that a connection keeps prepared.
const PREPARED_STATEMENTS: usize = 128;

/// The app and the user of a write.
#[derive(Clone, Copy, Hash)]
pub(crate) struct Owner<'a> {
    app: &'a str,
    user: &'a str,
}

impl<'a> Owner<'a> {
    /// The owner of writes of the host itself.
    pub(crate) const NONE: Self = Self { app: "", user: "" };

    /// Returns the owner of a session.
    pub(crate) fn new(session: &'a SessionKey) -> Self {
        Self { app: &session.app, user: &session.user }
    }
}

/// The kind of crash that a stored event survives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// A crash of the process. A power failure or a crash of the machine may lose the newest appends.
    #[default]
    Process,
    /// Also a power failure: every append waits until it is synced to disk.
    Power,
}

impl Durability {
    /// Returns the value of `PRAGMA synchronous`.
    fn synchronous(self) -> &'static str {
        match self {
            Self::Process => "NORMAL",
            Self::Power => "FULL",
        }
    }
}

/// An open database. Dropping it closes it in the background.
pub(crate) struct Database {
    file: PathBuf,
    schema: &'static Schema,
    queue: Arc<Queue>,
    readers: Readers,
}

impl Database {
    /// Opens the file, and creates it and its parent folders if they are missing, with access for the owner only.
    /// SQLite creates its other files with the mode of the database.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] for the database of another program or of a newer version,
    /// [`StoreError::Backend`] if the file cannot be used.
    pub(crate) async fn open(file: &Path, schema: &'static Schema, durability: Durability) -> Result<Self, StoreError> {
        let noun = schema.noun;
        if let Some(folder) = file.parent() {
            permissions::create_dir_all(folder).map_err(|error| {
                StoreError::backend(format!("cannot make the folder of {noun} {}", file.display()), error)
            })?;
        }
        // If the file cannot be created, SQLite reports the reason.
        if permissions::create_file(file).is_err() {
            permissions::warn_if_readable(file);
        }
        let queue = Arc::new(Queue::default());
        let (path, jobs) = (file.to_owned(), queue.clone());
        let opened = writer::start(format!("writer of {noun}"), move || schema.open(&path, durability), jobs);
        opened.await?;
        Ok(Self { file: file.to_owned(), schema, queue, readers: Readers::new(file) })
    }

    /// Runs `change` in the writing thread. Returns once its transaction is committed; after an error, nothing of it is
    /// stored.
    ///
    /// An error undoes the writes of others that share the transaction, and they are repeated, so an expected failure
    /// should be a value. For the same reason, `change` may be called twice.
    ///
    /// Owners that wait are served in turn.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        owner: Owner<'_>,
        change: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let (job, mut result) = writer::job(change);
        let id = self.queue.push(owner, job)?;
        let received = match tokio::time::timeout(MAX_WAIT, &mut result).await {
            Ok(received) => received,
            Err(_) if self.queue.withdraw(owner, id) => return Err(Failure::Timeout),
            // It has begun, so its result comes soon.
            Err(_) => result.await,
        };
        received.unwrap_or(Err(Failure::Closed))
    }

    /// Runs `change` in the writing thread together with the next write, and after [`MAX_DEFERRAL`] at the latest.
    /// Writes of the same owner keep their order. A failure is logged. As in [`Database::write`], `change` may be
    /// called twice.
    pub(crate) fn write_later(
        &self,
        owner: Owner<'_>,
        activity: String,
        change: impl Fn(&Connection) -> rusqlite::Result<()> + Send + 'static,
    ) {
        let (file, noun) = (self.file.clone(), self.schema.noun);
        let report = move |failure: Failure| {
            let error = failure.into_error(noun, || format!("{noun} {}: cannot {activity}", file.display()));
            tracing::warn!(code = error.code(), "{error}");
        };
        if self.queue.push_later(owner, writer::deferred_job(change, report)) {
            let queue = self.queue.clone();
            tokio::spawn(async move {
                tokio::time::sleep(MAX_DEFERRAL).await;
                queue.flush();
            });
        }
    }

    /// Waits until the deferred writes of this owner are committed.
    pub(crate) async fn wait_for_deferred(&self, owner: Owner<'_>) -> Result<(), Failure> {
        if self.queue.has_deferred() { self.write(owner, |_| Ok(())).await } else { Ok(()) }
    }

    /// Runs `read` with a connection that cannot write. Statements are consistent with each other only within a
    /// [transaction](read_transaction).
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        self.readers.run(read).await
    }

    /// Returns a conversion of failures; `activity` is a verb with its object, such as `read the session`.
    pub(crate) fn error<D: Display>(&self, activity: D) -> impl FnOnce(Failure) -> StoreError {
        let noun = self.schema.noun;
        move |failure| failure.into_error(noun, || format!("{noun} {}: cannot {activity}", self.file.display()))
    }

    /// Waits for running operations, then closes all connections. The last one moves the write-ahead log into the
    /// database file. Later operations fail.
    pub(crate) async fn close(&self) {
        self.readers.close().await;
        self.queue.close().await;
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The writing connection is closed last, because only that one can move the write-ahead log into the file.
        self.readers.close_idle();
        self.queue.stop();
    }
}

/// Runs statements that see the same state of the database.
pub(crate) fn read_transaction<T>(
    connection: &Connection,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    let result = read(connection);
    let ended = connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
    result.and_then(|value| ended.map(|_| value))
}

/// Connects to the file. The name is never a URI.
fn connect(file: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(file, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY")?;
    Ok(connection)
}

#[cfg(test)]
mod tests;
