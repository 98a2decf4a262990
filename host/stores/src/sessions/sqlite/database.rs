//! The database file: connection pools, schema migrations, and rejection of foreign files.

use std::path::Path;
use std::time::{Duration, Instant};

use hatchery_core::StoreError;
use sqlx::Connection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

use super::Durability;
use super::failure::is_busy;
use crate::keyed_lock::MAX_WAIT;
use crate::permissions;

/// The migrations from an empty file to the current schema. Migration `n` ends by setting `user_version` to `n`. A
/// migration that was released must not change.
const MIGRATIONS: [&str; 4] = [
    include_str!("migrations/0001_sessions.sql"),
    include_str!("migrations/0002_usage.sql"),
    include_str!("migrations/0003_turns.sql"),
    include_str!("migrations/0004_calls.sql"),
];

/// Set by the first migration.
const APPLICATION_ID: i64 = 0x4874_5365;

/// A row that does not fit on a page uses overflow pages. At this size, events of some kilobytes fit well.
const PAGE_BYTES: u32 = 16 * 1024;

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_DELAY: Duration = Duration::from_millis(10);
const READERS: u32 = 4;

/// An open database with one writing connection and a few reading ones.
pub(super) struct Database {
    pub(super) writer: SqlitePool,
    pub(super) readers: SqlitePool,
}

impl Database {
    /// Opens the file, and creates it and its parent folders if they are missing, with access for the owner only.
    /// SQLite creates its other files with the mode of the database.
    pub(super) async fn open(file: &Path, durability: Durability) -> Result<Self, StoreError> {
        let failed = |source| StoreError::backend(format!("cannot open session database {}", file.display()), source);
        let folder_failed = |error| {
            StoreError::backend(format!("cannot make the folder of session database {}", file.display()), error)
        };
        if let Some(folder) = file.parent() {
            permissions::create_dir_all(folder).map_err(folder_failed)?;
        }
        // If the file cannot be created, SQLite reports the reason.
        if permissions::create_file(file).is_err() {
            permissions::warn_if_readable(file);
        }
        let common = SqliteConnectOptions::new()
            .filename(file)
            .busy_timeout(BUSY_TIMEOUT)
            .synchronous(match durability {
                Durability::Process => SqliteSynchronous::Normal,
                Durability::Power => SqliteSynchronous::Full,
            })
            .foreign_keys(true);
        let writing = common.clone().create_if_missing(true).page_size(PAGE_BYTES).journal_mode(SqliteJournalMode::Wal);
        let writer = connect(writing).await.map_err(failed)?;
        migrate(&writer, file).await?;
        let readers = pool(READERS).connect_lazy_with(common.read_only(true));
        Ok(Self { writer, readers })
    }

    /// Waits for running operations, then closes all connections. The last one moves the write-ahead log into the
    /// database file.
    pub(super) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

/// Creates a pool whose connections stay open, because each caches its prepared statements, and connections to a file
/// do not become stale. A connection that is released within a transaction is replaced: SQLite ends a transaction by
/// itself if the disk is full, and the driver then considers it open for ever.
fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(MAX_WAIT)
        .after_release(|connection, _| {
            Box::pin(async move {
                // Earlier operations are complete once the connection responds.
                connection.ping().await?;
                Ok(!connection.is_in_transaction())
            })
        })
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
}

/// Connects, with retries while another process connects: SQLite does not wait by itself while a new file is switched
/// to WAL mode.
async fn connect(options: SqliteConnectOptions) -> Result<SqlitePool, sqlx::Error> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match pool(1).connect_with(options.clone()).await {
            Err(sqlx::Error::Database(error)) if is_busy(&*error) && Instant::now() < deadline => {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(sqlx::Error::PoolTimedOut) if Instant::now() < deadline => {}
            connected => return connected,
        }
    }
}

/// Applies the missing migrations in one transaction. Another process that opens the file waits for it.
async fn migrate(writer: &SqlitePool, file: &Path) -> Result<(), StoreError> {
    let failed =
        |source| StoreError::backend(format!("cannot bring session database {} up to date", file.display()), source);
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    let (version, application, tables): (i64, i64, i64) = sqlx::query_as(
        "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema) \
         FROM pragma_user_version, pragma_application_id",
    )
    .fetch_one(&mut *transaction)
    .await
    .map_err(failed)?;
    if tables > 0 && application != APPLICATION_ID {
        return Err(StoreError::InvalidRequest(format!(
            "{} is another program's database: name a file that does not exist yet",
            file.display()
        )));
    }
    let newest = MIGRATIONS.len();
    let applied = usize::try_from(version).unwrap_or(usize::MAX);
    if applied > newest {
        return Err(StoreError::InvalidRequest(format!(
            "session database {} has schema version {version}, but this version of Hatchery knows only up to {newest}: \
             use a newer Hatchery or another file",
            file.display()
        )));
    }
    for step in MIGRATIONS.iter().skip(applied) {
        sqlx::raw_sql(*step).execute(&mut *transaction).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_have_the_documented_settings() {
        let settings = "SELECT journal_mode, synchronous, timeout, foreign_keys, page_size FROM \
            pragma_journal_mode, pragma_synchronous, pragma_busy_timeout, pragma_foreign_keys, pragma_page_size";
        // 1 is NORMAL: the log is synchronised at checkpoints. 2 is FULL: it is synchronised by every commit.
        for (durability, synchronous) in [(Durability::Process, 1), (Durability::Power, 2)] {
            let folder = tempfile::tempdir().unwrap();
            let database = Database::open(&folder.path().join("sessions.db"), durability).await.unwrap();
            for pool in [&database.writer, &database.readers] {
                let settings: (String, i64, i64, bool, i64) = sqlx::query_as(settings).fetch_one(pool).await.unwrap();
                assert_eq!(settings, ("wal".to_owned(), synchronous, 5000, true, 16384));
            }
            let written = sqlx::raw_sql("DELETE FROM sessions").execute(&database.readers).await;
            assert!(written.unwrap_err().to_string().contains("readonly"));
        }
    }
}
