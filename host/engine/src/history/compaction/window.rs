//! Selection of the events for the next summary: sliding window and tail retention.

use std::collections::HashSet;
use std::sync::Arc;

use hatchery_core::{Compaction, Content, Event, EventActions, EventData, Timestamp, USER_AUTHOR};
use imbl::Vector;

use super::range::compactable_range;
use super::{HistoryItem, SlidingWindow, TailRetention, effective_history};
use crate::history::rewind;

/// The events for one summary.
#[derive(Debug)]
pub(super) struct CompactionPlan {
    /// The events to summarize. The first may be an earlier summary, which the new one replaces.
    pub(super) events: Vec<Arc<Event>>,
    /// The earliest timestamp.
    pub(super) start: Timestamp,
    /// The latest timestamp.
    pub(super) end: Timestamp,
}

impl CompactionPlan {
    fn new(earlier_summary: Option<&Compaction>, events: &[Arc<Event>]) -> Option<Self> {
        let earlier_summary = earlier_summary.map(as_event);
        let events: Vec<_> = earlier_summary.into_iter().chain(events.iter().cloned()).collect();
        let start = events.iter().map(|event| event.timestamp).min()?;
        let end = events.iter().map(|event| event.timestamp).max()?;
        Some(Self { events, start, end })
    }

    /// Returns true if the time range contains a visible event that is not part of the plan.
    pub(super) fn hides_other_events(&self, events: &Vector<Arc<Event>>) -> bool {
        let planned: HashSet<_> = self.events.iter().map(|event| event.id.as_str()).collect();
        let is_other = |event: &Event| !planned.contains(event.id.as_str()) && event.timestamp >= self.start;
        effective_history(events)
            .iter()
            .any(|item| matches!(item, HistoryItem::Event(event) if is_other(event) && event.timestamp <= self.end))
    }

    /// Returns the event with the summary. Its id is derived from the time range, so that two hosts cannot append
    /// summaries of the same events.
    pub(super) fn compaction_event(&self, invocation_id: String, summary: Content) -> Arc<Event> {
        let compaction = Compaction {
            start_timestamp: self.start,
            end_timestamp: self.end,
            compacted_content: Content { role: Some("model".into()), ..summary },
            ..Compaction::default()
        };
        let actions = EventActions { compaction: Some(Box::new(compaction)), ..EventActions::default() };
        let id = format!("compaction-{}-{}", self.start.as_micros(), self.end.as_micros());
        Event::new(EventData { id, invocation_id, author: USER_AUTHOR.into(), actions, ..EventData::default() })
    }
}

/// Returns an event with the summary as its content and the start of its time range as its timestamp.
fn as_event(compaction: &Compaction) -> Arc<Event> {
    Event::new(EventData {
        author: "model".into(),
        content: Some(Arc::new(compaction.compacted_content.clone())),
        timestamp: compaction.start_timestamp,
        ..EventData::default()
    })
}

/// Returns true for an event with a time in the future, which no summary covers yet. It would hide all events up to
/// then.
fn is_in_future(event: &Event, now: Timestamp) -> bool {
    event.actions.compaction.is_none() && event.timestamp > now
}

/// Returns the events that no rewind annuls, from the newest to the oldest.
fn newest_first(events: &Vector<Arc<Event>>) -> impl Iterator<Item = &Arc<Event>> {
    rewind::newest_first(events).filter_map(|(event, is_annulled)| (!is_annulled).then_some(event))
}

/// Returns the new invocations once there are `interval` of them, and `overlap` invocations before them. Reads no
/// events before these.
pub(super) fn plan_sliding(
    events: &Vector<Arc<Event>>,
    SlidingWindow { interval, overlap }: SlidingWindow,
) -> Option<CompactionPlan> {
    let mut last_end: Option<Timestamp> = None;
    let mut invocations = HashSet::new();
    let mut overlap_left = overlap;
    let mut window = Vec::new();
    // The number of events in the window since the first one that no summary covers.
    let mut new = 0;
    let now = Timestamp::now();
    for event in newest_first(events).filter(|event| !is_in_future(event, now)) {
        if let Some(compaction) = &event.actions.compaction {
            last_end = last_end.max(Some(compaction.end_timestamp));
            continue;
        }
        let is_new = last_end.is_none_or(|end| event.timestamp > end);
        if !is_new && count(&invocations) < interval.get() {
            return None;
        }
        if !invocations.contains(event.invocation_id.as_str()) {
            if !is_new {
                if overlap_left == 0 {
                    break;
                }
                overlap_left -= 1;
            }
            invocations.insert(event.invocation_id.as_str());
        }
        window.push(event.clone());
        if is_new {
            new = window.len();
        }
    }
    if count(&invocations) < interval.get() {
        return None;
    }
    let first_new = window.len().checked_sub(new)?;
    window.reverse();
    CompactionPlan::new(None, window.get(compactable_range(&window, first_new, window.len())?)?)
}

fn count(invocations: &HashSet<&str>) -> u32 {
    u32::try_from(invocations.len()).unwrap_or(u32::MAX)
}

/// Returns the newest summary and the events since then, except for the newest `retention` events. Reads no events
/// before the end of that summary.
pub(super) fn plan_tail(
    events: &Vector<Arc<Event>>,
    TailRetention { retention, .. }: TailRetention,
) -> Option<CompactionPlan> {
    let mut newest: Option<&Compaction> = None;
    let mut window = Vec::new();
    let now = Timestamp::now();
    for event in newest_first(events).filter(|event| !is_in_future(event, now)) {
        match (&event.actions.compaction, newest) {
            (Some(compaction), None) => newest = Some(compaction),
            (Some(_), Some(_)) => {}
            (None, Some(newest)) if event.timestamp <= newest.end_timestamp => break,
            (None, _) => window.push(event.clone()),
        }
    }
    window.reverse();
    let range = compactable_range(&window, 0, window.len().checked_sub(retention)?)?;
    // Events between the earlier summary and the range are kept, so the new summary cannot cover both.
    let earlier_summary = newest.filter(|_| range.start == 0);
    CompactionPlan::new(earlier_summary, window.get(range)?)
}
