//! Documents of the journals of calls. The record of the empty call marks a run that has finished.

use async_trait::async_trait;
use hatchery_core::{CallJournal, CallRecord, SessionKey, StoreError};
use serde_json::json;

use super::change::Plan;
use super::stored::{StoredSession, check_fence};
use super::{FirestoreSessionService, Store};
use crate::firestore::document::{Document, Fields, Precondition, Write, fields};
use crate::firestore::keys;
use crate::firestore::query::filter;
use crate::sessions::record_bytes;

/// The call whose record marks a run that has finished.
const FINISHED: &str = "";

/// Number of records that one commit deletes.
const PAGE: usize = 200;

#[async_trait]
impl CallJournal for FirestoreSessionService {
    async fn record(&self, session: &SessionKey, run: &str, fence: u64, record: &CallRecord) -> Result<(), StoreError> {
        let name = self.0.names.call(session, run, &record.call);
        let bytes = record_bytes(&record.call, record.outcome.as_deref());
        let plan = |stored: &StoredSession, others: &[Option<Document>]| {
            check_fence(session, stored, Some(fence))?;
            let known = others.first().and_then(Option::as_ref);
            let before = known.map_or(0, document_bytes);
            let set = Write::set(name.clone(), record_fields(run, &record.call, record.outcome.clone()))
                .with_condition(Precondition::unchanged(known));
            Ok(Plan::new(vec![stored.add_bytes(bytes.wrapping_sub(before)), set], ()))
        };
        self.0.change(session, std::slice::from_ref(&name), &[keys::CALL, keys::OUTCOME], plan).await
    }

    async fn read(&self, session: &SessionKey, run: &str) -> Result<Option<Vec<CallRecord>>, StoreError> {
        if self.0.find(session, &[], &[]).await?.is_none() {
            return Ok(Some(Vec::new()));
        }
        let mut records: Vec<_> = self.0.calls(session, run).await?.iter().map(call_record).collect();
        records.sort_by(|one, other| one.call.cmp(&other.call));
        // A run that continues after it has finished has the mark and records.
        let is_finished = matches!(records.as_slice(), [CallRecord { call, .. }] if call == FINISHED);
        records.retain(|record| record.call != FINISHED);
        Ok((!is_finished).then_some(records))
    }

    async fn finish(&self, session: &SessionKey, run: &str) -> Result<(), StoreError> {
        loop {
            let mut calls = self.0.calls(session, run).await?;
            calls.retain(|document| document.text(keys::CALL) != Some(FINISHED));
            let is_last = calls.len() <= PAGE;
            calls.truncate(PAGE);
            match self.0.delete_calls(session, run, &calls, is_last).await {
                Err(StoreError::SessionNotFound(_)) => return Ok(()),
                Ok(()) if !is_last => {}
                result => return result,
            }
        }
    }
}

impl Store {
    async fn calls(&self, session: &SessionKey, run: &str) -> Result<Vec<Document>, StoreError> {
        let query = json!({"from": [{"collectionId": keys::CALLS}], "where": filter(keys::RUN, "EQUAL", run.into())});
        self.client.query(&self.names.session(session), &query, None).await
    }

    /// Deletes records of a run, and marks it as finished if they are the last.
    async fn delete_calls(
        &self,
        session: &SessionKey,
        run: &str,
        calls: &[Document],
        is_last: bool,
    ) -> Result<(), StoreError> {
        let names: Vec<_> = calls.iter().map(|call| self.client.relative(&call.name).to_owned()).collect();
        let mark = self.names.call(session, run, FINISHED);
        let plan = |stored: &StoredSession, others: &[Option<Document>]| {
            let freed: u64 = others.iter().flatten().map(document_bytes).sum();
            let mut writes = vec![stored.add_bytes(0_u64.wrapping_sub(freed))];
            for (name, known) in names.iter().zip(others) {
                writes.extend(
                    known
                        .as_ref()
                        .map(|known| Write::delete(name.clone()).with_condition(Precondition::unchanged(Some(known)))),
                );
            }
            writes.extend(is_last.then(|| Write::set(mark.clone(), record_fields(run, FINISHED, None))));
            Ok(Plan::new(writes, ()))
        };
        self.change(session, &names, &[keys::CALL, keys::OUTCOME], plan).await
    }
}

fn record_fields(run: &str, call: &str, outcome: Option<String>) -> Fields {
    fields([(keys::RUN, run.into()), (keys::CALL, call.into()), (keys::OUTCOME, outcome.into())])
}

fn call_record(document: &Document) -> CallRecord {
    CallRecord {
        call: document.text(keys::CALL).unwrap_or_default().to_owned(),
        outcome: document.text(keys::OUTCOME).map(ToOwned::to_owned),
    }
}

fn document_bytes(document: &Document) -> u64 {
    record_bytes(document.text(keys::CALL).unwrap_or_default(), document.text(keys::OUTCOME))
}
