//! The order in which the sessions of a user are listed.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use hatchery_core::sync::MutexExt;
use hatchery_core::{SessionCursor, SessionKey, SessionPage, SessionUsage, Timestamp, UserUsage};

use super::MemorySessions;

/// The order of the sessions of a user in an app, and their usage.
#[derive(Default)]
pub(super) struct UserList {
    /// The time and the id of each, most recently updated first.
    places: BTreeSet<(Reverse<Timestamp>, Arc<str>)>,
    /// The usage of the sessions and of the state that they share.
    pub(super) usage: UserUsage,
}

impl UserList {
    pub(super) fn insert(&mut self, id: &Arc<str>, updated: Timestamp) {
        self.places.insert((Reverse(updated), id.clone()));
        self.usage.sessions += 1;
    }

    /// Moves a session that was updated.
    pub(super) fn move_session(&mut self, id: &Arc<str>, before: Timestamp, updated: Timestamp) {
        self.places.remove(&(Reverse(before), id.clone()));
        self.places.insert((Reverse(updated), id.clone()));
    }

    pub(super) fn remove(
        &mut self,
        id: &Arc<str>,
        updated: Timestamp,
        SessionUsage { event_bytes, state, .. }: SessionUsage,
    ) {
        self.places.remove(&(Reverse(updated), id.clone()));
        let usage = &mut self.usage;
        usage.sessions = usage.sessions.saturating_sub(1);
        usage.event_bytes = usage.event_bytes.saturating_sub(event_bytes);
        usage.state.keys = usage.state.keys.saturating_sub(state.keys);
        usage.state.bytes = usage.state.bytes.saturating_sub(state.bytes);
    }

    /// Returns up to `limit` places after one.
    fn after(&self, after: Option<&SessionCursor>, limit: usize) -> Vec<SessionCursor> {
        let start = match after {
            Some(SessionCursor { updated, id }) => Bound::Excluded((Reverse(*updated), id.clone())),
            None => Bound::Unbounded,
        };
        let places = self.places.range((start, Bound::Unbounded)).take(limit);
        places.map(|(Reverse(updated), id)| SessionCursor { updated: *updated, id: id.clone() }).collect()
    }
}

impl MemorySessions {
    /// Reads a page of a list. Sessions that are deleted meanwhile are left out.
    pub(super) fn page(
        &self,
        app: Arc<str>,
        user: Arc<str>,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> SessionPage {
        // One more, to know whether there is another page.
        let mut places = self
            .user(&(app.clone(), user.clone()))
            .map(|user| user.list.lock_unpoisoned().after(after, limit.saturating_add(1)))
            .unwrap_or_default();
        let has_more = places.len() > limit;
        places.truncate(limit);
        let found = places.iter().filter_map(|place| {
            let stored = self.find(&SessionKey::new(app.clone(), user.clone(), place.id.clone()))?;
            let mut stored = stored.lock_unpoisoned();
            (!stored.is_deleted).then(|| self.current(&mut stored))
        });
        let sessions = found.collect();
        SessionPage { sessions, next: places.pop().filter(|_| has_more) }
    }
}
