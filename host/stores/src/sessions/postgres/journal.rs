//! Rows of the journal of calls.

use async_trait::async_trait;
use hatchery_core::{CallJournal, CallRecord, SessionKey, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{PostgresSessions, queries};
use crate::postgres::{Repeat, escape, unescape};
use crate::sessions::record_bytes;

#[async_trait]
impl CallJournal for PostgresSessions {
    async fn record(&self, session: &SessionKey, run: &str, fence: u64, record: &CallRecord) -> Result<(), StoreError> {
        let bytes = record_bytes(&record.call, record.outcome.as_deref()).cast_signed();
        let (fence, run, call) = (fence.cast_signed(), escape(run), escape(&record.call));
        let values: [&(dyn ToSql + Sync); 8] =
            [&&*session.app, &&*session.user, &&*session.id, &fence, &&*run, &&*call, &record.outcome, &bytes];
        let activity = "record a call of the session";
        self.outcome(activity, session, Repeat::Safe, queries::RECORD_CALL, &values)
            .await?
            .into_result(session)
            .map(drop)
    }

    async fn read(&self, session: &SessionKey, run: &str) -> Result<Option<Vec<CallRecord>>, StoreError> {
        let run = escape(run);
        let values: [&(dyn ToSql + Sync); 4] = [&&*session.app, &&*session.user, &&*session.id, &&*run];
        let rows = self.query("read the calls of the session", session, Repeat::Safe, queries::CALLS, &values).await?;
        let records = rows
            .iter()
            .map(|row: &Row| Ok(CallRecord { call: unescape(row.try_get(0)?).into_owned(), outcome: row.try_get(1)? }));
        let mut records =
            records.collect::<Result<Vec<_>, tokio_postgres::Error>>().map_err(self.unreadable(session))?;
        // A run that continues after it has finished has the mark and records.
        let is_finished = matches!(records.as_slice(), [CallRecord { call, .. }] if call.is_empty());
        records.retain(|record| !record.call.is_empty());
        Ok((!is_finished).then_some(records))
    }

    async fn finish(&self, session: &SessionKey, run: &str) -> Result<(), StoreError> {
        let run = escape(run);
        let values: [&(dyn ToSql + Sync); 4] = [&&*session.app, &&*session.user, &&*session.id, &&*run];
        self.query("finish a run of the session", session, Repeat::Safe, queries::FINISH_CALLS, &values).await.map(drop)
    }
}
