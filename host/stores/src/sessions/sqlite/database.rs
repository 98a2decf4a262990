//! The database file: opening it, bringing its schema up to date, and refusing what is not ours.

use std::path::Path;
use std::time::{Duration, Instant};

use hatchery_core::StoreError;
use sqlx::error::DatabaseError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

/// The steps from an empty file to the schema of this version. Step `n` ends by setting `user_version` to `n`; a step that was
/// ever released does not change.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_sessions.sql")];

/// Set by the first migration.
const APPLICATION_ID: i64 = 0x4874_5365;

/// An event is a row, and what does not fit on a page costs another whole page. At this size events of some kilobytes pack well.
const PAGE_BYTES: u32 = 16 * 1024;

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_DELAY: Duration = Duration::from_millis(10);
const READERS: u32 = 4;

/// An open database: one connection that writes, a few that read meanwhile.
pub(super) struct Database {
    pub(super) writer: SqlitePool,
    pub(super) readers: SqlitePool,
}

impl Database {
    /// Opens or makes the file, with the folders above it.
    pub(super) async fn open(file: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::backend(format!("cannot open session database {}", file.display()), source);
        if let Some(folder) = file.parent() {
            tokio::fs::create_dir_all(folder).await.map_err(|error| {
                StoreError::backend(format!("cannot make the folder of session database {}", file.display()), error)
            })?;
        }
        let common = SqliteConnectOptions::new()
            .filename(file)
            .busy_timeout(BUSY_TIMEOUT)
            .synchronous(SqliteSynchronous::Normal)
            .foreign_keys(true);
        let writing = common.clone().create_if_missing(true).page_size(PAGE_BYTES).journal_mode(SqliteJournalMode::Wal);
        let writer = connect(writing).await.map_err(failed)?;
        migrate(&writer, file).await?;
        let readers = pool(READERS).connect_lazy_with(common.read_only(true));
        Ok(Self { writer, readers })
    }

    /// Waits for what is under way, then closes all connections. The last one to close moves the log into the database file.
    pub(super) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

/// Connections stay open, because each keeps its prepared statements; and to a file they do not go stale.
fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
}

/// Connects, trying again while another process does so: SQLite does not wait by itself where a new file is switched to its
/// write-ahead log.
async fn connect(options: SqliteConnectOptions) -> Result<SqlitePool, sqlx::Error> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match pool(1).connect_with(options.clone()).await {
            Err(sqlx::Error::Database(error)) if is_busy(&*error) && Instant::now() < deadline => {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            connected => return connected,
        }
    }
}

/// The lower byte of SQLite's result code is the kind of error: 5 is `SQLITE_BUSY`.
fn is_busy(error: &dyn DatabaseError) -> bool {
    error.code().and_then(|code| code.parse().ok()).is_some_and(|code: u32| code & 0xFF == 5)
}

/// Applies the migrations that the file lacks, all or none. Another process that opens the file meanwhile waits.
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
        return Err(StoreError::Refused(format!(
            "{} is another program's database: name a file that does not exist yet",
            file.display()
        )));
    }
    let newest = MIGRATIONS.len();
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    if done > newest {
        return Err(StoreError::Refused(format!(
            "session database {} has schema version {version}, but this version of Hatchery knows only up to {newest}: \
             use a newer Hatchery or another file",
            file.display()
        )));
    }
    for step in MIGRATIONS.iter().skip(done) {
        sqlx::raw_sql(*step).execute(&mut *transaction).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_set_up_as_promised() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&folder.path().join("sessions.db")).await.unwrap();
        let settings = "SELECT journal_mode, synchronous, timeout, foreign_keys, page_size FROM \
            pragma_journal_mode, pragma_synchronous, pragma_busy_timeout, pragma_foreign_keys, pragma_page_size";
        for pool in [&database.writer, &database.readers] {
            let settings: (String, i64, i64, bool, i64) = sqlx::query_as(settings).fetch_one(pool).await.unwrap();
            // 1 is NORMAL.
            assert_eq!(settings, ("wal".to_owned(), 1, 5000, true, 16384));
        }
        let written = sqlx::raw_sql("DELETE FROM sessions").execute(&database.readers).await;
        assert!(written.unwrap_err().to_string().contains("readonly"));
    }
}
