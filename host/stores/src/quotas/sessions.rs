//! Sessions behind quotas.
//!
//! An append compares with totals in memory, which count every key that is set as a new one. So they are never too small for what this
//! process stores, and they are read from the service again, which keeps exact ones, when they reach a quota and every 256 writes. Only when
//! exact totals leave no room is the state itself looked at. Writes of one user go one after the other, which makes check and write
//! one step.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hatchery_core::{
    Event, EventWindow, IdKind, JsonMap, Session, SessionKey, SessionService, SessionUsage, State, StateUsage,
    StoreError, Usage, UserUsage, state_entry_bytes,
};

use super::change::{Change, add, subtract};
use super::{AppQuotas, Quota, Quotas, audit};
use crate::queue::{KeyedQueue, MAX_WAIT, QueueGuard, busy};

/// Writes of a user after which the totals are read again: other processes may have written too.
const MAX_CHARGES: u32 = 256;

/// Sessions whose totals are in memory.
const MAX_KNOWN: usize = 16_384;

/// App and user.
type Owner = (Arc<str>, Arc<str>);

/// A [`SessionService`] that refuses what exceeds a quota, and names that are too long or have control characters.
pub struct QuotaSessions {
    inner: Arc<dyn SessionService>,
    quotas: Arc<AppQuotas>,
    users: KeyedQueue<Owner>,
    apps: KeyedQueue<Arc<str>>,
    known: Mutex<Known>,
}

/// Totals that are at least as large as those of the service.
#[derive(Default)]
struct Known {
    users: HashMap<Owner, KnownUser>,
    apps: HashMap<Arc<str>, StateUsage>,
    /// Sessions of all users.
    sessions: usize,
}

#[derive(Default)]
struct KnownUser {
    usage: UserUsage,
    sessions: HashMap<Arc<str>, SessionUsage>,
    charges: u32,
}

/// What a write adds.
#[derive(Clone, Copy, Default)]
struct Growth {
    sessions: u64,
    events: u64,
    event_bytes: u64,
    state: Change,
}

/// The right to write for a user and, if the app's state changes, for the app.
struct Turn<'a> {
    _user: QueueGuard<'a, Owner>,
    app: Option<QueueGuard<'a, Arc<str>>>,
}

impl QuotaSessions {
    /// Puts a service behind quotas.
    pub fn new(inner: Arc<dyn SessionService>, quotas: Arc<AppQuotas>) -> Self {
        Self { inner, quotas, users: KeyedQueue::default(), apps: KeyedQueue::default(), known: Mutex::default() }
    }

    /// Waits until the user's earlier writes, and those to the app's state, are done.
    async fn turn(&self, key: &SessionKey, changes_app: bool) -> Result<Turn<'_>, StoreError> {
        let user = self.users.acquire((key.app.clone(), key.user.clone()), MAX_WAIT).await;
        let user = user.ok_or_else(|| busy("other writes of this user are under way"))?;
        let app = if changes_app {
            let app = self.apps.acquire(key.app.clone(), MAX_WAIT).await;
            Some(app.ok_or_else(|| busy("other changes of the app's state are under way"))?)
        } else {
            None
        };
        Ok(Turn { _user: user, app })
    }

    /// Makes sure that an append fits, and counts it. Returns how many events the session then has, as far as this process knows.
    async fn reserve(
        &self,
        key: &SessionKey,
        growth: Growth,
        delta: &JsonMap,
        turn: &Turn<'_>,
    ) -> Result<u64, StoreError> {
        let quotas = self.quotas.of(&key.app);
        let known = self.known().usage(key, turn);
        if let Some(known) = known
            && let Ok(after) = grown(quotas, &known, growth, Change::default())
        {
            self.known().charge(key, after, turn);
            return Ok(after.session.events);
        }
        let usage = self.inner.usage(key).await?;
        let mut after = grown(quotas, &usage, growth, Change::default());
        if after.is_err() && !delta.is_empty() {
            let state = self.inner.get(key, EventWindow::Recent(0)).await?.map_or_else(State::default, |it| it.state);
            after = grown(quotas, &usage, growth, Change::replaced(delta, &state));
        }
        let after = after?;
        self.known().learn(key, after, turn);
        Ok(after.session.events)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a refusal into the audit log.
    fn audited<T>(key: &SessionKey, result: Result<T, StoreError>) -> Result<T, StoreError> {
        result.inspect_err(|error| audit(error, &key.app, &key.user, &key.id))
    }

    async fn create_checked(&self, key: &SessionKey, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        let quotas = self.quotas.of(&key.app);
        check_delta(quotas, &state)?;
        let growth = Growth { sessions: 1, state: Change::at_most(&state), ..Growth::default() };
        let turn = self.turn(key, growth.state.app.keys > 0).await?;
        // A session that exists is for the service to report; this one begins with nothing.
        let usage = Usage { session: SessionUsage::default(), ..self.inner.usage(key).await? };
        grown(quotas, &usage, growth, Change::default())?;
        let created = self.inner.create(&key.app, &key.user, id, state).await;
        self.known().forget(key, &turn);
        created
    }

    async fn append_checked(&self, key: &SessionKey, event: &Arc<Event>) -> Result<u64, StoreError> {
        let delta = &event.actions.state_delta;
        check_delta(self.quotas.of(&key.app), delta)?;
        let event_bytes = event.json().len() as u64;
        let growth = Growth { events: 1, event_bytes, state: Change::at_most(delta), ..Growth::default() };
        let turn = self.turn(key, growth.state.app.keys > 0).await?;
        let expected = self.reserve(key, growth, delta, &turn).await?;
        let appended = self.inner.append(key, event).await;
        // Any other revision says that another process has written, too.
        if !appended.as_ref().is_ok_and(|revision| *revision == expected) {
            self.known().forget(key, &turn);
        }
        appended
    }
}

#[async_trait]
impl SessionService for QuotaSessions {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        let key = SessionKey::new(app, user, id.unwrap_or_default().trim());
        key.check()?;
        Self::audited(&key, self.create_checked(&key, id, state).await)
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        key.check()?;
        self.inner.get(key, window).await
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        IdKind::App.check(app)?;
        IdKind::User.check(user)?;
        self.inner.list(app, user).await
    }

    /// Takes any name, so that what was stored under one that is refused now can be deleted.
    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        let turn = self.turn(key, false).await?;
        let deleted = self.inner.delete(key).await;
        self.known().forget(key, &turn);
        deleted
    }

    async fn append(&self, key: &SessionKey, event: &Arc<Event>) -> Result<u64, StoreError> {
        key.check()?;
        Self::audited(key, self.append_checked(key, event).await)
    }

    async fn usage(&self, key: &SessionKey) -> Result<Usage, StoreError> {
        self.inner.usage(key).await
    }
}

impl Known {
    /// The totals of a session; `None` if they must be read.
    fn usage(&self, key: &SessionKey, turn: &Turn<'_>) -> Option<Usage> {
        let user = self.users.get(&(key.app.clone(), key.user.clone()))?;
        if user.charges >= MAX_CHARGES {
            return None;
        }
        let app = if turn.app.is_some() { *self.apps.get(&key.app)? } else { StateUsage::default() };
        Some(Usage { session: *user.sessions.get(&key.id)?, user: user.usage, app })
    }

    /// Sets totals that have grown.
    fn charge(&mut self, key: &SessionKey, after: Usage, turn: &Turn<'_>) {
        let user = self.users.entry((key.app.clone(), key.user.clone())).or_default();
        user.usage = after.user;
        user.charges += 1;
        if user.sessions.insert(key.id.clone(), after.session).is_none() {
            self.sessions += 1;
        }
        if turn.app.is_some() {
            self.apps.insert(key.app.clone(), after.app);
        }
    }

    /// Sets totals that were just read, and have grown since.
    fn learn(&mut self, key: &SessionKey, after: Usage, turn: &Turn<'_>) {
        if self.sessions >= MAX_KNOWN {
            // What is needed is read again.
            *self = Self::default();
        }
        if let Some(user) = self.users.get_mut(&(key.app.clone(), key.user.clone())) {
            user.charges = 0;
        }
        self.charge(key, after, turn);
    }

    /// Drops totals that are no longer known.
    fn forget(&mut self, key: &SessionKey, turn: &Turn<'_>) {
        if let Some(user) = self.users.remove(&(key.app.clone(), key.user.clone())) {
            self.sessions = self.sessions.saturating_sub(user.sessions.len());
        }
        if turn.app.is_some() {
            self.apps.remove(&key.app);
        }
    }
}

/// Checks the size of a delta by itself; keys that it removes count too.
fn check_delta(quotas: &Quotas, delta: &JsonMap) -> Result<(), StoreError> {
    quotas.check(Quota::DeltaKeys, delta.len() as u64)?;
    quotas.check(Quota::DeltaBytes, delta.iter().map(|(name, value)| state_entry_bytes(name, value)).sum())
}

/// The totals after a write that also takes `replaced` away.
///
/// # Errors
/// [`StoreError::QuotaExceeded`] if a total grows beyond its quota.
fn grown(quotas: &Quotas, used: &Usage, growth: Growth, replaced: Change) -> Result<Usage, StoreError> {
    let grow = |quota: Quota, before: u64, after: u64| {
        if after > before {
            quotas.check(quota, after)?;
        }
        Ok::<u64, StoreError>(after)
    };
    let state = |[keys, bytes]: [Quota; 2], before: StateUsage, added: StateUsage, removed: StateUsage| {
        let after = subtract(add(before, added), removed);
        grow(keys, before.keys, after.keys)?;
        grow(bytes, before.bytes, after.bytes)?;
        Ok::<StateUsage, StoreError>(after)
    };
    let Growth { sessions, events, event_bytes, state: added } = growth;
    let Usage { session, user, app } = *used;
    Ok(Usage {
        session: SessionUsage {
            state: state(
                [Quota::SessionStateKeys, Quota::SessionStateBytes],
                session.state,
                added.session,
                replaced.session,
            )?,
            events: grow(Quota::SessionEvents, session.events, session.events.saturating_add(events))?,
            event_bytes: grow(
                Quota::SessionBytes,
                session.event_bytes,
                session.event_bytes.saturating_add(event_bytes),
            )?,
        },
        user: UserUsage {
            state: state(
                [Quota::UserStateKeys, Quota::UserStateBytes],
                user.state,
                add(added.session, added.user),
                add(replaced.session, replaced.user),
            )?,
            sessions: grow(Quota::UserSessions, user.sessions, user.sessions.saturating_add(sessions))?,
            event_bytes: grow(Quota::UserBytes, user.event_bytes, user.event_bytes.saturating_add(event_bytes))?,
        },
        app: state([Quota::AppStateKeys, Quota::AppStateBytes], app, added.app, replaced.app)?,
    })
}
