//! A pool of connections that read, on blocking threads.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use super::{Failure, connect};
use crate::keyed_lock::MAX_WAIT;

/// Number of connections, which are opened when they are first needed.
const READERS: u32 = 4;

/// The reading connections of a database.
pub(super) struct Readers {
    pool: Arc<Pool>,
    /// One permit per connection.
    permits: Arc<Semaphore>,
}

struct Pool {
    file: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(file: &Path) -> Self {
        let pool = Arc::new(Pool { file: file.to_owned(), idle: Mutex::default() });
        Self { pool, permits: Arc::new(Semaphore::new(READERS as usize)) }
    }

    /// Runs `read` with a connection.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let permit = tokio::time::timeout(MAX_WAIT, self.permits.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| Failure::Timeout)?.map_err(|_| Failure::Closed)?;
        let pool = self.pool.clone();
        let result = tokio::task::spawn_blocking(move || {
            let result = pool.run(read);
            // Released once the connection is back in the pool.
            drop(permit);
            result
        });
        Ok(result.await.map_err(|_| Failure::Panic)??)
    }

    /// Waits for running reads and closes the connections. Later reads fail.
    pub(super) async fn close(&self) {
        let all = self.permits.acquire_many(READERS).await;
        self.permits.close();
        drop(all);
        self.close_idle();
    }

    /// Closes the connections that are not in use.
    pub(super) fn close_idle(&self) {
        self.pool.idle.lock_unpoisoned().clear();
    }
}

impl Pool {
    fn run<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let idle = self.idle.lock_unpoisoned().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connect(&self.file, OpenFlags::SQLITE_OPEN_READ_ONLY)?,
        };
        let result = read(&connection);
        // A transaction that is still open would keep seeing an old snapshot.
        if connection.is_autocommit() {
            self.idle.lock_unpoisoned().push(connection);
        }
        result
    }
}
