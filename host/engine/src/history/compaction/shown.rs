//! What a log with compactions shows: each event that no summary stands for, and each summary in the place of what it stands for.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use hatchery_core::{Compaction, Event, Timestamp};
use imbl::Vector;

/// One thing that a log says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shown<'a> {
    /// An event that stands for itself.
    Event(&'a Arc<Event>),
    /// An event that a summary stands for. It is hidden.
    Covered(&'a Arc<Event>),
    /// A summary, after the last event that is not later than it.
    Summary(&'a Compaction),
}

/// What the events say now, in order.
///
/// A compaction hides what lies in its time and comes before it in the log. One that lies completely inside a later one is dropped; two
/// that overlap are both shown. One that ends before it begins says nothing.
pub(crate) fn shown(events: &Vector<Arc<Event>>) -> Vec<Shown<'_>> {
    // From the newest to the oldest, so that each event meets exactly the compactions that come after it.
    let mut covered = Stretches::default();
    let mut due: Vec<&Compaction> = Vec::new();
    let mut backwards = Vec::new();
    for event in events.iter().rev() {
        if let Some(compaction) = event.actions.compaction.as_deref() {
            if covered.add(compaction.start_timestamp, compaction.end_timestamp) {
                due.push(compaction);
            }
            continue;
        }
        place(&mut due, Some(event.timestamp), &mut backwards);
        let is_covered = covered.contain(event.timestamp, event.timestamp);
        backwards.push(if is_covered { Shown::Covered(event) } else { Shown::Event(event) });
    }
    place(&mut due, None, &mut backwards);
    backwards.reverse();
    backwards
}

/// Places the summaries that belong after an event of this time; all that are left when there is no earlier event.
fn place<'a>(due: &mut Vec<&'a Compaction>, earlier: Option<Timestamp>, backwards: &mut Vec<Shown<'a>>) {
    let belongs_here = |compaction: &mut &Compaction| earlier.is_none_or(|time| compaction.end_timestamp >= time);
    let mut here: Vec<_> = due.extract_if(.., belongs_here).collect();
    // They come newest first, and the sort is stable.
    here.sort_by_key(|compaction| Reverse(compaction.end_timestamp));
    backwards.extend(here.into_iter().map(Shown::Summary));
}

/// Stretches of time, none inside another, by where they begin. So where one begins later, it ends later too.
#[derive(Debug, Default)]
pub(super) struct Stretches(BTreeMap<Timestamp, Timestamp>);

impl Stretches {
    /// True when one of them holds all from `start` to `end`, both included.
    pub(super) fn contain(&self, start: Timestamp, end: Timestamp) -> bool {
        self.0.range(..=start).next_back().is_some_and(|(_, last)| *last >= end)
    }

    /// Adds a stretch. False when it is in one that is there, or ends before it begins.
    fn add(&mut self, start: Timestamp, end: Timestamp) -> bool {
        if start > end || self.contain(start, end) {
            return false;
        }
        let inside: Vec<_> =
            self.0.range(start..=end).filter(|(_, last)| **last <= end).map(|(first, _)| *first).collect();
        for first in inside {
            self.0.remove(&first);
        }
        self.0.insert(start, end);
        true
    }
}
