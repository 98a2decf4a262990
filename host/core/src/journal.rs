//! The journal of calls: the results of the calls of tools and models within a run. A run that is continued after a
//! crash does not repeat these calls.
//!
//! Calls whose answer is its own event need no record. A call has the same key whenever its run is continued.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::event::Event;
use crate::id::SessionKey;
use crate::sync::MutexExt;
use crate::turn::TurnLease;

/// A call in a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRecord {
    /// The key of the call within its run.
    pub call: String,
    /// The result as JSON; `None` if the call has begun and not ended.
    pub outcome: Option<String>,
}

/// Stores the calls of runs, in the same database as their sessions. Deleting a session deletes its records. The bytes
/// of keys and outcomes count as bytes of the session's events.
#[async_trait]
pub trait CallJournal: Send + Sync {
    /// Stores a record, which replaces an earlier record of the call. When this returns, it survives a crash of the
    /// process. The fence is compared in the same transaction.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if another turn has begun, [`StoreError::SessionNotFound`] if the session does not exist.
    async fn record(&self, session: &SessionKey, run: &str, fence: u64, record: &CallRecord) -> Result<(), StoreError>;

    /// Returns the records of a run, ordered by their keys; none if the session does not exist. `None` if the run has
    /// [finished](CallJournal::finish).
    async fn read(&self, session: &SessionKey, run: &str) -> Result<Option<Vec<CallRecord>>, StoreError>;

    /// Deletes the records of a run, and remembers that it has finished. Succeeds if the session does not exist.
    async fn finish(&self, session: &SessionKey, run: &str) -> Result<(), StoreError>;
}

/// The journal of one run. Records nothing if the session service has no journal.
pub struct RunJournal {
    lease: Arc<TurnLease>,
    run: String,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    /// The calls that were recorded before the run was interrupted.
    earlier: HashMap<String, Option<String>>,
    /// Number of calls by the prefix of their keys.
    counts: HashMap<String, u64>,
    /// The keys of the model calls that the usage counters of the run contain.
    counted: BTreeSet<String>,
    /// True if the journal has records of the run.
    has_records: bool,
}

/// The record of a call from before its run was interrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EarlierCall<T> {
    /// The call has not begun, or may be made again.
    Unknown,
    /// The call had begun and has no result, so its effect is unknown.
    Interrupted,
    /// The call had returned this.
    Completed(T),
}

impl RunJournal {
    /// Returns the journal of a run in the turn of `lease`.
    pub fn new(lease: Arc<TurnLease>, run: impl Into<String>) -> Self {
        Self { lease, run: run.into(), calls: Mutex::default() }
    }

    /// Reads the records of a run that is continued. Returns false if the run has finished.
    ///
    /// # Errors
    /// The errors of the service.
    pub async fn load(&self) -> Result<bool, StoreError> {
        let Some(journal) = self.lease.journal() else { return Ok(true) };
        let Some(records) = journal.read(self.lease.session(), &self.run).await? else { return Ok(false) };
        let mut calls = self.calls();
        calls.has_records = !records.is_empty();
        calls.earlier = records.into_iter().map(|record| (record.call, record.outcome)).collect();
        Ok(true)
    }

    /// Returns the keys of the model calls that the usage counters of the run contain.
    pub fn counted_calls(&self) -> BTreeSet<String> {
        self.calls().counted.clone()
    }

    /// Sets the keys of the model calls that the usage counters contain, for a run that is continued after a pause.
    pub fn set_counted_calls(&self, counted: BTreeSet<String>) {
        self.calls().counted = counted;
    }

    /// Marks a model call as one that the usage counters contain. Returns false if they did before.
    pub(crate) fn count_call(&self, call: &str) -> bool {
        self.calls().counted.insert(call.into())
    }

    /// Returns the record of a call from before the run was interrupted.
    pub fn earlier<T: DeserializeOwned>(&self, call: &str) -> EarlierCall<T> {
        match self.calls().earlier.get(call) {
            None => EarlierCall::Unknown,
            Some(None) => EarlierCall::Interrupted,
            Some(Some(outcome)) => match serde_json::from_str(outcome) {
                Ok(outcome) => EarlierCall::Completed(outcome),
                Err(error) => {
                    tracing::error!(run = self.run, call, %error, "the record of a call cannot be read");
                    EarlierCall::Interrupted
                }
            },
        }
    }

    /// Returns `prefix/k` for the `k`th call with this prefix.
    pub fn number(&self, prefix: &str) -> String {
        format!("{prefix}/{}", self.count(prefix))
    }

    /// Increments the counter of a prefix. Returns its previous value.
    pub(crate) fn count(&self, prefix: &str) -> u64 {
        let mut calls = self.calls();
        let count = calls.counts.entry(prefix.to_owned()).or_default();
        *count += 1;
        *count - 1
    }

    /// Records that a call begins.
    ///
    /// # Errors
    /// As [`CallJournal::record`].
    pub async fn begin(&self, call: &str) -> Result<(), StoreError> {
        self.record(CallRecord { call: call.into(), outcome: None }).await
    }

    /// Records the outcome of a call.
    ///
    /// # Errors
    /// As [`CallJournal::record`].
    pub async fn complete(&self, call: &str, outcome: &impl Serialize) -> Result<(), StoreError> {
        if self.lease.journal().is_none() {
            return Ok(());
        }
        let outcome = serde_json::to_string(outcome)
            .map_err(|error| StoreError::backend(format!("the outcome of call {call} cannot be written"), error))?;
        self.record(CallRecord { call: call.into(), outcome: Some(outcome) }).await
    }

    /// Records an event of an inner run, which is the run of an agent called as a tool.
    ///
    /// # Errors
    /// As [`CallJournal::record`].
    pub async fn append(&self, inner_run: &str, index: usize, event: &Event) -> Result<(), StoreError> {
        let outcome = Some(String::from_utf8_lossy(event.json()).into_owned());
        self.record(CallRecord { call: event_key(inner_run, index), outcome }).await
    }

    /// Returns the events of an inner run that were recorded before the run was interrupted.
    pub fn events(&self, inner_run: &str) -> Vec<Arc<Event>> {
        let calls = self.calls();
        let outcomes = (0..).map_while(|index| calls.earlier.get(&event_key(inner_run, index))?.as_ref());
        outcomes.map_while(|json| Event::from_json(json.clone()).ok()).collect()
    }

    /// Deletes the records of a run that has finished.
    ///
    /// # Errors
    /// The errors of the service.
    pub async fn finish(&self) -> Result<(), StoreError> {
        match self.lease.journal() {
            Some(journal) if self.calls().has_records => journal.finish(self.lease.session(), &self.run).await,
            Some(_) | None => Ok(()),
        }
    }

    async fn record(&self, record: CallRecord) -> Result<(), StoreError> {
        self.calls().has_records = true;
        self.lease.record(&self.run, &record).await
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock_unpoisoned()
    }
}

fn event_key(inner_run: &str, index: usize) -> String {
    format!("{inner_run}/event/{index:06}")
}

/// Returns a short hash of a call's arguments.
pub fn hash_arguments(arguments: &impl Serialize) -> String {
    hash_hex(arguments, 8)
}

/// Returns the first `bytes` of the SHA-256 of a value's JSON, in hexadecimal digits.
pub(crate) fn hash_hex(value: &impl Serialize, bytes: usize) -> String {
    // Values that cannot be serialized have equal hashes.
    let json = serde_json::to_vec(value).unwrap_or_default();
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'));
    Sha256::digest(json).iter().take(bytes).flat_map(digits).collect()
}
