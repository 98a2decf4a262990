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
use hatchery_core::state::Scope;
use hatchery_core::{Event, EventWindow, JsonMap, Session, SessionKey, SessionService, State, StoreError, Timestamp};
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
    /// The newest time of creation that was given out, in microseconds.
    newest: AtomicI64,
}

type AppAndUser = (Arc<str>, Arc<str>);

/// State that several sessions share. The version counts its changes.
#[derive(Clone, Default)]
struct Shared {
    state: State,
    version: u64,
}

struct Stored {
    session: Session,
    /// Versions of the app's and the user's state that are merged into the session's.
    merged: (u64, u64),
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
        let Session { key, state, .. } = &mut stored.session;
        for (name, value) in delta {
            match Scope::of(name).0 {
                Scope::Session => state.set(name, value.clone()),
                Scope::User => {
                    let owner = (key.app.clone(), key.user.clone());
                    write(&self.users).entry(owner).or_default().set(name, value);
                }
                Scope::App => write(&self.apps).entry(key.app.clone()).or_default().set(name, value),
                Scope::Temp => {}
            }
        }
    }

    /// Brings the shared part of the session's state up to date and gives the session without events.
    fn current(&self, stored: &mut Stored) -> Session {
        let Session { key, state, .. } = &mut stored.session;
        let app = read(&self.apps).get(&key.app).cloned().unwrap_or_default();
        let owner = (key.app.clone(), key.user.clone());
        let user = read(&self.users).get(&owner).cloned().unwrap_or_default();
        let versions = (app.version, user.version);
        if stored.merged != versions {
            state.retain(|name| Scope::of(name).0 == Scope::Session);
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
        self.state.set(name, value.clone());
        self.version += 1;
    }
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
        let stored = Arc::new(Mutex::new(Stored { session, merged: (0, 0), deleted: false }));
        // Locked before others can find it, so that nobody sees it without its first state.
        let mut new = lock(&stored);
        {
            let mut sessions = write(&self.sessions);
            if sessions.contains_key(&key) {
                return Err(StoreError::SessionExists(key));
            }
            sessions.insert(key, stored.clone());
        }
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
            lock(&stored).deleted = true;
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
        let session = &mut stored.session;
        session.events.push_back(event.clone());
        session.last_update_time = event.timestamp;
        session.revision += 1;
        Ok(session.revision)
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
