//! Where a summary may begin and end.
//!
//! It stands for a stretch of time, so nothing else may lie in that stretch; and a function call and all its answers are either in it or
//! not. A call that still waits for its answer stays as it is, and so does what belongs to it, and what the user said to begin its run:
//! whoever answers must find it, and the run goes on from there.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use hatchery_core::{Event, Timestamp, USER_AUTHOR};

/// The first stretch of `events` that a summary may stand for: all before `limit`, and not all before `new`. `events` go on to the end of
/// the log. Nothing when there is none yet.
pub(super) fn stretch(events: &[Arc<Event>], new: usize, limit: usize) -> Option<Range<usize>> {
    let limit = limit.min(events.len());
    let times = Times::of(events);
    let mut calls = Calls::of(events);
    for start in 0..limit {
        if !calls.stays(start) && !times.meet(start) {
            let next_staying = (start..limit).find(|place| calls.stays(*place)).unwrap_or(limit);
            let end = shrink(start, next_staying, &calls, &times);
            if end > start.max(new) {
                return Some(start..end);
            }
            if end == start && next_staying == limit {
                // What begins here goes on beyond the limit, which later will be further on.
                return None;
            }
        }
        calls.leave(start);
    }
    None
}

/// The last place up to `end` at which what begins at `start` may end.
fn shrink(start: usize, mut end: usize, calls: &Calls, times: &Times) -> usize {
    while end > start {
        if let Some(begun) = calls.split_at(start, end) {
            end = begun;
        } else if times.meet(end) {
            end -= 1;
        } else {
            break;
        }
    }
    end
}

/// Where in time events can be told apart.
struct Times {
    /// The latest time before each place.
    before: Vec<Option<Timestamp>>,
    /// The earliest time from each place on.
    after: Vec<Option<Timestamp>>,
}

impl Times {
    fn of(events: &[Arc<Event>]) -> Self {
        let times = events.iter().map(|event| event.timestamp);
        let mut before = vec![None];
        before.extend(times.clone().scan(None, |latest, time| {
            *latest = (*latest).max(Some(time));
            Some(*latest)
        }));
        let mut after = vec![None];
        after.extend(times.rev().scan(None, |earliest: &mut Option<Timestamp>, time| {
            *earliest = Some(earliest.map_or(time, |earlier| earlier.min(time)));
            Some(*earliest)
        }));
        after.reverse();
        Self { before, after }
    }

    /// True when an event before `place` is not earlier than one after it: no stretch of time can end between them.
    fn meet(&self, place: usize) -> bool {
        let latest = self.before.get(place).copied().flatten();
        let earliest = self.after.get(place).copied().flatten();
        matches!((latest, earliest), (Some(latest), Some(earliest)) if latest >= earliest)
    }
}

/// What must stay together, and what must stay.
struct Calls {
    /// The places of each call and its answers, in order.
    groups: Vec<Vec<usize>>,
    stays: Vec<bool>,
}

/// A call that is being read.
struct Call {
    places: Vec<usize>,
    is_long_running: bool,
    is_open: bool,
}

impl Calls {
    fn of(events: &[Arc<Event>]) -> Self {
        let mut newest: HashMap<&str, Call> = HashMap::new();
        let mut calls = Vec::new();
        let mut orphans = Vec::new();
        for (place, event) in events.iter().enumerate() {
            for id in event.function_calls().filter_map(|call| call.id.as_deref()) {
                let is_long_running = event.long_running_tool_ids.iter().any(|it| it == id);
                calls.extend(newest.insert(id, Call { places: vec![place], is_long_running, is_open: true }));
            }
            for id in event.function_responses().filter_map(|response| response.id.as_deref()) {
                match newest.get_mut(id) {
                    Some(call) => call.answered(id, place, event),
                    None => orphans.push(place),
                }
            }
        }
        calls.extend(newest.into_values());
        let mut all = Self { groups: Vec::new(), stays: vec![false; events.len()] };
        let mut staying: Vec<_> =
            calls.iter().filter(|call| call.is_open).flat_map(|call| call.places.clone()).collect();
        staying.extend(openings(events, &staying));
        all.groups = calls.into_iter().map(|call| call.places).collect();
        for place in staying.into_iter().chain(orphans) {
            all.leave(place);
        }
        all
    }

    fn stays(&self, place: usize) -> bool {
        self.stays.get(place).copied().unwrap_or_default()
    }

    /// Has the event at `place` stay, and all that belongs together with it.
    fn leave(&mut self, place: usize) {
        let mut due = vec![place];
        while let Some(place) = due.pop() {
            let Some(stays) = self.stays.get_mut(place) else { continue };
            if !std::mem::replace(stays, true) {
                due.extend(self.groups.iter().filter(|group| group.contains(&place)).flatten());
            }
        }
    }

    /// The first call from `start` on that would be cut off from its answers at `end`.
    fn split_at(&self, start: usize, end: usize) -> Option<usize> {
        let begins = |group: &&Vec<usize>| group.first().is_some_and(|first| (start..end).contains(first));
        let goes_on = |group: &&Vec<usize>| group.last().is_some_and(|last| *last >= end);
        self.groups.iter().filter(begins).filter(goes_on).filter_map(|group| group.first().copied()).min()
    }
}

/// What the user said to begin the runs of the events at these places.
fn openings(events: &[Arc<Event>], places: &[usize]) -> Vec<usize> {
    let runs: HashSet<_> = places.iter().filter_map(|place| Some(events.get(*place)?.invocation_id.as_str())).collect();
    let said = events.iter().enumerate().filter(|(_, event)| event.author == USER_AUTHOR);
    let mut begun = HashSet::new();
    said.filter(|(_, event)| runs.contains(&*event.invocation_id) && begun.insert(event.invocation_id.as_str()))
        .map(|(place, _)| place)
        .collect()
}

impl Call {
    /// An answer ends the wait, unless it says that a person is asked first, or that a long-running tool has begun: what that one comes
    /// to, the client tells.
    fn answered(&mut self, id: &str, place: usize, event: &Event) {
        self.places.push(place);
        let asks = event.actions.requested_tool_confirmations.contains_key(id);
        self.is_open = asks || (self.is_long_running && event.author != USER_AUTHOR);
    }
}
