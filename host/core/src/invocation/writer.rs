//! The writer of an invocation, which only the event log of the run has.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Invocation;
use crate::content::Content;
use crate::event::Event;
use crate::session::Session;
use crate::state::StateScope;
use crate::sync::RwLockExt;

/// The handle that changes the session and the user's message of one [`Invocation`]. There is one per invocation, and
/// it cannot be cloned: the event log of the run owns it.
pub struct InvocationWriter {
    pub(super) invocation: Arc<Invocation>,
}

/// Events are missing between those that the invocation has seen and the one that was stored: others have written to
/// the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevisionGap {
    /// The last revision that the invocation has seen.
    pub known: u64,
}

impl InvocationWriter {
    /// Returns the invocation.
    pub fn invocation(&self) -> &Arc<Invocation> {
        &self.invocation
    }

    /// Replaces the user's message. Call it before the message is stored.
    pub fn set_user_content(&self, content: Arc<Content>) {
        *self.invocation.user_content.write_unpoisoned() = content;
    }

    /// Adds an event that has no store: an event of an agent which is called as a tool.
    pub fn append_unstored(&self, event: &Arc<Event>) {
        let mut session = self.invocation.write_session();
        session.state.apply(&event.actions.state_delta);
        session.events.push_back(event.clone());
        self.end_with(event);
    }

    /// Adds an event that was stored as `revision`. Returns false if the session has it already.
    ///
    /// # Errors
    /// If there are events before it that the session does not have: it is unchanged, and
    /// [`InvocationWriter::catch_up`] adds them all.
    pub fn append(&self, event: &Arc<Event>, revision: u64) -> Result<bool, RevisionGap> {
        let mut session = self.invocation.write_session();
        if revision <= session.revision {
            return Ok(false);
        }
        if revision != session.revision + 1 {
            return Err(RevisionGap { known: session.revision });
        }
        session.state.apply(&event.actions.state_delta);
        session.last_update_time = event.timestamp;
        session.revision = revision;
        session.events.push_back(event.clone());
        self.end_with(event);
        Ok(true)
    }

    /// Records the end of the run, if the event ends it.
    fn end_with(&self, event: &Event) {
        if event.actions.end_invocation == Some(true) {
            self.invocation.is_ended.store(true, Ordering::Release);
        }
    }

    /// Adds the events of `stored`, which are those after [`RevisionGap::known`], and takes over its state. `temp:`
    /// state is kept, and `own` is added as the object that was stored, not as a copy of it.
    pub fn catch_up(&self, stored: Session, own: &Arc<Event>) {
        let mut session = self.invocation.write_session();
        let mut state = stored.state;
        for (key, value) in session.state.iter().filter(|(key, _)| StateScope::split_key(key).0 == StateScope::Temp) {
            state.set(key, value.clone());
        }
        session.state = state;
        session.revision = stored.revision;
        session.last_update_time = stored.last_update_time;
        for event in stored.events {
            session.events.push_back(if event.id == own.id { own.clone() } else { event });
        }
        self.end_with(own);
    }
}
