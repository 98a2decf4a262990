//! Rows of the journal of calls.

use async_trait::async_trait;
use hatchery_core::{CallJournal, CallRecord, SessionKey, StoreError};
use sqlx::{query, query_as, query_scalar};

use super::{SqliteSessions, not_found, queries};

#[async_trait]
impl CallJournal for SqliteSessions {
    async fn record(&self, session: &SessionKey, run: &str, fence: u64, record: &CallRecord) -> Result<(), StoreError> {
        let _guard = self.lock_user(session).await?;
        let doing = "record a call of the session";
        // All rows are fetched, because a statement outside a transaction is committed only then.
        let recorded: Vec<i64> = query_scalar(queries::RECORD_CALL)
            .bind(&*session.app)
            .bind(&*session.user)
            .bind(&*session.id)
            .bind(run)
            .bind(&record.call)
            .bind(&record.outcome)
            .bind(fence.cast_signed())
            .fetch_all(&self.database.writer)
            .await
            .map_err(self.error_for(doing, session))?;
        if !recorded.is_empty() {
            return Ok(());
        }
        let lease = self.database.find_lease(session).await.map_err(self.error_for(doing, session))?;
        Err(lease.map_or_else(not_found(session), |_| StoreError::Fenced(session.clone())))
    }

    async fn read(&self, session: &SessionKey, run: &str) -> Result<Option<Vec<CallRecord>>, StoreError> {
        let rows: Vec<(String, Option<String>)> = query_as(queries::CALLS)
            .bind(&*session.app)
            .bind(&*session.user)
            .bind(&*session.id)
            .bind(run)
            .fetch_all(&self.database.readers)
            .await
            .map_err(self.error_for("read the calls of the session", session))?;
        // A run that goes on after it has finished has the mark and records.
        let is_finished = matches!(rows.as_slice(), [(call, _)] if call.is_empty());
        let records = rows.into_iter().filter(|(call, _)| !call.is_empty());
        Ok((!is_finished).then(|| records.map(|(call, outcome)| CallRecord { call, outcome }).collect()))
    }

    async fn finish(&self, session: &SessionKey, run: &str) -> Result<(), StoreError> {
        let _guard = self.lock_user(session).await?;
        self.finish_run(session, run).await.map_err(self.error_for("finish a run of the session", session))
    }
}

impl SqliteSessions {
    async fn finish_run(&self, session: &SessionKey, run: &str) -> Result<(), sqlx::Error> {
        let mut transaction = self.database.writer.begin_with("BEGIN IMMEDIATE").await?;
        for statement in [queries::DELETE_CALLS, queries::MARK_FINISHED] {
            query(statement)
                .bind(&*session.app)
                .bind(&*session.user)
                .bind(&*session.id)
                .bind(run)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await
    }
}
