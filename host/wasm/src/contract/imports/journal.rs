//! Calls of services in the journal of the run: code that runs again because its run is continued does not repeat them.

use std::sync::Arc;

use hatchery_core::{CallContext, EarlierCall, RunJournal, StoreError, hash_arguments};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A call of a service. Without a journal, or in code that does not run again, it is recorded nowhere.
pub(super) struct CallEntry(Option<(Arc<RunJournal>, String)>);

impl CallEntry {
    /// Creates the entry of the next call of this name with these arguments.
    pub(super) fn new(cx: &CallContext, name: &str, arguments: &impl Serialize) -> Self {
        Self(cx.invocation.journal.clone().zip(cx.next_call_key(name, arguments)))
    }

    /// Returns the journal's record of the call from before the run was interrupted.
    pub(super) fn earlier<T: DeserializeOwned>(&self) -> EarlierCall<T> {
        self.0.as_ref().map_or(EarlierCall::Unknown, |(journal, key)| journal.earlier(key))
    }

    /// Records that the call begins.
    pub(super) async fn begin(&self) -> Result<(), StoreError> {
        match &self.0 {
            Some((journal, key)) => journal.begin(key).await,
            None => Ok(()),
        }
    }

    /// Records the result of the call.
    pub(super) async fn complete(&self, outcome: &(impl Serialize + ?Sized)) -> Result<(), StoreError> {
        match &self.0 {
            Some((journal, key)) => journal.complete(key, &outcome).await,
            None => Ok(()),
        }
    }

    /// Returns an id for the event of the call, which is the same when the call is repeated. Empty if it is not
    /// recorded.
    pub(super) fn event_id(&self) -> String {
        self.0.as_ref().map_or_else(String::new, |(_, key)| format!("call-{}", hash_arguments(key)))
    }
}
