//! Schemas: forward migrations, and rejection of foreign and newer files.

use std::path::Path;
use std::time::Instant;

use hatchery_core::StoreError;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::failure::is_busy;
use super::{BUSY_TIMEOUT, Durability, Failure, connect};

/// A commit writes every page that it changes to the log, so pages should be small. A row that does not fit on a page
/// uses overflow pages, so pages should have room for several events. Existing files keep their page size.
pub(super) const PAGE_BYTES: u32 = 4 * 1024;

/// Size of the write-ahead log in pages, 64 MiB, at which a commit moves it into the database file. A page that was
/// written many times is moved once, so a longer log costs less; but it stays on the disk until the host stops.
const CHECKPOINT_PAGES: u32 = 16 * 1024;

/// The kind of content of a database.
pub(crate) struct Schema {
    /// The kind of database in words, for messages.
    pub(crate) noun: &'static str,
    /// Distinguishes the file from the databases of other programs. Set by the first migration.
    pub(crate) application_id: i64,
    /// The migrations from an empty file to the current schema. Migration `n` ends by setting `user_version` to `n`. A
    /// migration that was released must not change.
    pub(crate) migrations: &'static [&'static str],
}

impl Schema {
    /// Opens the writing connection and applies missing migrations.
    pub(super) fn open(&self, file: &Path, durability: Durability) -> Result<Connection, StoreError> {
        let failed = |activity: &str, error: rusqlite::Error| {
            let context = format!("cannot {activity} {} {}", self.noun, file.display());
            Failure::from(error).into_error(self.noun, || context)
        };
        // SQLite does not wait by itself while another process switches a new file to WAL mode.
        let mut connection = retry(|| open_writer(file, durability)).map_err(|error| failed("open", error))?;
        let migrated = self.migrate(&mut connection, file);
        migrated.unwrap_or_else(|error| Err(failed("update", error)))?;
        Ok(connection)
    }

    /// Applies the missing migrations in one transaction. Another process that opens the file waits for it.
    fn migrate(&self, connection: &mut Connection, file: &Path) -> rusqlite::Result<Result<(), StoreError>> {
        let Self { noun, application_id, migrations } = *self;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let versions = "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema) \
            FROM pragma_user_version, pragma_application_id";
        let (version, application, tables): (i64, i64, i64) =
            transaction.query_row(versions, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        if tables > 0 && application != application_id {
            return Ok(Err(StoreError::InvalidRequest(format!(
                "{} is another program's database: name a file that does not exist yet",
                file.display()
            ))));
        }
        let newest = migrations.len();
        let applied = usize::try_from(version).unwrap_or(usize::MAX);
        if applied > newest {
            return Ok(Err(StoreError::InvalidRequest(format!(
                "{noun} {} has schema version {version}, but this version of Hatchery knows only up to {newest}: use a \
                 newer Hatchery or another file",
                file.display()
            ))));
        }
        for migration in migrations.iter().skip(applied) {
            transaction.execute_batch(migration)?;
        }
        transaction.commit()?;
        Ok(Ok(()))
    }
}

fn open_writer(file: &Path, durability: Durability) -> rusqlite::Result<Connection> {
    let connection = connect(file, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    connection.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = WAL; PRAGMA synchronous = {}; \
         PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}",
        durability.synchronous()
    ))?;
    Ok(connection)
}

/// Repeats an operation for up to [`BUSY_TIMEOUT`] while another process locks the file.
fn retry<T>(operation: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    const DELAY: std::time::Duration = std::time::Duration::from_millis(10);
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match operation() {
            Err(error) if is_busy(&error) && Instant::now() < deadline => std::thread::sleep(DELAY),
            result => return result,
        }
    }
}
