//! The conversation as one agent's model sees it: a view of the session's events, kept up to date as events arrive.
//!
//! What an agent sees: events of its branch and the branches around it; other agents' events retold by the user; each function call
//! followed by its answers, wherever those came; summaries in place of the events that they stand for; nothing that carries nothing, and
//! nothing of what a person is asked before a tool does something. Reading a new event costs the same however long the history is; only
//! an answer that comes after something else has been said, and a new summary, make the view start over.

mod arrange;
mod visible;

use std::collections::HashMap;
use std::sync::Arc;

use hatchery_core::{CodeFile, Content, Event};
use imbl::Vector;

use crate::history::compaction::{PromptSize, Shown, shown};
use crate::llm::code::{CodeMarkers, PromptRewriter};
use arrange::Arranged;
use visible::{Visible, visible};

/// What is kept of a session's prompts from call to call and from turn to turn.
#[derive(Default)]
pub(crate) struct Views {
    by_agent: HashMap<(Arc<str>, Option<Arc<str>>), View>,
    /// How large they are.
    pub(crate) size: PromptSize,
}

impl Views {
    /// The view of an agent in a branch.
    pub(crate) fn view(&mut self, agent: &Arc<str>, branch: &Option<Arc<str>>, grouping: Grouping) -> &mut View {
        let new = || View::new(agent.clone(), branch.clone(), grouping);
        let view = self.by_agent.entry((agent.clone(), branch.clone())).or_insert_with(new);
        if view.arranged.grouping != grouping {
            *view = new();
        }
        view
    }
}

/// Where the answers of function calls stand that follow each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Grouping {
    /// Each after its own call.
    #[default]
    ByCall,
    /// All of them after the last of the calls.
    ByRow,
}

impl Grouping {
    /// What a run asks for; else what the model wants.
    pub fn of(group_function_responses: Option<bool>, model: &str) -> Self {
        if group_function_responses.unwrap_or_else(|| model.contains("gemini-3")) { Self::ByRow } else { Self::ByCall }
    }
}

/// One agent's view of a session. Clones share what they show.
#[derive(Clone)]
pub struct View {
    agent: Arc<str>,
    branch: Option<Arc<str>>,
    /// How many events have been read.
    read: usize,
    arranged: Arranged,
    /// What the model sees instead while the newest event is an answer to an older call: everything up to that call, and the answer.
    /// The rest comes back when something else is said.
    late_answer: Option<Arranged>,
    /// How code is worded, for an agent whose code the host runs.
    rewording: Option<PromptRewriter>,
}

impl View {
    /// A view that has read nothing yet.
    pub fn new(agent: Arc<str>, branch: Option<Arc<str>>, grouping: Grouping) -> Self {
        Self { agent, branch, read: 0, arranged: Arranged::new(grouping), late_answer: None, rewording: None }
    }

    /// Has the contents worded like this; when that is new, all of them are read anew.
    pub(crate) fn reword(&mut self, wording: Option<CodeMarkers>) {
        if self.rewording.as_ref().map(PromptRewriter::wording) != wording.as_ref() {
            self.forget(wording.map(PromptRewriter::new));
        }
    }

    fn forget(&mut self, rewording: Option<PromptRewriter>) {
        *self = Self { rewording, ..Self::new(self.agent.clone(), self.branch.clone(), self.arranged.grouping) };
    }

    /// Reads the events that are new. `events` are those of the last time and possibly more; with fewer, all of them are read anew.
    pub fn read(&mut self, events: &Vector<Arc<Event>>) {
        if events.len() < self.read {
            let rewording = self.rewording.take().map(PromptRewriter::anew);
            self.forget(rewording);
        }
        // A focus finds its place once and then walks, where `skip` would walk from the beginning.
        let mut focus = events.focus();
        while let Some(event) = focus.get(self.read) {
            self.read += 1;
            if event.actions.compaction.is_some() {
                self.start_over(events);
                break;
            }
            let Some(visible) = self.see(event) else { continue };
            self.late_answer = None;
            if self.arranged.push(visible).is_err() {
                self.start_over(events);
            }
        }
    }

    /// The whole conversation.
    pub fn contents(&self) -> Vector<Arc<Content>> {
        self.shown().contents.clone()
    }

    /// What was said since the user or another agent last spoke. Where a summary stands for that moment too, all since that summary.
    pub fn current_turn(&self) -> Vector<Arc<Content>> {
        let shown = self.shown();
        shown.contents.clone().split_off(shown.turn_start.min(shown.contents.len()))
    }

    /// The data files that are kept out of the contents, oldest first.
    pub(crate) fn data_files(&self) -> &[CodeFile] {
        self.rewording.as_ref().map(PromptRewriter::files).unwrap_or_default()
    }

    /// What the agent sees of the next event.
    fn see(&mut self, event: &Event) -> Option<Visible> {
        let visible = visible(event, &self.agent, self.branch.as_deref());
        let Some(rewording) = &mut self.rewording else { return visible };
        rewording.count(event);
        visible.map(|visible| Visible { content: rewording.reword(visible.content), ..visible })
    }

    fn shown(&self) -> &Arranged {
        self.late_answer.as_ref().unwrap_or(&self.arranged)
    }

    /// Arranges all events anew, since one of them is a summary, or an answer to a call that is not the one before it.
    fn start_over(&mut self, events: &Vector<Arc<Event>>) {
        let grouping = self.arranged.grouping;
        let all = self.visible_now(events);
        self.read = events.len();
        self.late_answer =
            if arrange::ends_in_late_answer(&all, grouping) { arrange::up_to_call(&all, grouping) } else { None };
        self.arranged = arrange::all(&all, grouping);
    }

    /// What the agent sees of all events, summaries in their places.
    fn visible_now(&mut self, events: &Vector<Arc<Event>>) -> Vec<Visible> {
        self.rewording = self.rewording.take().map(PromptRewriter::anew);
        let mut all = Vec::new();
        // A turn whose beginning is summarized begins at the summary.
        let mut hides_turn_start = false;
        for item in shown(events) {
            match item {
                Shown::Event(event) => {
                    let Some(visible) = self.see(event) else { continue };
                    hides_turn_start &= !visible.from_others;
                    all.push(visible);
                }
                Shown::Covered(event) => hides_turn_start |= self.see(event).is_some_and(|it| it.from_others),
                Shown::Summary(compaction) => {
                    let from_others = std::mem::take(&mut hides_turn_start);
                    all.extend(visible::summary(&compaction.compacted_content, from_others));
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
