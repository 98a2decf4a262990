//! What to summarize next.

use std::collections::HashSet;
use std::sync::Arc;

use hatchery_core::{Compaction, Content, Event, EventActions, EventData, Timestamp, USER_AUTHOR};
use imbl::Vector;

use super::cut::stretch;
use super::{Shown, SlidingWindow, TailRetention, shown};

/// Events that one summary is to stand for.
#[derive(Debug)]
pub(super) struct Plan {
    /// What is to be summarized: an earlier summary where the new one takes its place, then events.
    pub(super) events: Vec<Arc<Event>>,
    /// The time of the first.
    pub(super) start: Timestamp,
    /// The time of the last.
    pub(super) end: Timestamp,
}

impl Plan {
    fn new(earlier: Option<&Compaction>, events: &[Arc<Event>]) -> Option<Self> {
        let earlier = earlier.map(as_event);
        let events: Vec<_> = earlier.into_iter().chain(events.iter().cloned()).collect();
        let start = events.iter().map(|event| event.timestamp).min()?;
        let end = events.iter().map(|event| event.timestamp).max()?;
        Some(Self { events, start, end })
    }

    /// True when the summary would hide an event that it is not made of.
    pub(super) fn hides_others(&self, events: &Vector<Arc<Event>>) -> bool {
        let own: HashSet<_> = self.events.iter().map(|event| event.id.as_str()).collect();
        let is_other = |event: &Event| !own.contains(event.id.as_str()) && event.timestamp >= self.start;
        let shown = shown(events);
        shown.iter().any(|item| matches!(item, Shown::Event(event) if is_other(event) && event.timestamp <= self.end))
    }

    /// The event that has the summary stand for the events.
    pub(super) fn compaction(&self, invocation_id: String, summary: Content) -> Arc<Event> {
        let compaction = Compaction {
            start_timestamp: self.start,
            end_timestamp: self.end,
            compacted_content: Content { role: Some("model".into()), ..summary },
            ..Compaction::default()
        };
        let actions = EventActions { compaction: Some(Box::new(compaction)), ..EventActions::default() };
        Event::new(EventData { invocation_id, author: USER_AUTHOR.into(), actions, ..EventData::default() })
    }
}

/// A summary as the event that it would be, at the time at which it begins.
fn as_event(compaction: &Compaction) -> Arc<Event> {
    Event::new(EventData {
        author: "model".into(),
        content: Some(Arc::new(compaction.compacted_content.clone())),
        timestamp: compaction.start_timestamp,
        ..EventData::default()
    })
}

/// Once there are enough new invocations: those, and so many of the ones before that the summaries overlap. Looks back no further.
pub(super) fn sliding(events: &Vector<Arc<Event>>, SlidingWindow { interval, overlap }: SlidingWindow) -> Option<Plan> {
    let mut last_end: Option<Timestamp> = None;
    let mut invocations = HashSet::new();
    let mut left = overlap;
    let mut window = Vec::new();
    // How many of the window's events are not summarized yet.
    let mut new = 0;
    for event in events.iter().rev() {
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
                if left == 0 {
                    break;
                }
                left -= 1;
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
    Plan::new(None, window.get(stretch(&window, first_new, window.len())?)?)
}

fn count(invocations: &HashSet<&str>) -> u32 {
    u32::try_from(invocations.len()).unwrap_or(u32::MAX)
}

/// All since the newest summary but the newest events, together with that summary. Looks back no further than to the summary's end.
pub(super) fn tail(events: &Vector<Arc<Event>>, TailRetention { retention, .. }: TailRetention) -> Option<Plan> {
    let mut newest: Option<&Compaction> = None;
    let mut window = Vec::new();
    for event in events.iter().rev() {
        match (&event.actions.compaction, newest) {
            (Some(compaction), None) => newest = Some(compaction),
            (Some(_), Some(_)) => {}
            (None, Some(newest)) if event.timestamp <= newest.end_timestamp => break,
            (None, _) => window.push(event.clone()),
        }
    }
    window.reverse();
    let stretch = stretch(&window, 0, window.len().checked_sub(retention)?)?;
    // A summary cannot be rolled over what has to stay.
    let earlier = newest.filter(|_| stretch.start == 0);
    Plan::new(earlier, window.get(stretch)?)
}
