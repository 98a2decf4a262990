//! PostgreSQL databases: addresses, a bounded pool of connections, and schemas with forward migrations.
//!
//! Each write is one statement, which calls a function of the schema, so it is one round trip and needs no transaction
//! of the host. An idempotent statement whose connection was lost is sent again over a new one.

mod address;
mod connection;
mod escape;
mod failure;
mod pool;
mod schema;
mod tls;

pub(crate) use address::PostgresAddress;
pub(crate) use escape::{escape, unescape};
pub(crate) use failure::Failure;
pub(crate) use pool::{Pool, Repeat};
pub(crate) use schema::Schema;

use std::fmt;

use hatchery_core::{SessionKey, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// An operation as text, for messages.
pub(crate) type OperationName<'a> = &'a (dyn fmt::Display + Sync);

/// An operation on a session.
pub(crate) struct SessionOperation<'a>(pub(crate) &'a str, pub(crate) &'a SessionKey);

impl fmt::Display for SessionOperation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.1)
    }
}

/// An operation on all that a user has in an app.
pub(crate) struct UserOperation<'a> {
    pub(crate) operation: &'a str,
    pub(crate) app: &'a str,
    pub(crate) user: &'a str,
}

impl fmt::Display for UserOperation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of appName={}, userId={}", self.operation, self.app, self.user)
    }
}

/// A database with the tables of a schema.
pub(crate) struct Database {
    pub(crate) pool: Pool,
    schema: &'static Schema,
}

impl Database {
    /// Connects, and applies the missing migrations.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] for a schema of another program or of a newer version, and for a server that
    /// cannot be used; [`StoreError::Backend`] and [`StoreError::Busy`] if the database cannot be reached.
    pub(crate) async fn open(address: PostgresAddress, schema: &'static Schema) -> Result<Self, StoreError> {
        let pool = Pool::new(address);
        schema.migrate(&pool).await?;
        Ok(Self { pool, schema })
    }

    /// Runs a statement.
    pub(crate) async fn query(
        &self,
        activity: OperationName<'_>,
        repeat: Repeat,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        self.pool.query(sql, values, repeat).await.map_err(|failure| self.error(activity, failure))
    }

    /// Converts a failure.
    pub(crate) fn error(&self, activity: OperationName<'_>, failure: Failure) -> StoreError {
        failure.into_error(self.schema.noun, &format!("{} {}: cannot {activity}", self.schema.noun, self.pool.name()))
    }
}
