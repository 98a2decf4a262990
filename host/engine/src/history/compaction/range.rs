//! The range of events that a summary can cover.
//!
//! A summary covers a time range, so no other event may have a timestamp in that range. A function call and its
//! responses are either all covered or all kept. A call without a final response is kept, with the message of the user
//! that started its run: a response needs the call, and the run resumes from it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use hatchery_core::{Event, Timestamp, USER_AUTHOR};

/// Returns the first range of `events` that a summary can cover, or `None` if there is none yet. The range ends at most
/// at `limit` and contains events from `new` on. `events` contains all events up to the end of the log.
pub(super) fn compactable_range(events: &[Arc<Event>], new: usize, limit: usize) -> Option<Range<usize>> {
    let limit = limit.min(events.len());
    let times = EventTimes::new(events);
    let mut calls = CallPairs::new(events);
    for start in 0..limit {
        if !calls.is_kept(start) && !times.overlap_at(start) {
            let next_kept = (start..limit).find(|index| calls.is_kept(*index)).unwrap_or(limit);
            let end = last_valid_end(start, next_kept, &calls, &times);
            if end > start.max(new) {
                return Some(start..end);
            }
            if end == start && next_kept == limit {
                // The calls that start here have responses after the limit, which moves on with later events.
                return None;
            }
        }
        calls.keep(start);
    }
    None
}

/// Returns the last index up to `end` at which a range from `start` can end.
fn last_valid_end(start: usize, mut end: usize, calls: &CallPairs, times: &EventTimes) -> usize {
    while end > start {
        if let Some(call) = calls.first_split_call(start, end) {
            end = call;
        } else if times.overlap_at(end) {
            end -= 1;
        } else {
            break;
        }
    }
    end
}

/// Timestamps before and after each index.
struct EventTimes {
    /// The latest timestamp before each index.
    before: Vec<Option<Timestamp>>,
    /// The earliest timestamp from each index on.
    after: Vec<Option<Timestamp>>,
}

impl EventTimes {
    fn new(events: &[Arc<Event>]) -> Self {
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

    /// Returns true if an event before `index` is not earlier than an event from `index` on. Then no time range can end
    /// there.
    fn overlap_at(&self, index: usize) -> bool {
        let latest = self.before.get(index).copied().flatten();
        let earliest = self.after.get(index).copied().flatten();
        matches!((latest, earliest), (Some(latest), Some(earliest)) if latest >= earliest)
    }
}

/// Function calls with their responses, and the events that must be kept.
struct CallPairs {
    /// The indices of each call and its responses, in ascending order.
    groups: Vec<Vec<usize>>,
    is_kept: Vec<bool>,
}

struct Call {
    /// The indices of the call and its responses.
    indices: Vec<usize>,
    is_long_running: bool,
    is_open: bool,
}

impl CallPairs {
    fn new(events: &[Arc<Event>]) -> Self {
        let mut newest: HashMap<&str, Call> = HashMap::new();
        let mut calls = Vec::new();
        let mut orphans = Vec::new();
        for (index, event) in events.iter().enumerate() {
            for id in event.function_calls().filter_map(|call| call.id.as_deref()) {
                let is_long_running = event.long_running_tool_ids.iter().any(|long_running| long_running == id);
                calls.extend(newest.insert(id, Call { indices: vec![index], is_long_running, is_open: true }));
            }
            for id in event.function_responses().filter_map(|response| response.id.as_deref()) {
                match newest.get_mut(id) {
                    Some(call) => call.add_response(id, index, event),
                    None => orphans.push(index),
                }
            }
        }
        calls.extend(newest.into_values());
        let mut retained: Vec<_> =
            calls.iter().filter(|call| call.is_open).flat_map(|call| call.indices.clone()).collect();
        retained.extend(first_user_messages(events, &retained));
        let groups = calls.into_iter().map(|call| call.indices).collect();
        let mut pairs = Self { groups, is_kept: vec![false; events.len()] };
        for index in retained.into_iter().chain(orphans) {
            pairs.keep(index);
        }
        pairs
    }

    fn is_kept(&self, index: usize) -> bool {
        self.is_kept.get(index).copied().unwrap_or_default()
    }

    /// Keeps the event at `index` and, transitively, all calls and responses that belong to it.
    fn keep(&mut self, index: usize) {
        let mut pending = vec![index];
        while let Some(index) = pending.pop() {
            let Some(is_kept) = self.is_kept.get_mut(index) else { continue };
            if !std::mem::replace(is_kept, true) {
                pending.extend(self.groups.iter().filter(|group| group.contains(&index)).flatten());
            }
        }
    }

    /// Returns the first call in `start..end` with a response at `end` or later.
    fn first_split_call(&self, start: usize, end: usize) -> Option<usize> {
        let starts_in_range = |group: &&Vec<usize>| group.first().is_some_and(|first| (start..end).contains(first));
        let ends_after_range = |group: &&Vec<usize>| group.last().is_some_and(|last| *last >= end);
        self.groups
            .iter()
            .filter(starts_in_range)
            .filter(ends_after_range)
            .filter_map(|group| group.first().copied())
            .min()
    }
}

/// Returns the indices of the messages of the user that started the runs of the events at `indices`.
fn first_user_messages(events: &[Arc<Event>], indices: &[usize]) -> Vec<usize> {
    let runs: HashSet<_> =
        indices.iter().filter_map(|index| Some(events.get(*index)?.invocation_id.as_str())).collect();
    let user_events = events.iter().enumerate().filter(|(_, event)| event.author == USER_AUTHOR);
    let mut seen = HashSet::new();
    user_events
        .filter(|(_, event)| runs.contains(&*event.invocation_id) && seen.insert(event.invocation_id.as_str()))
        .map(|(index, _)| index)
        .collect()
}

impl Call {
    /// Adds a response, which closes the call. Exceptions are a response that requests something of a person, and the
    /// agent's response to a long-running call, whose final response comes from the client.
    fn add_response(&mut self, id: &str, index: usize, event: &Event) {
        self.indices.push(index);
        let requests_answer = event.actions.requests_answer(id);
        self.is_open = requests_answer || (self.is_long_running && event.author != USER_AUTHOR);
    }
}
