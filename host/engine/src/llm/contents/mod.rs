//! The conversation as one agent's model sees it: a view of the session's events, kept up to date as events arrive.
//!
//! What an agent sees: events of its branch and the branches around it; other agents' events retold by the user; each function call
//! followed by its answers, wherever those came; nothing that carries nothing. Reading a new event costs the same however long the
//! history is; only an answer that comes after something else has been said makes the view start over.

mod arrange;
mod visible;

use std::collections::HashMap;
use std::sync::Arc;

use hatchery_core::{CodeFile, Content, Event};
use imbl::Vector;

use super::code::{Rewording, Wording};
use arrange::Arranged;
use visible::{Visible, visible};

/// The views of a session, by agent and branch.
pub(crate) type Views = HashMap<(Arc<str>, Option<Arc<str>>), View>;

/// One agent's view of a session.
pub(crate) struct View {
    agent: Arc<str>,
    branch: Option<Arc<str>>,
    /// How many events have been read.
    read: usize,
    arranged: Arranged,
    /// What the model sees instead while the newest event is an answer to an older call: everything up to that call, and the answer.
    /// The rest comes back when something else is said.
    late_answer: Option<Arranged>,
    /// How code is worded, for an agent whose code the host runs.
    rewording: Option<Rewording>,
}

impl View {
    pub(crate) fn new(agent: Arc<str>, branch: Option<Arc<str>>) -> Self {
        Self { agent, branch, read: 0, arranged: Arranged::default(), late_answer: None, rewording: None }
    }

    /// Has the contents worded like this; when that is new, all of them are read anew.
    pub(crate) fn reword(&mut self, wording: Option<Wording>) {
        if self.rewording.as_ref().map(Rewording::wording) != wording.as_ref() {
            self.forget(wording.map(Rewording::new));
        }
    }

    fn forget(&mut self, rewording: Option<Rewording>) {
        *self = Self { rewording, ..Self::new(self.agent.clone(), self.branch.clone()) };
    }

    /// Reads the events that are new.
    pub(crate) fn read(&mut self, events: &Vector<Arc<Event>>) {
        if events.len() < self.read {
            let rewording = self.rewording.take().map(Rewording::anew);
            self.forget(rewording);
        }
        // A focus finds its place once and then walks, where `skip` would walk from the beginning.
        let mut focus = events.focus();
        while let Some(event) = focus.get(self.read) {
            self.read += 1;
            let Some(visible) = self.see(event) else { continue };
            self.late_answer = None;
            if self.arranged.push(visible).is_err() {
                self.start_over(events);
            }
        }
    }

    /// The whole conversation.
    pub(crate) fn contents(&self) -> Vector<Arc<Content>> {
        self.shown().contents.clone()
    }

    /// What was said since the user or another agent last spoke.
    pub(crate) fn current_turn(&self) -> Vector<Arc<Content>> {
        let shown = self.shown();
        shown.contents.clone().split_off(shown.turn_start.min(shown.contents.len()))
    }

    /// The data files that are kept out of the contents, oldest first.
    pub(crate) fn data_files(&self) -> &[CodeFile] {
        self.rewording.as_ref().map(Rewording::files).unwrap_or_default()
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

    /// Arranges all events anew, since one of them is an answer to a call that is not the one before it.
    fn start_over(&mut self, events: &Vector<Arc<Event>>) {
        self.rewording = self.rewording.take().map(Rewording::anew);
        let all: Vec<_> = events.iter().filter_map(|event| self.see(event)).collect();
        self.read = events.len();
        self.late_answer = if arrange::ends_in_late_answer(&all) { arrange::up_to_call(&all) } else { None };
        self.arranged = arrange::all(&all);
    }
}

#[cfg(test)]
mod tests;
