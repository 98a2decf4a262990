//! Rewinds of ADK's runner, which imported sessions may have: an event that annuls the events before it, from the
//! beginning of a run on. They stay in the log, and are not part of prompts. A rewind by this host removes events
//! instead.

use std::collections::HashMap;
use std::sync::Arc;

use hatchery_core::{Event, USER_AUTHOR};
use imbl::Vector;

/// The key in `actions` with the id of the run.
const REWIND: &str = "rewindBeforeInvocationId";

/// Returns the run from whose beginning on an event annuls those before it; `None` if it annuls none. Agents cannot
/// rewind: they could hide events of others.
fn rewound_run(event: &Event) -> Option<&str> {
    let run = event.actions.extra.get(REWIND)?.as_str()?;
    (event.author == USER_AUTHOR).then_some(run)
}

/// Returns true if the event is a rewind.
pub(super) fn is_rewind(event: &Event) -> bool {
    rewound_run(event).is_some()
}

/// Returns the events from the newest to the oldest, each with whether it is annulled, or the rewind itself.
pub(super) fn newest_first(events: &Vector<Arc<Event>>) -> impl Iterator<Item = (&Arc<Event>, bool)> {
    let mut annulled_from = usize::MAX;
    // Made when it is needed first. Clients can import a session with very many rewinds.
    let mut starts: Option<HashMap<&str, usize>> = None;
    events.iter().enumerate().rev().map(move |(index, event)| {
        if index < annulled_from
            && let Some(run) = rewound_run(event)
        {
            let start = starts.get_or_insert_with(|| run_starts(events)).get(run);
            annulled_from = start.map_or(index, |start| *start.min(&index));
        }
        (event, index >= annulled_from)
    })
}

/// Returns the index of the first event of each run.
fn run_starts(events: &Vector<Arc<Event>>) -> HashMap<&str, usize> {
    // Of several events of a run the first is inserted last.
    events.iter().enumerate().rev().map(|(index, event)| (&*event.invocation_id, index)).collect()
}
