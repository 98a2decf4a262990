//! Failures of statements, and their conversion.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io;

use hatchery_core::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::keyed_lock::busy;

/// The cause of a failed operation.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server reports an error, or the connection to it was lost.
    Postgres(Error),
    /// No connection could be made.
    Connect(Error),
    /// No connection was free within [`MAX_WAIT`](crate::keyed_lock::MAX_WAIT).
    Timeout,
    /// The server has not answered.
    Unresponsive,
    /// The operation cannot be done.
    Refused(StoreError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Postgres(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl Failure {
    /// Returns true if nothing was changed, and the same statement may succeed on another connection or a moment later.
    pub(super) fn is_undone(&self) -> bool {
        let Self::Postgres(error) = self else { return false };
        // Names of prepared statements are lost behind some proxies, and plans when another host migrates the schema.
        [
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::INVALID_SQL_STATEMENT_NAME,
            SqlState::FEATURE_NOT_SUPPORTED,
            SqlState::READ_ONLY_SQL_TRANSACTION,
        ]
        .iter()
        .any(|code| error.code() == Some(code))
    }

    /// Returns true if the connection was lost, so that the outcome of the statement is unknown.
    pub(super) fn is_lost(&self) -> bool {
        let Self::Postgres(error) = self else { return false };
        match error.code() {
            Some(code) => is_shutdown(code),
            None => error.is_closed() || error.source().is_some_and(|source| source.is::<io::Error>()),
        }
    }

    /// Returns true if a connection may succeed a moment later, as when the server restarts.
    pub(super) fn is_temporary(&self) -> bool {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotFound, TimedOut, UnexpectedEof,
        };
        let Self::Connect(error) = self else { return false };
        if let Some(code) = error.code() {
            return is_shutdown(code)
                || *code == SqlState::CANNOT_CONNECT_NOW
                || *code == SqlState::TOO_MANY_CONNECTIONS;
        }
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        error.is_closed()
            || source.is_some_and(|source| {
                matches!(
                    source.kind(),
                    BrokenPipe
                        | ConnectionAborted
                        | ConnectionRefused
                        | ConnectionReset
                        | NotFound
                        | TimedOut
                        | UnexpectedEof
                )
            })
    }

    /// Returns true if a statement names something that the database does not have.
    pub(crate) fn is_unknown_object(&self) -> bool {
        matches!(self, Self::Postgres(error) if error.code() == Some(&SqlState::UNDEFINED_OBJECT))
    }

    /// Converts the failure. `noun` names the kind of database, `context` describes the operation.
    pub(super) fn into_error(self, noun: &str, context: &str) -> StoreError {
        let temporary = self.is_temporary();
        let is_lost = self.is_lost();
        match self {
            Self::Timeout => busy(&format!("the {noun} is busy")),
            Self::Connect(error) if temporary => busy(&format!("the {noun} cannot be reached ({})", describe(&error))),
            Self::Connect(error) => StoreError::backend(format!("{context}: cannot connect"), describe(&error)),
            Self::Unresponsive => StoreError::backend(context, "the server has not answered in time"),
            Self::Refused(error) => error,
            Self::Postgres(error) if is_lost => {
                let cause = describe(&error);
                StoreError::backend(context, format!("the connection was lost ({cause}); it may have been done"))
            }
            Self::Postgres(error) => from_server(error, noun, context),
        }
    }
}

/// Converts an error that the server reports.
fn from_server(error: Error, noun: &str, context: &str) -> StoreError {
    match error.code() {
        Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::QUERY_CANCELED => {
            busy(&format!("another host keeps the {noun} busy"))
        }
        Some(code) if *code == SqlState::DISK_FULL => {
            StoreError::Full { context: context.to_owned(), source: describe(&error).into() }
        }
        // U+0000 in a name, or a string too long for an index.
        Some(code) if *code == SqlState::CHARACTER_NOT_IN_REPERTOIRE || *code == SqlState::PROGRAM_LIMIT_EXCEEDED => {
            StoreError::InvalidRequest(format!("{context}: PostgreSQL cannot store this: {}", describe(&error)))
        }
        _ => StoreError::backend(context, describe(&error)),
    }
}

/// Returns true if the server ends connections.
fn is_shutdown(code: &SqlState) -> bool {
    [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::IDLE_SESSION_TIMEOUT].contains(code)
}

/// Returns an error with its causes. The server's details are omitted, because they repeat values.
fn describe(error: &Error) -> String {
    if let Some(reported) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", reported.message(), reported.code().code());
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a string does not fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
