//! The journal of calls.

use async_trait::async_trait;
use hatchery_core::{CallJournal, CallRecord, SessionKey, StoreError};

use super::MemorySessions;
use crate::sessions::record_bytes;

#[async_trait]
impl CallJournal for MemorySessions {
    async fn record(&self, session: &SessionKey, run: &str, fence: u64, record: &CallRecord) -> Result<(), StoreError> {
        self.change(session, |stored| {
            stored.check_fence(Some(fence))?;
            let calls = stored.journals.entry(run.into()).or_default().get_or_insert_default();
            let replaced = calls.insert(record.call.clone(), record.outcome.clone());
            let before = replaced.map_or(0, |outcome| record_bytes(&record.call, outcome.as_deref()));
            let added = record_bytes(&record.call, record.outcome.as_deref()).wrapping_sub(before);
            stored.add_event_bytes(added);
            Ok(())
        })
    }

    async fn read(&self, session: &SessionKey, run: &str) -> Result<Option<Vec<CallRecord>>, StoreError> {
        let read = self.change(session, |stored| {
            let record = |(call, outcome): (&String, &Option<String>)| CallRecord {
                call: call.clone(),
                outcome: outcome.clone(),
            };
            Ok(match stored.journals.get(run) {
                None => Some(Vec::new()),
                Some(calls) => calls.as_ref().map(|calls| calls.iter().map(record).collect()),
            })
        });
        match read {
            Err(StoreError::SessionNotFound(_)) => Ok(Some(Vec::new())),
            result => result,
        }
    }

    async fn finish(&self, session: &SessionKey, run: &str) -> Result<(), StoreError> {
        let finished = self.change(session, |stored| {
            let calls = stored.journals.insert(run.into(), None).flatten().unwrap_or_default();
            let freed: u64 = calls.iter().map(|(call, outcome)| record_bytes(call, outcome.as_deref())).sum();
            stored.add_event_bytes(0_u64.wrapping_sub(freed));
            Ok(())
        });
        match finished {
            Err(StoreError::SessionNotFound(_)) => Ok(()),
            result => result,
        }
    }
}
