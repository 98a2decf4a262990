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
        if !calls.is_kept(start) && times.is_boundary(start) {
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
fn last_valid_end(start: usize, end: usize, calls: &CallPairs, times: &EventTimes) -> usize {
    let mut end = times.last_boundary(end);
    while end > start {
        let Some(call) = calls.first_split_call(start, end) else { break };
        end = times.last_boundary(call);
    }
    end
}

/// The indices at which a time range can begin or end: all events before one are earlier than all events from it on.
struct EventTimes {
    /// The last such index up to each index.
    last_boundaries: Vec<usize>,
}

impl EventTimes {
    fn new(events: &[Arc<Event>]) -> Self {
        let times = events.iter().map(|event| event.timestamp);
        // The latest timestamp before each index.
        let mut before = vec![None];
        before.extend(times.clone().scan(None, |latest, time| {
            *latest = (*latest).max(Some(time));
            Some(*latest)
        }));
        // The earliest timestamp from each index on.
        let mut after = vec![None];
        after.extend(times.rev().scan(None, |earliest: &mut Option<Timestamp>, time| {
            *earliest = Some(earliest.map_or(time, |earlier| earlier.min(time)));
            Some(*earliest)
        }));
        after.reverse();
        let mut last = 0;
        let mut last_boundaries = Vec::with_capacity(before.len());
        for (index, (latest, earliest)) in before.into_iter().zip(after).enumerate() {
            let overlap = matches!((latest, earliest), (Some(latest), Some(earliest)) if latest >= earliest);
            if !overlap {
                last = index;
            }
            last_boundaries.push(last);
        }
        Self { last_boundaries }
    }

    /// Returns the last index up to `index` at which a time range can begin or end. Index 0 is one.
    fn last_boundary(&self, index: usize) -> usize {
        self.last_boundaries.get(index).copied().unwrap_or_default()
    }

    fn is_boundary(&self, index: usize) -> bool {
        self.last_boundary(index) == index
    }
}

/// Function calls with their responses, and the events that must be kept.
struct CallPairs {
    /// The indices of each call and its responses, in ascending order.
    groups: Vec<Vec<usize>>,
    /// The positions in `groups` of the groups of each event that is not kept yet.
    groups_of: Vec<Vec<usize>>,
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
        let groups: Vec<_> = calls.into_iter().map(|call| call.indices).collect();
        let mut groups_of: Vec<Vec<usize>> = vec![Vec::new(); events.len()];
        for (position, group) in groups.iter().enumerate() {
            for index in group {
                if let Some(groups) = groups_of.get_mut(*index) {
                    groups.push(position);
                }
            }
        }
        let mut pairs = Self { groups, groups_of, is_kept: vec![false; events.len()] };
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
                let groups = self.groups_of.get_mut(index).map(std::mem::take).unwrap_or_default();
                pending.extend(groups.into_iter().filter_map(|position| self.groups.get(position)).flatten());
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
