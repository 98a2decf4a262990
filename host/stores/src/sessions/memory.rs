//! Sessions in memory.
//!
//! Reading a session shares its events and state, so the cost does not depend on the length of its history, except for
//! [`EventWindow::Since`], which examines the time of every event. Shared state is merged into a session when the
//! session is read, if it has changed since the last time. Each session has its own lock; the maps of sessions and the
//! shared state are locked only during lookups. Nothing is written to disk and nothing is evicted. Of a session that
//! was not used for a minute, unless it is large, only the JSON of the events is kept, so its next use parses it.

mod idle;
mod journal;
mod list;
mod runs;
mod state;
mod stored_session;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hatchery_core::sync::{MutexExt, RwLockExt};
use hatchery_core::{
    CallJournal, Event, EventWindow, ExpiredSession, ExpiryRule, FastHashMap, JsonMap, MAX_TURN_LEASE, RunService,
    Session, SessionCursor, SessionKey, SessionPage, SessionService, SessionUsage, State, StateScope, StateUsage,
    StoreError, Timestamp, TurnOpening, TurnStart, Usage, UserUsage,
};
use imbl::Vector;

use super::{new_session_id, record_bytes, reject_partial, select_window};
use idle::SessionsInUse;
use list::UserList;
use runs::SessionRuns;
use state::{SharedState, add_change, session_keys, set, to_delta};
use stored_session::StoredSession;

/// A [`SessionService`] in memory. Everything is lost when the process ends.
#[derive(Default)]
pub struct MemorySessions {
    sessions: RwLock<FastHashMap<AppAndUser, Arc<UserSessions>>>,
    /// The state of the apps by full keys.
    apps: RwLock<FastHashMap<Arc<str>, SharedState>>,
    /// The state of the users by full keys.
    users: RwLock<FastHashMap<AppAndUser, SharedState>>,
    /// The latest time of creation in microseconds.
    last_created: AtomicI64,
    /// Hashes the ids of events.
    id_hasher: RandomState,
    /// The active background runs, by their time of acceptance; also of sessions that were deleted since.
    background_runs: Mutex<BTreeSet<(Timestamp, SessionKey, String)>>,
    in_use: SessionsInUse,
}

type AppAndUser = (Arc<str>, Arc<str>);

/// The sessions of one user of an app.
#[derive(Default)]
struct UserSessions {
    /// By their ids.
    sessions: RwLock<FastHashMap<Arc<str>, Arc<Mutex<StoredSession>>>>,
    list: Arc<Mutex<UserList>>,
}

impl MemorySessions {
    /// Creates an empty service.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time without use after which only the JSON of a session's events is kept. The default is a minute.
    /// Sessions that are idle are found when others are used.
    #[must_use]
    pub fn with_idle_time(self, idle_time: Duration) -> Self {
        Self { in_use: SessionsInUse::new(idle_time), ..self }
    }

    fn find(&self, key: &SessionKey) -> Option<Arc<Mutex<StoredSession>>> {
        let users = self.sessions.read_unpoisoned();
        let user = users.get(&(key.app.clone(), key.user.clone()))?;
        user.sessions.read_unpoisoned().get(&key.id).cloned()
    }

    fn user(&self, owner: &AppAndUser) -> Option<Arc<UserSessions>> {
        self.sessions.read_unpoisoned().get(owner).cloned()
    }

    fn user_or_new(&self, key: &SessionKey) -> Arc<UserSessions> {
        let owner = (key.app.clone(), key.user.clone());
        self.user(&owner).unwrap_or_else(|| self.sessions.write_unpoisoned().entry(owner).or_default().clone())
    }

    /// Removes the entry of a user without sessions, whose state is empty. An entry that is in use stays, because a
    /// session may be added to it.
    fn forget_user(&self, owner: &AppAndUser) {
        let mut users = self.sessions.write_unpoisoned();
        let is_unused = users.get(owner).is_some_and(|user| {
            Arc::strong_count(user) == 1
                && user.sessions.read_unpoisoned().is_empty()
                && user.list.lock_unpoisoned().usage == UserUsage::default()
        });
        if is_unused {
            users.remove(owner);
        }
    }

    /// Returns a unique time, because the time of creation distinguishes a session from a later one with the same key.
    fn creation_time(&self) -> Timestamp {
        let now = Timestamp::now().as_micros();
        let before = self.last_created.fetch_max(now, Ordering::Relaxed);
        if before < now {
            return Timestamp::from_micros(now);
        }
        Timestamp::from_micros(self.last_created.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Creates a session, which `fill` completes. Returns it without events.
    fn insert(&self, key: SessionKey, fill: impl FnOnce(&mut StoredSession)) -> Result<Session, StoreError> {
        let user = self.user_or_new(&key);
        let created = self.creation_time();
        let session = Session {
            key: key.clone(),
            state: State::default(),
            events: Vector::new(),
            revision: 0,
            created,
            last_update_time: created,
        };
        let stored = Arc::new(Mutex::new(StoredSession {
            session,
            packed: None,
            last_used: Instant::now(),
            is_queued: false,
            initial_state: State::default(),
            merged_versions: (0, 0),
            usage: SessionUsage::default(),
            user_list: user.list.clone(),
            fence: created.as_micros().cast_unsigned(),
            leased_until: None,
            revisions: FastHashMap::default(),
            journals: BTreeMap::new(),
            runs: SessionRuns::default(),
            is_deleted: false,
        }));
        // Locked before others can find it, so that they do not see it without its content.
        let mut new = stored.lock_unpoisoned();
        match user.sessions.write_unpoisoned().entry(key.id.clone()) {
            Entry::Occupied(_) => return Err(StoreError::SessionExists(key)),
            Entry::Vacant(place) => drop(place.insert(stored.clone())),
        }
        user.list.lock_unpoisoned().insert(&key.id, created);
        self.touch(&stored, &mut new);
        fill(&mut new);
        Ok(self.current(&mut new))
    }

    /// Sets the events of a new session and the state that they led to.
    fn fill_fork(&self, new: &mut StoredSession, initial_state: State, own: &State, events: Vector<Arc<Event>>) {
        new.initial_state = initial_state;
        self.apply(new, &to_delta(own));
        new.revisions = idle::revisions(&events, &self.id_hasher);
        new.usage.events = events.len() as u64;
        new.add_event_bytes(event_bytes(&events));
        new.set_events(events);
    }

    fn rewind_to(&self, stored: &mut StoredSession, revision: u64) -> Result<Session, StoreError> {
        if stored.is_held() {
            return Err(StoreError::session_in_use(&stored.session.key));
        }
        stored.unpack(&self.id_hasher);
        let (own, events) = stored.state_at(revision)?;
        let removed = stored.session.events.skip(events.len());
        let mut delta: JsonMap = session_keys(&stored.session.state)
            .iter()
            .map(|(name, _)| (name.to_owned(), serde_json::Value::Null))
            .collect();
        delta.extend(to_delta(&own));
        self.apply(stored, &delta);
        let mut freed = event_bytes(&removed);
        for event in &removed {
            let calls = stored.journals.remove(&event.invocation_id).flatten().unwrap_or_default();
            freed += calls.iter().map(|(call, outcome)| record_bytes(call, outcome.as_deref())).sum::<u64>();
        }
        freed += stored.runs.rewind(revision, &events, &removed);
        stored.add_event_bytes(0_u64.wrapping_sub(freed));
        stored.usage.events = revision;
        stored.revisions.retain(|_, event| *event <= revision);
        stored.fence += 1;
        stored.leased_until = None;
        stored.session.created = self.creation_time();
        stored.set_events(events);
        Ok(self.current(stored))
    }

    /// Applies a delta: keys without a prefix to the session's state, others to the shared state.
    fn apply(&self, stored: &mut StoredSession, delta: &JsonMap) {
        if delta.is_empty() {
            return;
        }
        let before = stored.usage.state;
        let mut user_change = StateUsage::default();
        let Session { key, state, .. } = &mut stored.session;
        for (name, value) in delta {
            match StateScope::split_key(name).0 {
                StateScope::Session => set(state, &mut stored.usage.state, name, value),
                StateScope::User => {
                    let owner = (key.app.clone(), key.user.clone());
                    let mut shared = self.users.write_unpoisoned();
                    let shared = shared.entry(owner).or_default();
                    let before = shared.usage;
                    shared.set(name, value);
                    user_change = add_change(user_change, before, shared.usage);
                }
                StateScope::App => self.apps.write_unpoisoned().entry(key.app.clone()).or_default().set(name, value),
                StateScope::Temp => {}
            }
        }
        let user_change = add_change(user_change, before, stored.usage.state);
        let state = &mut stored.user_list.lock_unpoisoned().usage.state;
        state.keys = state.keys.wrapping_add(user_change.keys);
        state.bytes = state.bytes.wrapping_add(user_change.bytes);
    }

    /// Changes a session under its lock.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if it does not exist, and the errors of `change`.
    fn change<T>(
        &self,
        key: &SessionKey,
        change: impl FnOnce(&mut StoredSession) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.pack_idle();
        let shared = self.find(key).ok_or_else(|| StoreError::SessionNotFound(key.clone()))?;
        let mut stored = shared.lock_unpoisoned();
        if stored.is_deleted {
            return Err(StoreError::SessionNotFound(key.clone()));
        }
        self.touch(&shared, &mut stored);
        change(&mut stored)
    }

    /// Returns the current session, with the events of a window.
    fn read(&self, stored: &mut StoredSession, window: EventWindow) -> Session {
        let session = self.current(stored);
        if !idle::is_empty(window, session.revision) {
            stored.unpack(&self.id_hasher);
        }
        Session { events: select_window(stored.session.events.clone(), window), ..session }
    }

    fn append_to(&self, stored: &mut StoredSession, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        stored.unpack(&self.id_hasher);
        let id_hash = self.id_hasher.hash_one(&event.id);
        if let Some(revision) = stored.revisions.get(&id_hash) {
            let index = usize::try_from(revision - 1).unwrap_or(usize::MAX);
            let other = stored.session.events.get(index);
            let is_repeated = other.is_some_and(|other| Arc::ptr_eq(other, event) || other.json() == event.json());
            return if is_repeated { Ok(*revision) } else { Err(StoreError::EventExists(event.id.clone())) };
        }
        stored.check_fence(fence)?;
        self.apply(stored, &event.actions.state_delta);
        stored.usage.events += 1;
        stored.add_event_bytes(event.json_len() as u64);
        stored.set_update_time(event.timestamp);
        let session = &mut stored.session;
        session.events.push_back(event.clone());
        session.revision += 1;
        stored.revisions.insert(id_hash, session.revision);
        Ok(session.revision)
    }

    /// Updates the shared part of the session's state, and returns the session without events.
    fn current(&self, stored: &mut StoredSession) -> Session {
        let Session { key, state, .. } = &mut stored.session;
        let app = self.apps.read_unpoisoned().get(&key.app).cloned().unwrap_or_default();
        let owner = (key.app.clone(), key.user.clone());
        let user = self.users.read_unpoisoned().get(&owner).cloned().unwrap_or_default();
        let versions = (app.version, user.version);
        if stored.merged_versions != versions {
            state.retain(|name| StateScope::split_key(name).0 == StateScope::Session);
            state.merge(&app.state);
            state.merge(&user.state);
            stored.merged_versions = versions;
        }
        Session {
            key: stored.session.key.clone(),
            state: stored.session.state.clone(),
            events: Vector::new(),
            ..stored.session
        }
    }
}

#[async_trait]
impl SessionService for MemorySessions {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        self.insert(SessionKey::new(app, user, new_session_id(id)), |new| {
            new.initial_state = session_keys(&State::from(&state));
            self.apply(new, &state);
        })
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        self.pack_idle();
        let Some(shared) = self.find(key) else { return Ok(None) };
        let mut stored = shared.lock_unpoisoned();
        if stored.is_deleted {
            return Ok(None);
        }
        self.touch(&shared, &mut stored);
        Ok(Some(self.read(&mut stored, window)))
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        let user = self.user(&(app.into(), user.into())).unwrap_or_default();
        let found: Vec<_> = user.sessions.read_unpoisoned().values().cloned().collect();
        let mut sessions: Vec<Session> = found
            .iter()
            .map(|stored| stored.lock_unpoisoned())
            .filter(|stored| !stored.is_deleted)
            .map(|mut stored| self.current(&mut stored))
            .collect();
        sessions
            .sort_by(|one, other| (other.last_update_time, &one.key.id).cmp(&(one.last_update_time, &other.key.id)));
        Ok(sessions)
    }

    async fn list_page(
        &self,
        app: &str,
        user: &str,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        Ok(self.page(app.into(), user.into(), after, limit))
    }

    async fn list_expired(
        &self,
        app: &str,
        rule: &ExpiryRule,
        limit: usize,
    ) -> Result<Vec<ExpiredSession>, StoreError> {
        Ok(self.find_expired(app, rule, limit))
    }

    fn has_retention(&self) -> bool {
        true
    }

    async fn fork(&self, key: &SessionKey, revision: u64, id: Option<&str>) -> Result<Session, StoreError> {
        let (initial_state, (own, events)) = self.change(key, |stored| {
            stored.unpack(&self.id_hasher);
            Ok((stored.initial_state.clone(), stored.state_at(revision)?))
        })?;
        let fork = SessionKey::new(key.app.clone(), key.user.clone(), new_session_id(id));
        self.insert(fork, |new| self.fill_fork(new, initial_state, &own, events))
    }

    async fn rewind(&self, key: &SessionKey, revision: u64) -> Result<Session, StoreError> {
        self.change(key, |stored| self.rewind_to(stored, revision))
    }

    async fn close_session(&self, _: &SessionKey) -> Result<(), StoreError> {
        Ok(())
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        let owner = (key.app.clone(), key.user.clone());
        let removed = self.user(&owner).and_then(|user| user.sessions.write_unpoisoned().remove(&key.id));
        if let Some(stored) = removed {
            let mut stored = stored.lock_unpoisoned();
            stored.is_deleted = true;
            let (updated, usage) = (stored.session.last_update_time, stored.usage);
            stored.user_list.lock_unpoisoned().remove(&key.id, updated, usage);
            drop(stored);
            self.forget_user(&owner);
        }
        Ok(())
    }

    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        self.change(key, |stored| Ok(stored.begin_turn(previous, lease)))
    }

    async fn open_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
        window: EventWindow,
    ) -> Result<TurnOpening, StoreError> {
        self.change(key, |stored| match stored.begin_turn(previous, lease) {
            TurnStart::Begun(turn) => Ok(TurnOpening::Begun { fence: turn.fence, session: self.read(stored, window) }),
            TurnStart::Held { remaining } => Ok(TurnOpening::Held { remaining }),
        })
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        self.change(key, |stored| {
            stored.check_fence(Some(fence))?;
            stored.leased_until = Some(Instant::now() + lease.min(MAX_TURN_LEASE));
            Ok(())
        })
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        reject_partial(event)?;
        self.change(key, |stored| self.append_to(stored, event, fence))
    }

    fn journal(&self) -> Option<&dyn CallJournal> {
        Some(self)
    }

    fn runs(&self) -> Option<&dyn RunService> {
        Some(self)
    }

    async fn usage(&self, key: &SessionKey) -> Result<Usage, StoreError> {
        let session = self.find(key).map(|stored| stored.lock_unpoisoned().usage).unwrap_or_default();
        let user = self.user(&(key.app.clone(), key.user.clone()));
        let user = user.map(|user| user.list.lock_unpoisoned().usage).unwrap_or_default();
        let app = self.apps.read_unpoisoned().get(&key.app).map(|shared| shared.usage).unwrap_or_default();
        Ok(Usage { session, user, app })
    }
}

fn event_bytes(events: &Vector<Arc<Event>>) -> u64 {
    events.iter().map(|event| event.json_len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_user_without_sessions_and_state_is_forgotten() {
        let service = MemorySessions::new();
        let users = || service.sessions.read_unpoisoned().len();
        for (state, left) in [(json!({"own": 1}), 0), (json!({"user:shared": 1}), 1)] {
            let state: JsonMap = serde_json::from_value(state).unwrap();
            let first = service.create("app", "ada", None, state).await.unwrap();
            let second = service.create("app", "ada", None, JsonMap::new()).await.unwrap();
            service.delete(&first.key).await.unwrap();
            assert_eq!(users(), 1);
            service.delete(&second.key).await.unwrap();
            assert_eq!(users(), left);
        }
        let usage = service.usage(&SessionKey::new("app", "ada", "s")).await.unwrap();
        assert_eq!((usage.user.sessions, usage.user.state.keys), (0, 1));
    }
}
