//! Rows of the journal of calls.

use async_trait::async_trait;
use hatchery_core::{CallJournal, CallRecord, SessionKey, StoreError};
use rusqlite::{Connection, params};

use super::{SqliteSessions, first, queries, turns};

/// The result of a record.
enum Record {
    Stored,
    /// Another turn has begun.
    Fenced,
    /// The session does not exist.
    NoSession,
}

#[async_trait]
impl CallJournal for SqliteSessions {
    async fn record(&self, session: &SessionKey, run: &str, fence: u64, record: &CallRecord) -> Result<(), StoreError> {
        let (key, run, record) = (session.clone(), run.to_owned(), record.clone());
        let recorded = self.write("record a call of the session", session, move |connection| {
            insert_record(connection, &key, &run, fence, &record)
        });
        match recorded.await? {
            Record::Stored => Ok(()),
            Record::Fenced => Err(StoreError::Fenced(session.clone())),
            Record::NoSession => Err(StoreError::SessionNotFound(session.clone())),
        }
    }

    async fn read(&self, session: &SessionKey, run: &str) -> Result<Option<Vec<CallRecord>>, StoreError> {
        let (key, run) = (session.clone(), run.to_owned());
        let read = SqliteSessions::read(self, "read the calls of the session", session, move |connection| {
            let mut calls = connection.prepare_cached(queries::CALLS)?;
            let rows = calls.query_map(params![key.app, key.user, key.id, run], |row| {
                Ok(CallRecord { call: row.get(0)?, outcome: row.get(1)? })
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        });
        let mut records = read.await?;
        // A run that continues after it has finished has the mark and records.
        let is_finished = matches!(records.as_slice(), [CallRecord { call, .. }] if call.is_empty());
        records.retain(|record| !record.call.is_empty());
        Ok((!is_finished).then_some(records))
    }

    async fn finish(&self, session: &SessionKey, run: &str) -> Result<(), StoreError> {
        let (key, run) = (session.clone(), run.to_owned());
        let finished = self.write("finish a run of the session", session, move |connection| {
            for statement in [queries::DELETE_CALLS, queries::MARK_FINISHED] {
                connection.prepare_cached(statement)?.execute(params![key.app, key.user, key.id, run])?;
            }
            Ok(())
        });
        finished.await
    }
}

fn insert_record(
    connection: &Connection,
    key: &SessionKey,
    run: &str,
    fence: u64,
    record: &CallRecord,
) -> rusqlite::Result<Record> {
    let mut insert = connection.prepare_cached(queries::RECORD_CALL)?;
    let values = params![key.app, key.user, key.id, run, record.call, record.outcome, fence.cast_signed()];
    if first(&mut insert, values, |_| Ok(()))?.is_some() {
        return Ok(Record::Stored);
    }
    Ok(turns::find_lease(connection, key)?.map_or(Record::NoSession, |_| Record::Fenced))
}
