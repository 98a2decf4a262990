//! A bounded pool of connections.

use std::sync::Mutex;
use std::time::Duration;

use hatchery_core::sync::MutexExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::address::PostgresAddress;
use super::connection::Connection;
use super::failure::Failure;
use crate::keyed_lock::MAX_WAIT;

/// Timeout for the server's response to a statement. Longer than the timeout of statements.
const MAX_RESPONSE: Duration = Duration::from_secs(30);

/// Delay before the next attempt to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(50);

/// Whether a statement may be sent again when its connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing if it has run before.
    Safe,
    /// It would have another result.
    Never,
}

/// Connections to a database.
pub(crate) struct Pool {
    address: PostgresAddress,
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

/// A connection that is returned to the pool when dropped, unless it was lost or a statement is unfinished.
pub(crate) struct PooledConnection<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
    is_usable: bool,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(address: PostgresAddress) -> Self {
        Self { permits: Semaphore::new(address.max_connections), idle: Mutex::default(), address }
    }

    /// Returns the server, database and schema as text.
    pub(crate) fn name(&self) -> String {
        self.address.name()
    }

    pub(super) fn schema(&self) -> &str {
        &self.address.schema
    }

    /// Returns a connection. While the server cannot be reached, tries for [`MAX_WAIT`].
    pub(crate) async fn lend(&self) -> Result<PooledConnection<'_>, Failure> {
        self.lend_until(Instant::now() + MAX_WAIT).await
    }

    async fn lend_until(&self, deadline: Instant) -> Result<PooledConnection<'_>, Failure> {
        // The semaphore is never closed.
        let Ok(Ok(permit)) = timeout_at(deadline, self.permits.acquire()).await else { return Err(Failure::Timeout) };
        let connection = match self.take_idle() {
            Some(connection) => connection,
            None => self.connect_until(deadline).await?,
        };
        Ok(PooledConnection { pool: self, connection: Some(connection), is_usable: false, _permit: permit })
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock_unpoisoned();
        idle.retain(|connection| !connection.client.is_closed());
        idle.pop()
    }

    async fn connect_until(&self, deadline: Instant) -> Result<Connection, Failure> {
        loop {
            match timeout(MAX_WAIT, Connection::open(&self.address)).await {
                Ok(Err(failure)) if failure.is_temporary() && Instant::now() + RECONNECT_DELAY < deadline => {
                    sleep(RECONNECT_DELAY).await;
                }
                Ok(result) => return result,
                Err(_) => return Err(Failure::Unresponsive),
            }
        }
    }

    /// Runs a statement. For up to [`MAX_WAIT`], repeats a statement that the server has rolled back, or whose
    /// connection was lost if repeating it is safe.
    pub(crate) async fn query(
        &self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
        repeat: Repeat,
    ) -> Result<Vec<Row>, Failure> {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let failure = match self.lend_until(deadline).await?.query(sql, values).await {
                Ok(rows) => return Ok(rows),
                Err(failure) => failure,
            };
            let may_repeat = failure.is_undone() || (failure.is_lost() && repeat == Repeat::Safe);
            if !may_repeat || Instant::now() >= deadline {
                return Err(failure);
            }
            tracing::debug!(?failure, "a statement is sent again");
            sleep(RECONNECT_DELAY).await;
        }
    }
}

impl PooledConnection<'_> {
    async fn query(&mut self, sql: &'static str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Failure> {
        let Some(connection) = &mut self.connection else { return Err(Failure::Unresponsive) };
        match timeout(MAX_RESPONSE, connection.query(sql, values)).await {
            Ok(Ok(rows)) => {
                self.is_usable = true;
                Ok(rows)
            }
            Ok(Err(error)) => {
                let failure = Failure::from(error);
                self.is_usable = !failure.is_lost() && !failure.is_undone();
                Err(failure)
            }
            Err(_) => Err(Failure::Unresponsive),
        }
    }

    /// Returns the client, for transactions.
    pub(crate) fn client(&mut self) -> Result<&mut Client, Failure> {
        self.is_usable = false;
        self.connection.as_mut().map(|connection| &mut connection.client).ok_or(Failure::Unresponsive)
    }

    /// Marks the connection as reusable: no statement is unfinished.
    pub(crate) fn set_usable(&mut self) {
        self.is_usable = true;
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take().filter(|_| self.is_usable) {
            self.pool.idle.lock_unpoisoned().push(connection);
        }
    }
}
