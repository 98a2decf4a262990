//! Effective history of a log with compactions: summaries replace the events that they cover.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use hatchery_core::{Compaction, Event, Timestamp};
use imbl::Vector;

use crate::history::rewind;

/// An item of the effective history.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HistoryItem<'a> {
    /// An event that no summary covers.
    Event(&'a Arc<Event>),
    /// An event that a summary covers. It is not part of prompts.
    Covered(&'a Arc<Event>),
    /// An event that a rewind annuls, or the rewind itself. It is not part of prompts.
    Annulled(&'a Arc<Event>),
    /// A summary. It comes after the last event that is not later than the end of its time range.
    Summary(&'a Compaction),
}

/// Returns the effective history in order.
///
/// A summary covers the events in its time range that come before it in the log. A summary within the range of a later
/// one is omitted; of two overlapping summaries both are included. A summary that ends before it starts is ignored.
pub(crate) fn effective_history(events: &Vector<Arc<Event>>) -> Vec<HistoryItem<'_>> {
    // Iterates from the newest to the oldest event, so that `covered` contains exactly the summaries after each event.
    let mut covered = TimeRanges::default();
    let mut pending: Vec<&Compaction> = Vec::new();
    let mut reversed = Vec::new();
    for (event, is_annulled) in rewind::newest_first(events) {
        if is_annulled {
            reversed.push(HistoryItem::Annulled(event));
            continue;
        }
        if let Some(compaction) = event.actions.compaction.as_deref() {
            if covered.insert(compaction.start_timestamp, compaction.end_timestamp) {
                pending.push(compaction);
            }
            continue;
        }
        take_summaries(&mut pending, Some(event.timestamp), &mut reversed);
        let is_covered = covered.contains(event.timestamp, event.timestamp);
        reversed.push(if is_covered { HistoryItem::Covered(event) } else { HistoryItem::Event(event) });
    }
    take_summaries(&mut pending, None, &mut reversed);
    reversed.reverse();
    reversed
}

/// Moves the summaries that come after an event with this timestamp, or all if there is no earlier event.
fn take_summaries<'a>(
    pending: &mut Vec<&'a Compaction>,
    earlier: Option<Timestamp>,
    reversed: &mut Vec<HistoryItem<'a>>,
) {
    let belongs_here = |compaction: &mut &Compaction| earlier.is_none_or(|time| compaction.end_timestamp >= time);
    let mut here: Vec<_> = pending.extract_if(.., belongs_here).collect();
    // They are in reverse log order, and the sort is stable.
    here.sort_by_key(|compaction| Reverse(compaction.end_timestamp));
    reversed.extend(here.into_iter().map(HistoryItem::Summary));
}

/// Time ranges by their start. No range is within another, so they are also sorted by their end.
#[derive(Debug, Default)]
pub(super) struct TimeRanges(BTreeMap<Timestamp, Timestamp>);

impl TimeRanges {
    /// Returns true if one of the ranges contains `start..=end`.
    pub(super) fn contains(&self, start: Timestamp, end: Timestamp) -> bool {
        self.0.range(..=start).next_back().is_some_and(|(_, last)| *last >= end)
    }

    /// Inserts a range and removes the ranges within it. Returns false if it is within another range or ends before it
    /// starts.
    fn insert(&mut self, start: Timestamp, end: Timestamp) -> bool {
        if start > end || self.contains(start, end) {
            return false;
        }
        let within: Vec<_> =
            self.0.range(start..=end).filter(|(_, last)| **last <= end).map(|(first, _)| *first).collect();
        for first in within {
            self.0.remove(&first);
        }
        self.0.insert(start, end);
        true
    }
}
