//! A connection with its prepared statements.

use std::collections::HashMap;
use std::path::PathBuf;

use hatchery_core::StoreError;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row, Statement};

use super::address::{PostgresAddress, TlsMode};
use super::failure::Failure;
use super::tls::{MakeEncrypted, client_config};

/// Timeouts of a statement, and of its wait for a lock that another host holds.
const SETTINGS: &str = "SET statement_timeout = '25s'; SET lock_timeout = '5s'; \
                        SET idle_in_transaction_session_timeout = '60s'; SET client_min_messages = warning";

pub(crate) struct Connection {
    pub(super) client: Client,
    statements: HashMap<&'static str, Statement>,
}

impl Connection {
    /// Connects to the server.
    pub(super) async fn open(address: &PostgresAddress) -> Result<Self, Failure> {
        let client = match &address.tls {
            TlsMode::Off => {
                let (client, connection) = address.config.connect(NoTls).await.map_err(Failure::Connect)?;
                drive(connection);
                client
            }
            TlsMode::SystemRoots => Self::connect_encrypted(address, None).await?,
            TlsMode::RootFile(file) => Self::connect_encrypted(address, Some(file)).await?,
        };
        let settings = format!("SET search_path TO {}; {SETTINGS}", address.schema);
        client.batch_execute(&settings).await.map_err(Failure::Connect)?;
        Ok(Self { client, statements: HashMap::new() })
    }

    async fn connect_encrypted(address: &PostgresAddress, root_file: Option<&PathBuf>) -> Result<Client, Failure> {
        let root_file = root_file.cloned();
        // The certificates of the system are read from files.
        let config = tokio::task::spawn_blocking(move || client_config(root_file.as_deref())).await;
        let config = config.map_err(|error| StoreError::backend("cannot set up TLS to PostgreSQL", error))??;
        let connected = address.config.connect(MakeEncrypted(config)).await;
        let (client, connection) = connected.map_err(Failure::Connect)?;
        drive(connection);
        Ok(client)
    }

    /// Runs a statement, which is prepared when it is used first.
    pub(super) async fn query(
        &mut self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = match self.statements.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare(sql).await?;
                self.statements.insert(sql, statement.clone());
                statement
            }
        };
        self.client.query(&statement, values).await
    }
}

/// Moves the messages of a connection until it ends. The statement that waits returns its error.
fn drive<S, T>(connection: tokio_postgres::Connection<S, T>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio_postgres::tls::TlsStream + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL has ended");
        }
    });
}
