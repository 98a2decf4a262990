//! The record of a paused run, stored until it is resumed: its `temp:` state and its usage counters.
//!
//! They are stored as an event without content, which carries a proof and is not sent to clients. Nothing is kept in
//! memory, so a run may wait for a person for as long as its session exists.

use std::collections::BTreeSet;
use std::sync::Arc;

use hatchery_core::{
    CallContext, Claim, Event, EventData, JsonMap, PAUSED_RUN_KEY, StateScope, USER_AUTHOR, UsageSnapshot,
};
use imbl::Vector;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::provenance::Verifier;

/// The record of a paused run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PausedRun {
    /// The `temp:` keys.
    pub(super) temp_state: JsonMap,
    /// The resources that the run has used.
    pub(super) usage: UsageSnapshot,
    /// The keys of the model calls by code that `usage` contains. They are not counted again when the code runs again.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) counted_calls: BTreeSet<String>,
}

impl PausedRun {
    /// Returns the record of the run with these events at its end. Without a record, the counters are computed from its
    /// events, and there is no state.
    pub(super) fn from_events(events: &Vector<Arc<Event>>, verifier: &Verifier<'_>) -> Self {
        let proves = |event: &Arc<Event>| event.paused_run().is_some() && verifier.proves(event, Claim::PausedRun);
        let index = events.iter().rposition(proves);
        let record = index.and_then(|index| Self::deserialize(events.get(index)?.paused_run()?).ok());
        let mut paused = record.unwrap_or_default();
        let since = events.iter().skip(index.map_or(0, |index| index + 1));
        since.filter(|event| event.author != USER_AUTHOR).for_each(|event| paused.usage.add_event(event));
        paused
    }

    /// Returns the event to store, or `None` if the events of the run contain the same data.
    pub(super) fn record(cx: &CallContext) -> Option<Arc<Event>> {
        let invocation = &cx.invocation;
        let state = invocation.state();
        let temp = state.iter().filter(|(key, _)| StateScope::split_key(key).0 == StateScope::Temp);
        let temp_state: JsonMap = temp.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let usage = invocation.usage.snapshot();
        let events = invocation.events().into_iter().filter(|event| event.invocation_id == invocation.id).collect();
        let known = Self::from_events(&events, &Verifier::new(invocation));
        let is_known = (usage.llm_calls, usage.tokens) == (known.usage.llm_calls, known.usage.tokens);
        if temp_state == known.temp_state && is_known {
            return None;
        }
        let counted_calls = invocation.journal.as_ref().map(|journal| journal.counted_calls()).unwrap_or_default();
        let record = json!({ PAUSED_RUN_KEY: Self { temp_state, usage, counted_calls } });
        let mut data = EventData {
            invocation_id: invocation.id.clone(),
            author: USER_AUTHOR.into(),
            custom_metadata: Some(Box::new(record)),
            ..EventData::default()
        };
        invocation.signer.sign(&invocation.session_key, &mut data, Claim::PausedRun);
        Some(Event::new(data))
    }
}
