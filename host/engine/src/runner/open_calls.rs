//! Open calls in apps that are not resumable. A run that has asked a person, or called a tool whose result comes later,
//! is stored as waiting, although its agents have ended. The answers come in the message of a later run, which ends the
//! wait.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use hatchery_core::{
    Content, Event, FunctionResponse, RunError, RunState, RunTransition, SessionKey, StoreError, USER_AUTHOR,
};
use imbl::Vector;

use super::RunnerInner;
use crate::provenance::Verifier;
use crate::run::RunContext;

/// Returns true if the run has calls that wait for the user. `events` are those since the run has begun.
pub(super) fn has_open_calls(events: &Vector<Arc<Event>>, run: &str, verifier: &Verifier<'_>) -> bool {
    let is_asking = |event: &&Arc<Event>| {
        event.invocation_id == run
            && event.author != USER_AUTHOR
            && !event.long_running_tool_ids.is_empty()
            && verifier.proves_open_calls(event)
    };
    let asked = events.iter().filter(is_asking).flat_map(|event| &event.long_running_tool_ids);
    let mut open: HashSet<&str> = asked.map(String::as_str).collect();
    if !open.is_empty() {
        for id in events.iter().flat_map(|event| event.closed_calls()) {
            open.remove(id);
        }
    }
    !open.is_empty()
}

/// Returns the runs that have made the calls which a message responds to.
fn answered_runs(message: &Content, events: &Vector<Arc<Event>>, verifier: &Verifier<'_>) -> BTreeSet<String> {
    let caller = |response: &FunctionResponse| {
        let id = response.id.as_deref()?;
        let calls = |event: &&Arc<Event>| {
            event.author != USER_AUTHOR
                && event.function_calls().any(|call| call.id.as_deref() == Some(id))
                && verifier.proves_open_calls(event)
        };
        events.iter().rev().find(calls).map(|event| event.invocation_id.clone())
    };
    message.function_responses().filter_map(caller).collect()
}

impl RunnerInner {
    /// Checks that a message answers no run that was cancelled.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it does, and the errors of the session service.
    pub(super) async fn check_answered(
        &self,
        key: &SessionKey,
        message: &Content,
        events: &Vector<Arc<Event>>,
    ) -> Result<(), RunError> {
        let Some(runs) = self.services.sessions.runs() else { return Ok(()) };
        for run in answered_runs(message, events, &self.verifier(key)) {
            if runs.get(key, &run).await?.is_some_and(|run| run.state == RunState::Cancelled) {
                let message =
                    format!("run `{run}`, which the message answers, was cancelled; send a new message instead");
                return Err(RunError::BadInput(message));
            }
        }
        Ok(())
    }
}

/// Ends the wait of the runs whose calls the message of this run has answered.
pub(super) async fn end_answered_runs(run: &RunContext) {
    let invocation = &run.invocation;
    let (Some(lease), Some(runs)) = (&invocation.lease, invocation.services.sessions.runs()) else { return };
    let (message, events, verifier) = (invocation.user_content(), invocation.events(), Verifier::new(invocation));
    for id in answered_runs(&message, &events, &verifier) {
        if id == invocation.id || has_open_calls(&events, &id, &verifier) {
            continue;
        }
        match runs.change(lease.session(), &id, Some(lease.fence()), &RunTransition::Answer).await {
            Ok(_) | Err(StoreError::Fenced(_)) => {}
            Err(error) => tracing::warn!(run = id, code = error.code(), "the end of a run was not stored: {error}"),
        }
    }
}
