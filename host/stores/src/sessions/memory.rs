//! Sessions in the memory of this process.
//!
//! Reading a session shares its events and state, so its cost does not depend on its history ([`EventWindow::Since`] excepted: it
//! looks at every event's time). State that sessions share is merged into a session when it is read and has changed since the last time.
//! Each session has its own lock; the map of them, and the state that they share, are locked for the length of a look-up. Nothing is
//! written to disk and nothing is evicted.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use hatchery_core::{
    Event, EventWindow, JsonMap, Session, SessionKey, SessionService, SessionUsage, State, StateScope, StateUsage,
    StoreError, Timestamp, Usage, UserUsage, is_state_removal, state_entry_bytes,
};
use imbl::Vector;

use super::{new_session_id, refuse_partial};

/// A [`SessionService`] that forgets everything when the process ends.
#[derive(Default)]
pub struct MemorySessions {
    /// Ordered by key, so that a user's sessions are neighbours.
    sessions: RwLock<BTreeMap<SessionKey, Arc<Mutex<Stored>>>>,
    /// State of the apps, under its full keys.
    apps: RwLock<HashMap<Arc<str>, Shared>>,
    /// State of the users, under its full keys.
    users: RwLock<HashMap<AppAndUser, Shared>>,
    /// What the users' sessions and state take.
    usage: RwLock<HashMap<AppAndUser, UserUsage>>,
    /// The newest time of creation that was given out, in microseconds.
    newest: AtomicI64,
}

type AppAndUser = (Arc<str>, Arc<str>);

/// State that several sessions share. The version counts its changes.
#[derive(Clone, Default)]
struct Shared {
    state: State,
    version: u64,
    usage: StateUsage,
}

struct Stored {
    session: Session,
    /// Versions of the app's and the user's state that are merged into the session's.
    merged: (u64, u64),
    usage: SessionUsage,
    /// Set once no longer in the map, for those who found it there before.
    deleted: bool,
}

impl MemorySessions {
    /// A service without sessions.
    pub fn new() -> Self {
        Self::default()
    }

    fn find(&self, key: &SessionKey) -> Option<Arc<Mutex<Stored>>> {
        read(&self.sessions).get(key).cloned()
    }

    /// Now, but never the same twice: the time of creation tells a session from a later one of the same id.
    fn creation_time(&self) -> Timestamp {
        let now = Timestamp::now().as_micros();
        let before = self.newest.fetch_max(now, Ordering::Relaxed);
        if before < now {
            return Timestamp::from_micros(now);
        }
        Timestamp::from_micros(self.newest.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Applies a delta: the session's own keys to its state, shared ones where every session finds them.
    fn apply(&self, stored: &mut Stored, delta: &JsonMap) {
        let before = stored.usage.state;
        let mut users = StateUsage::default();
        let Session { key, state, .. } = &mut stored.session;
        for (name, value) in delta {
            match StateScope::of(name).0 {
                StateScope::Session => set(state, &mut stored.usage.state, name, value),
                StateScope::User => {
                    let owner = (key.app.clone(), key.user.clone());
                    let mut shared = write(&self.users);
                    let shared = shared.entry(owner).or_default();
                    let before = shared.usage;
                    shared.set(name, value);
                    users = add_change(users, before, shared.usage);
                }
                StateScope::App => write(&self.apps).entry(key.app.clone()).or_default().set(name, value),
                StateScope::Temp => {}
            }
        }
        let users = add_change(users, before, stored.usage.state);
        self.change_usage(&stored.session.key, |usage| {
            usage.state.keys = usage.state.keys.wrapping_add(users.keys);
            usage.state.bytes = usage.state.bytes.wrapping_add(users.bytes);
        });
    }

    fn change_usage(&self, key: &SessionKey, change: impl FnOnce(&mut UserUsage)) {
        change(write(&self.usage).entry((key.app.clone(), key.user.clone())).or_default());
    }

    /// Brings the shared part of the session's state up to date and gives the session without events.
    fn current(&self, stored: &mut Stored) -> Session {
        let Session { key, state, .. } = &mut stored.session;
        let app = read(&self.apps).get(&key.app).cloned().unwrap_or_default();
        let owner = (key.app.clone(), key.user.clone());
        let user = read(&self.users).get(&owner).cloned().unwrap_or_default();
        let versions = (app.version, user.version);
        if stored.merged != versions {
            state.retain(|name| StateScope::of(name).0 == StateScope::Session);
            state.merge(&app.state);
            state.merge(&user.state);
            stored.merged = versions;
        }
        Session {
            key: stored.session.key.clone(),
            state: stored.session.state.clone(),
            events: Vector::new(),
            ..stored.session
        }
    }
}

impl Shared {
    fn set(&mut self, name: &str, value: &serde_json::Value) {
        set(&mut self.state, &mut self.usage, name, value);
        self.version += 1;
    }
}

/// Sets a key, and keeps the totals in step.
fn set(state: &mut State, usage: &mut StateUsage, name: &str, value: &serde_json::Value) {
    if let Some(old) = state.get(name) {
        usage.keys -= 1;
        usage.bytes -= state_entry_bytes(name, old);
    }
    if !is_state_removal(value) {
        usage.keys += 1;
        usage.bytes += state_entry_bytes(name, value);
    }
    state.set(name, value.clone());
}

/// Adds the change from `before` to `after` to a sum of changes, which wraps around where it is negative.
fn add_change(sum: StateUsage, before: StateUsage, after: StateUsage) -> StateUsage {
    let add = |sum: u64, before: u64, after: u64| sum.wrapping_add(after).wrapping_sub(before);
    StateUsage { keys: add(sum.keys, before.keys, after.keys), bytes: add(sum.bytes, before.bytes, after.bytes) }
}

#[async_trait]
impl SessionService for MemorySessions {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        let key = SessionKey::new(app, user, new_session_id(id));
        let created = self.creation_time();
        let session = Session {
            key: key.clone(),
            state: State::default(),
            events: Vector::new(),
            revision: 0,
            created,
            last_update_time: created,
        };
        let stored =
            Arc::new(Mutex::new(Stored { session, merged: (0, 0), usage: SessionUsage::default(), deleted: false }));
        // Locked before others can find it, so that nobody sees it without its first state.
        let mut new = lock(&stored);
        {
            let mut sessions = write(&self.sessions);
            if sessions.contains_key(&key) {
                return Err(StoreError::SessionExists(key));
            }
            sessions.insert(key.clone(), stored.clone());
        }
        self.change_usage(&key, |usage| usage.sessions += 1);
        self.apply(&mut new, &state);
        Ok(self.current(&mut new))
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        let Some(stored) = self.find(key) else { return Ok(None) };
        let mut stored = lock(&stored);
        if stored.deleted {
            return Ok(None);
        }
        let session = self.current(&mut stored);
        let events = stored.session.events.clone();
        drop(stored);
        Ok(Some(Session { events: within(events, window), ..session }))
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        let first = SessionKey::new(app, user, "");
        let found: Vec<_> = read(&self.sessions)
            .range(&first..)
            .take_while(|(key, _)| *key.app == *app && *key.user == *user)
            .map(|(_, stored)| stored.clone())
            .collect();
        let mut sessions: Vec<Session> = found
            .iter()
            .map(|stored| lock(stored))
            .filter(|stored| !stored.deleted)
            .map(|mut stored| self.current(&mut stored))
            .collect();
        // Stable: sessions updated at the same time stay in the order of their ids.
        sessions.sort_by_key(|session| std::cmp::Reverse(session.last_update_time));
        Ok(sessions)
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        let removed = write(&self.sessions).remove(key);
        if let Some(stored) = removed {
            let mut stored = lock(&stored);
            stored.deleted = true;
            let SessionUsage { event_bytes, state, .. } = stored.usage;
            self.change_usage(key, |usage| {
                usage.sessions = usage.sessions.saturating_sub(1);
                usage.event_bytes = usage.event_bytes.saturating_sub(event_bytes);
                usage.state.keys = usage.state.keys.saturating_sub(state.keys);
                usage.state.bytes = usage.state.bytes.saturating_sub(state.bytes);
            });
        }
        Ok(())
    }

    async fn append(&self, key: &SessionKey, event: &Arc<Event>) -> Result<u64, StoreError> {
        refuse_partial(event)?;
        let stored = self.find(key).ok_or_else(|| StoreError::SessionNotFound(key.clone()))?;
        let mut stored = lock(&stored);
        if stored.deleted {
            return Err(StoreError::SessionNotFound(key.clone()));
        }
        self.apply(&mut stored, &event.actions.state_delta);
        let bytes = event.json_len() as u64;
        stored.usage.events += 1;
        stored.usage.event_bytes += bytes;
        self.change_usage(key, |usage| usage.event_bytes += bytes);
        let session = &mut stored.session;
        session.events.push_back(event.clone());
        session.last_update_time = event.timestamp;
        session.revision += 1;
        Ok(session.revision)
    }

    async fn usage(&self, key: &SessionKey) -> Result<Usage, StoreError> {
        let session = self.find(key).map(|stored| lock(&stored).usage).unwrap_or_default();
        let user = read(&self.usage).get(&(key.app.clone(), key.user.clone())).copied().unwrap_or_default();
        let app = read(&self.apps).get(&key.app).map(|shared| shared.usage).unwrap_or_default();
        Ok(Usage { session, user, app })
    }
}

/// The events of a window. Revision `n` is that after the `n`th event, so events can be counted off.
fn within(events: Vector<Arc<Event>>, window: EventWindow) -> Vector<Arc<Event>> {
    match window {
        EventWindow::All => events,
        EventWindow::Recent(count) => events.skip(events.len().saturating_sub(count)),
        EventWindow::Since(time) => events.into_iter().filter(|event| event.timestamp >= time).collect(),
        EventWindow::AfterRevision(revision) => events.skip(usize::try_from(revision).unwrap_or(usize::MAX)),
    }
}

// A panic elsewhere cannot leave half a change behind that would matter here, so a poisoned lock is taken all the same.

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
