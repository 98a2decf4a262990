//! Prompt contents: an incremental view of a session's events for the model of one agent.
//!
//! The view contains the events of the agent's branch and of those above and below it, with these changes:
//! - events of other agents become context in the role of the user;
//! - each function call is followed by its responses, regardless of their position in the log;
//! - a summary replaces the events that it covers;
//! - events that a rewind annuls are omitted;
//! - empty parts and requests for confirmations and credentials are omitted.
//!
//! Adding an event takes constant time, independent of the length of the history. Only a new summary, a rewind, or a
//! response to a call that is no longer open rebuilds the view.

mod code_markers;
mod data_files;
mod pair_calls;
mod visible;

use std::sync::Arc;

use hatchery_core::{CodeFile, Content, Event, FastHashMap, ResponseGrouping};
use imbl::Vector;

use crate::history::compaction::{HistoryItem, PromptSize, effective_history};
use crate::history::rewind;
use code_markers::PromptRewriter;
pub(crate) use code_markers::{CodeMarkers, delimit};
use pair_calls::PairedContents;
use visible::{VisibleContent, visible_to};

/// The views of one session. They are kept from call to call and from turn to turn.
#[derive(Default)]
pub(crate) struct PromptViews {
    by_agent: FastHashMap<(Arc<str>, Option<Arc<str>>), PromptView>,
    pub(crate) size: PromptSize,
}

impl PromptViews {
    /// Returns the number of views.
    pub(crate) fn count(&self) -> usize {
        self.by_agent.len()
    }

    /// Returns the view of an agent in a branch. Creates a new one if the grouping has changed.
    pub(crate) fn view(
        &mut self,
        agent: &Arc<str>,
        branch: &Option<Arc<str>>,
        grouping: ResponseGrouping,
    ) -> &mut PromptView {
        let new = || PromptView::new(agent.clone(), branch.clone(), grouping);
        let view = self.by_agent.entry((agent.clone(), branch.clone())).or_insert_with(new);
        if view.paired.grouping != grouping {
            *view = new();
        }
        view
    }
}

/// The view of one agent. Clones share their contents.
#[derive(Clone)]
pub struct PromptView {
    agent: Arc<str>,
    branch: Option<Arc<str>>,
    /// The number of events that have been read.
    read: usize,
    paired: PairedContents,
    /// Replaces `paired` while the newest event is a response to an older call: everything up to that call, and its
    /// responses. The events since the call are visible again after the next event.
    late_response: Option<PairedContents>,
    /// Set if the host runs the agent's code.
    rewriter: Option<PromptRewriter>,
}

impl PromptView {
    /// Creates a view that has not read any events.
    pub fn new(agent: Arc<str>, branch: Option<Arc<str>>, grouping: ResponseGrouping) -> Self {
        Self { agent, branch, read: 0, paired: PairedContents::new(grouping), late_response: None, rewriter: None }
    }

    /// Sets the markers of code. Clears the view if it has changed.
    pub(crate) fn rewrite_with(&mut self, markers: Option<CodeMarkers>) {
        if self.rewriter.as_ref().map(PromptRewriter::markers) != markers.as_ref() {
            self.reset(markers.map(PromptRewriter::new));
        }
    }

    fn reset(&mut self, rewriter: Option<PromptRewriter>) {
        *self = Self { rewriter, ..Self::new(self.agent.clone(), self.branch.clone(), self.paired.grouping) };
    }

    /// Reads new events. `events` starts with the events of the previous call; if it is shorter, all events are read
    /// again.
    pub fn read(&mut self, events: &Vector<Arc<Event>>) {
        if events.len() < self.read {
            let rewriter = self.rewriter.take().map(PromptRewriter::reset);
            self.reset(rewriter);
        }
        // A focus keeps its position, whereas `skip` would walk from the beginning.
        let mut focus = events.focus();
        while let Some(event) = focus.get(self.read) {
            self.read += 1;
            if event.actions.compaction.is_some() || rewind::is_rewind(event) {
                self.rebuild(events);
                break;
            }
            let Some(visible) = self.visible_content(event) else { continue };
            self.late_response = None;
            if self.paired.push(visible).is_err() {
                self.rebuild(events);
            }
        }
    }

    /// Returns the contents of the whole conversation.
    pub fn contents(&self) -> Vector<Arc<Content>> {
        self.current().contents.clone()
    }

    /// Returns the contents since the last message of the user or of another agent. If a summary covers that message,
    /// returns the contents since the summary.
    pub fn current_turn(&self) -> Vector<Arc<Content>> {
        let PairedContents { contents, turn_start, .. } = self.current();
        contents.clone().split_off((*turn_start).min(contents.len()))
    }

    /// Returns the data files that are not part of the contents, oldest first.
    pub(crate) fn data_files(&self) -> &[CodeFile] {
        self.rewriter.as_ref().map(PromptRewriter::files).unwrap_or_default()
    }

    /// Returns the content of the next event, or `None` if the agent does not see it.
    fn visible_content(&mut self, event: &Event) -> Option<VisibleContent> {
        let visible = visible_to(event, &self.agent, self.branch.as_deref());
        let Some(rewriter) = &mut self.rewriter else { return visible };
        rewriter.count(event);
        visible.map(|visible| VisibleContent { content: rewriter.rewrite(visible.content), ..visible })
    }

    fn current(&self) -> &PairedContents {
        self.late_response.as_ref().unwrap_or(&self.paired)
    }

    /// Reads all events again.
    fn rebuild(&mut self, events: &Vector<Arc<Event>>) {
        let grouping = self.paired.grouping;
        let all = self.visible_history(events);
        self.read = events.len();
        self.late_response = if pair_calls::ends_in_late_response(&all, grouping) {
            pair_calls::pair_up_to_answered_call(&all, grouping)
        } else {
            None
        };
        self.paired = pair_calls::pair_all(&all, grouping);
    }

    /// Returns the contents of all visible events. Summaries replace the events that they cover.
    fn visible_history(&mut self, events: &Vector<Arc<Event>>) -> Vec<VisibleContent> {
        self.rewriter = self.rewriter.take().map(PromptRewriter::reset);
        let mut all = Vec::new();
        // If the start of a turn is covered, the turn starts at the summary.
        let mut covers_turn_start = false;
        for item in effective_history(events) {
            match item {
                HistoryItem::Event(event) => {
                    let Some(visible) = self.visible_content(event) else { continue };
                    covers_turn_start &= !visible.starts_turn;
                    all.push(visible);
                }
                HistoryItem::Covered(event) => {
                    covers_turn_start |= self.visible_content(event).is_some_and(|visible| visible.starts_turn);
                }
                HistoryItem::Annulled(event) => {
                    if let Some(rewriter) = &mut self.rewriter {
                        rewriter.count(event);
                    }
                }
                HistoryItem::Summary(compaction) => {
                    let starts_turn = std::mem::take(&mut covers_turn_start);
                    all.extend(visible::summary_content(&compaction.compacted_content, starts_turn));
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
