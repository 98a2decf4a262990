//! The order in which the sessions of a user are listed, and those that retention rules name.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use hatchery_core::sync::{MutexExt, RwLockExt};
use hatchery_core::{
    ExpiredSession, ExpiryRule, HOST_USER, SessionCursor, SessionKey, SessionPage, SessionUsage, Timestamp, UserUsage,
};

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

    /// Returns up to `limit` positions after one.
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
    /// Reads a page of a list. Sessions that are deleted in between are skipped.
    pub(super) fn page(
        &self,
        app: Arc<str>,
        user: Arc<str>,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> SessionPage {
        // Take one extra entry to learn whether there is a next page.
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

    /// Returns the sessions of an app that have expired by a rule and that no turn holds.
    pub(super) fn find_expired(&self, app: &str, rule: &ExpiryRule, limit: usize) -> Vec<ExpiredSession> {
        let users = self.sessions.read_unpoisoned();
        let of_app = users.iter().filter(|((name, _), _)| **name == *app).map(|(_, user)| user.clone());
        let of_app: Vec<_> = of_app.collect();
        drop(users);
        let of_app = of_app.iter().flat_map(|user| Vec::from_iter(user.sessions.read_unpoisoned().values().cloned()));
        let now = Instant::now();
        let mut by_user: BTreeMap<Arc<str>, Vec<(ExpiredSession, bool)>> = BTreeMap::new();
        for stored in of_app {
            let stored = stored.lock_unpoisoned();
            if !stored.is_deleted && *stored.session.key.user != *HOST_USER {
                let (key, updated) = (stored.session.key.clone(), stored.session.last_update_time);
                let is_held = stored.leased_until.is_some_and(|until| until > now);
                by_user.entry(key.user.clone()).or_default().push((ExpiredSession { key, updated }, is_held));
            }
        }
        let keeps = rule.user_sessions.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
        let mut expired = Vec::new();
        for mut sessions in by_user.into_values() {
            sessions.sort_by(|(one, _), (other, _)| (other.updated, &one.key.id).cmp(&(one.updated, &other.key.id)));
            let is_idle = |updated| rule.idle_since.is_some_and(|since| updated < since);
            let chosen = sessions
                .into_iter()
                .enumerate()
                .filter(|(place, (session, is_held))| !is_held && (*place >= keeps || is_idle(session.updated)));
            expired.extend(chosen.map(|(_, (session, _))| session));
        }
        expired.sort_by_key(|session| session.updated);
        expired.truncate(limit);
        expired
    }
}
