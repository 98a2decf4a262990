//! Schemas: forward migrations, and rejection of the schemas of other programs and of newer versions.

use std::time::Duration;

use hatchery_core::StoreError;
use tokio::time::timeout;

use super::failure::Failure;
use super::pool::Pool;

/// The oldest server that has all that the statements use.
const MIN_SERVER: i32 = 120_000;

/// Timeout of the migrations.
const MAX_MIGRATION: Duration = Duration::from_secs(600);

/// A part of the tables in a schema of PostgreSQL.
pub(crate) struct Schema {
    /// The kind of database as text, for messages.
    pub(crate) noun: &'static str,
    /// The name in the table of versions.
    pub(crate) part: &'static str,
    /// The migrations from an empty schema to the current one. A migration that was released must not change. Older
    /// hosts may still run while one is applied, so it keeps the objects that they use.
    pub(crate) migrations: &'static [&'static str],
}

impl Schema {
    /// Applies the missing migrations in one transaction. Other hosts wait for it.
    pub(crate) async fn migrate(&self, pool: &Pool) -> Result<(), StoreError> {
        let migrated = timeout(MAX_MIGRATION, self.try_migrate(pool)).await.unwrap_or(Err(Failure::Unresponsive));
        migrated
            .map_err(|failure| failure.into_error(self.noun, &format!("{} {}: cannot open it", self.noun, pool.name())))
    }

    async fn try_migrate(&self, pool: &Pool) -> Result<(), Failure> {
        let mut lent = pool.lend().await?;
        let transaction = lent.client()?.transaction().await?;
        check_server(&transaction, pool).await?;
        let schema = pool.schema();
        transaction.batch_execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0").await?;
        transaction.execute("SELECT pg_advisory_xact_lock(hashtext('hatchery'), hashtext($1))", &[&schema]).await?;
        self.create(&transaction, schema).await?;
        let version = "SELECT version FROM schema_versions WHERE part = $1";
        let applied: i32 = match transaction.query_opt(version, &[&self.part]).await? {
            Some(row) => row.try_get(0)?,
            None => 0,
        };
        let newest = i32::try_from(self.migrations.len()).unwrap_or(i32::MAX);
        if applied > newest {
            return Err(Failure::Refused(StoreError::InvalidRequest(format!(
                "{} {} has schema version {applied}, but this version of Hatchery knows only up to {newest}: use a newer \
                 Hatchery or another schema",
                self.noun,
                pool.name()
            ))));
        }
        for migration in self.migrations.iter().skip(usize::try_from(applied).unwrap_or_default()) {
            transaction.batch_execute(migration).await?;
        }
        if applied < newest {
            let set = "INSERT INTO schema_versions (part, version) VALUES ($1, $2) \
                       ON CONFLICT (part) DO UPDATE SET version = excluded.version";
            transaction.execute(set, &[&self.part, &newest]).await?;
        }
        transaction.commit().await?;
        lent.set_usable();
        Ok(())
    }

    /// Creates the schema and the table of versions if they are missing. An account that may not create schemas can use
    /// one that exists.
    async fn create(&self, transaction: &tokio_postgres::Transaction<'_>, schema: &str) -> Result<(), Failure> {
        let found = "SELECT to_regnamespace($1) IS NOT NULL, to_regclass($1 || '.schema_versions') IS NOT NULL, \
                     EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace($1))";
        let found = transaction.query_one(found, &[&schema]).await?;
        let (has_schema, has_versions, has_tables): (bool, bool, bool) =
            (found.try_get(0)?, found.try_get(1)?, found.try_get(2)?);
        if has_tables && !has_versions {
            return Err(Failure::Refused(StoreError::InvalidRequest(format!(
                "the schema `{schema}` has tables of another program: name another one with `?schema=`"
            ))));
        }
        if !has_schema {
            transaction.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
        }
        if !has_versions {
            let create = "CREATE TABLE schema_versions (part TEXT PRIMARY KEY, version INTEGER NOT NULL)";
            transaction.batch_execute(create).await?;
        }
        Ok(())
    }
}

/// Returns an error for a server that is too old, or whose texts are not Unicode.
async fn check_server(transaction: &tokio_postgres::Transaction<'_>, pool: &Pool) -> Result<(), Failure> {
    let server = "SELECT current_setting('server_version_num')::int4, current_setting('server_encoding')";
    let server = transaction.query_one(server, &[]).await?;
    let (version, encoding): (i32, &str) = (server.try_get(0)?, server.try_get(1)?);
    let reason = if version < MIN_SERVER {
        format!("the server is PostgreSQL {}: use version 12 or newer", version / 10_000)
    } else if encoding != "UTF8" {
        format!("the encoding of the database is {encoding}: use one that was created with `ENCODING 'UTF8'`")
    } else {
        return Ok(());
    };
    Err(Failure::Refused(StoreError::InvalidRequest(format!("{}: {reason}", pool.name()))))
}
