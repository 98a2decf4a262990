//! A session service that enforces quotas.
//!
//! An append is checked against cached totals, which count every key that is set as a new one. So they are never less
//! than what this process has stored. The exact totals are read from the service again when the cached ones reach a
//! quota, and every 256 writes. The state itself is read only if the exact totals leave no room.
//!
//! Writes of one user are concurrent as long as the cached totals have room for them: the growth by a write is counted
//! before it is made. A write that needs the exact totals waits for the others of the user, and they wait for it.

mod usage_cache;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    CallJournal, CallRecord, Event, EventWindow, IdKind, JsonMap, RunPage, RunService, RunTransition, Session,
    SessionCursor, SessionKey, SessionPage, SessionService, SessionUsage, State, StoreError, StoredRun, TurnOpening,
    TurnStart, Usage, WrapperSessionService, state_entry_bytes,
};

use super::state_change::StateChange;
use super::tokens::DailyTokens;
use super::{AppQuotas, LiveQuotas, Quota, Quotas, audit};
use crate::keyed_lock::{KeyedLock, KeyedLockGuard, LockMode, MAX_WAIT, busy};
use crate::sessions::{new_session_id, record_bytes};
use usage_cache::{Growth, UsageCache, add_growth};

/// App and user.
type Owner = (Arc<str>, Arc<str>);

/// A [`SessionService`] that enforces quotas. It also rejects names that are too long or contain control characters.
pub struct QuotaSessions {
    inner: Arc<dyn SessionService>,
    quotas: LiveQuotas,
    users: KeyedLock<Owner>,
    apps: KeyedLock<Arc<str>>,
    cache: Mutex<UsageCache>,
    tokens: DailyTokens,
}

/// The write lock of a user and, if the app's state changes, of the app.
struct WriteGuard<'a> {
    _user: KeyedLockGuard<'a, Owner>,
    app: Option<KeyedLockGuard<'a, Arc<str>>>,
}

impl QuotaSessions {
    /// Wraps a service.
    pub fn new(inner: Arc<dyn SessionService>, quotas: Arc<AppQuotas>) -> Self {
        Self::with_live(inner, quotas.into())
    }

    /// Wraps a service, with quotas that can be replaced.
    pub(super) fn with_live(inner: Arc<dyn SessionService>, quotas: LiveQuotas) -> Self {
        let (users, apps) = (KeyedLock::default(), KeyedLock::default());
        Self { inner, quotas, users, apps, cache: Mutex::default(), tokens: DailyTokens::default() }
    }

    /// Locks the writes of the user and, if `changes_app`, of the app's state.
    async fn lock(&self, key: &SessionKey, changes_app: bool, access: LockMode) -> Result<WriteGuard<'_>, StoreError> {
        let user = self.users.acquire((key.app.clone(), key.user.clone()), access, MAX_WAIT).await;
        let user = user.ok_or_else(|| busy("other writes of this user are under way"))?;
        let app = if changes_app {
            let app = self.apps.acquire(key.app.clone(), access, MAX_WAIT).await;
            Some(app.ok_or_else(|| busy("other changes of the app's state are under way"))?)
        } else {
            None
        };
        Ok(WriteGuard { _user: user, app })
    }

    /// Checks that a write fits, and counts it. Returns the expected number of the session's events after it.
    async fn reserve(
        &self,
        key: &SessionKey,
        growth: Growth,
        delta: &JsonMap,
    ) -> Result<(WriteGuard<'_>, u64), StoreError> {
        let changes_app = growth.state.app.keys > 0;
        let quotas = self.quotas.for_app(&key.app);
        let guard = self.lock(key, changes_app, LockMode::Shared).await?;
        if let Some(events) = self.cache().reserve(&quotas, key, growth, &guard) {
            return Ok((guard, events));
        }
        drop(guard);
        let guard = self.lock(key, changes_app, LockMode::Exclusive).await?;
        // The write before may have read the totals.
        if let Some(events) = self.cache().reserve(&quotas, key, growth, &guard) {
            return Ok((guard, events));
        }
        let after = self.add_to_exact(key, growth, delta).await?;
        self.cache().insert_exact(key, after, &guard);
        Ok((guard, after.session.events))
    }

    /// Reads the totals from the service, and returns them after a write.
    async fn add_to_exact(&self, key: &SessionKey, growth: Growth, delta: &JsonMap) -> Result<Usage, StoreError> {
        let quotas = self.quotas.for_app(&key.app);
        let mut usage = self.inner.usage(key).await?;
        if growth.sessions > 0 {
            // The service reports a session that exists already; a new one starts with no usage.
            usage.session = SessionUsage::default();
        }
        let after = add_growth(&quotas, &usage, growth, StateChange::default());
        if after.is_ok() || delta.is_empty() || growth.sessions > 0 {
            return after;
        }
        let state = self.inner.get(key, EventWindow::Recent(0)).await?.map_or_else(State::default, |it| it.state);
        add_growth(&quotas, &usage, growth, StateChange::exact(delta, &state))
    }

    fn cache(&self) -> MutexGuard<'_, UsageCache> {
        self.cache.lock_unpoisoned()
    }

    /// Writes an exceeded quota to the audit log.
    fn audit_denial<T>(key: &SessionKey, result: Result<T, StoreError>) -> Result<T, StoreError> {
        result.inspect_err(|error| audit(error, &key.app, &key.user, &key.id))
    }

    async fn create_checked(&self, key: &SessionKey, state: JsonMap) -> Result<Session, StoreError> {
        check_delta(&self.quotas.for_app(&key.app), &state)?;
        let growth = Growth { sessions: 1, state: StateChange::upper_bound(&state), ..Growth::default() };
        let (guard, _) = self.reserve(key, growth, &state).await?;
        let created = self.inner.create(&key.app, &key.user, Some(&key.id), state).await;
        if created.is_err() {
            self.cache().invalidate(key, &guard);
        }
        created
    }

    /// A fork counts as much as its session: the size of its events alone is not known.
    async fn fork_checked(&self, key: &SessionKey, revision: u64, fork: &SessionKey) -> Result<Session, StoreError> {
        let guard = self.lock(key, false, LockMode::Exclusive).await?;
        let usage = self.inner.usage(key).await?;
        let SessionUsage { event_bytes, state, events } = usage.session;
        let state = StateChange { session: state, ..StateChange::default() };
        // The service refuses a revision that the session does not have.
        let growth = Growth { sessions: 1, events: revision.min(events), event_bytes, state };
        let before = Usage { session: SessionUsage::default(), ..usage };
        let after = add_growth(&self.quotas.for_app(&key.app), &before, growth, StateChange::default())?;
        // Counted before it is made, since a fork can exist although its caller was dropped.
        self.cache().insert_exact(fork, after, &guard);
        let forked = self.inner.fork(key, revision, Some(&fork.id)).await;
        self.cache().invalidate(key, &guard);
        forked
    }

    async fn append_checked(
        &self,
        key: &SessionKey,
        event: &Arc<Event>,
        fence: Option<u64>,
    ) -> Result<u64, StoreError> {
        let delta = &event.actions.state_delta;
        check_delta(&self.quotas.for_app(&key.app), delta)?;
        let event_bytes = event.json().len() as u64;
        let growth = Growth { events: 1, event_bytes, state: StateChange::upper_bound(delta), ..Growth::default() };
        let (guard, expected) = self.reserve(key, growth, delta).await?;
        // Counted before, since an event can be stored although its caller was dropped.
        let tokens = self.tokens.add(key, event);
        let appended = self.inner.append_with(key, event, fence).await;
        // Any other revision means that another process has written too, or that the event was there already.
        if !appended.as_ref().is_ok_and(|revision| *revision == expected) {
            self.cache().invalidate(key, &guard);
            // The model has used the tokens of an event that cannot be stored.
            self.tokens.distrust(key, if appended.is_ok() { tokens } else { 0 });
        }
        appended
    }

    async fn admit_checked(&self, key: &SessionKey, active: usize) -> Result<(), StoreError> {
        let quotas = self.quotas.for_app(&key.app);
        quotas.check(Quota::UserRuns, active as u64)?;
        if quotas.get(Quota::UserTokensPerDay) == 0 {
            return Ok(());
        }
        let used = match self.tokens.used(key) {
            Some(used) => used,
            None => {
                // Events are not appended concurrently, so each is counted once.
                let _guard = self.lock(key, false, LockMode::Exclusive).await?;
                self.tokens.count(&*self.inner, key).await?
            }
        };
        // A quota that is used up leaves nothing for the next run.
        quotas.check(Quota::UserTokensPerDay, used.saturating_add(1))
    }
}

#[async_trait]
impl WrapperSessionService for QuotaSessions {
    fn inner(&self) -> &dyn SessionService {
        &*self.inner
    }

    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        let key = SessionKey::new(app, user, new_session_id(id));
        key.check()?;
        Self::audit_denial(&key, self.create_checked(&key, state).await)
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

    async fn list_page(
        &self,
        app: &str,
        user: &str,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        IdKind::App.check(app)?;
        IdKind::User.check(user)?;
        self.inner.list_page(app, user, after, limit).await
    }

    async fn fork(&self, key: &SessionKey, revision: u64, id: Option<&str>) -> Result<Session, StoreError> {
        let fork = SessionKey::new(key.app.clone(), key.user.clone(), new_session_id(id));
        fork.check()?;
        Self::audit_denial(&fork, self.fork_checked(key, revision, &fork).await)
    }

    async fn rewind(&self, key: &SessionKey, revision: u64) -> Result<Session, StoreError> {
        key.check()?;
        let guard = self.lock(key, false, LockMode::Exclusive).await?;
        let rewound = self.inner.rewind(key, revision).await;
        self.cache().invalidate(key, &guard);
        rewound
    }

    /// Accepts any name, so that sessions whose names are invalid by now can be deleted.
    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        let guard = self.lock(key, false, LockMode::Exclusive).await?;
        let deleted = self.inner.delete(key).await;
        self.cache().invalidate(key, &guard);
        deleted
    }

    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        key.check()?;
        self.inner.begin_turn(key, previous, lease).await
    }

    async fn open_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
        window: EventWindow,
    ) -> Result<TurnOpening, StoreError> {
        key.check()?;
        self.inner.open_turn(key, previous, lease, window).await
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        key.check()?;
        Self::audit_denial(key, self.append_checked(key, event, fence).await)
    }

    async fn admit_run(&self, key: &SessionKey, active: usize) -> Result<(), StoreError> {
        key.check()?;
        Self::audit_denial(key, self.admit_checked(key, active).await)?;
        self.inner.admit_run(key, active).await
    }

    fn journal(&self) -> Option<&dyn CallJournal> {
        self.inner.journal().map(|_| self as &dyn CallJournal)
    }

    fn runs(&self) -> Option<&dyn RunService> {
        self.inner.runs().map(|_| self as &dyn RunService)
    }
}

#[async_trait]
impl CallJournal for QuotaSessions {
    async fn record(&self, session: &SessionKey, run: &str, fence: u64, record: &CallRecord) -> Result<(), StoreError> {
        let Some(journal) = self.inner.journal() else { return Ok(()) };
        let event_bytes = record_bytes(&record.call, record.outcome.as_deref());
        let growth = Growth { event_bytes, ..Growth::default() };
        let reserved = self.reserve(session, growth, &JsonMap::new()).await;
        let (guard, _) = Self::audit_denial(session, reserved)?;
        let recorded = journal.record(session, run, fence, record).await;
        if recorded.is_err() {
            self.cache().invalidate(session, &guard);
        }
        recorded
    }

    async fn read(&self, session: &SessionKey, run: &str) -> Result<Option<Vec<CallRecord>>, StoreError> {
        match self.inner.journal() {
            Some(journal) => journal.read(session, run).await,
            None => Ok(Some(Vec::new())),
        }
    }

    async fn finish(&self, session: &SessionKey, run: &str) -> Result<(), StoreError> {
        match self.inner.journal() {
            Some(journal) => journal.finish(session, run).await,
            None => Ok(()),
        }
    }
}

impl QuotaSessions {
    fn inner_runs(&self) -> Result<&dyn RunService, StoreError> {
        self.inner.runs().ok_or_else(|| StoreError::InvalidRequest("the session service stores no runs".into()))
    }

    /// Writes a run whose texts have at most `event_bytes`.
    async fn write_run<T>(
        &self,
        session: &SessionKey,
        event_bytes: u64,
        write: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let growth = Growth { event_bytes, ..Growth::default() };
        let reserved = self.reserve(session, growth, &JsonMap::new()).await;
        let (guard, _) = Self::audit_denial(session, reserved)?;
        let written = write.await;
        if written.is_err() {
            self.cache().invalidate(session, &guard);
        }
        written
    }
}

/// A run counts as if it had not been stored before, so that nothing needs to be read.
#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl RunService for QuotaSessions {
    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError> {
        self.write_run(&run.session, run.bytes(), self.inner_runs()?.add(run)).await
    }

    async fn start(&self, run: &StoredRun, fence: u64) -> Result<StoredRun, StoreError> {
        self.write_run(&run.session, run.bytes(), self.inner_runs()?.start(run, fence)).await
    }

    /// The end of a run is always stored: its few bytes are not checked.
    async fn change(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        transition: &RunTransition,
    ) -> Result<Option<StoredRun>, StoreError> {
        self.inner_runs()?.change(session, run, fence, transition).await
    }

    async fn start_later(&self, run: &StoredRun, fence: u64) -> Result<(), StoreError> {
        self.write_run(&run.session, run.bytes(), self.inner_runs()?.start_later(run, fence)).await
    }

    async fn change_later(
        &self,
        session: &SessionKey,
        run: &str,
        fence: u64,
        transition: &RunTransition,
    ) -> Result<(), StoreError> {
        self.inner_runs()?.change_later(session, run, fence, transition).await
    }

    async fn get(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, StoreError> {
        self.inner_runs()?.get(session, run).await
    }

    async fn list(&self, session: &SessionKey, from: Option<u64>, limit: usize) -> Result<RunPage, StoreError> {
        self.inner_runs()?.list(session, from, limit).await
    }

    async fn find_running(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        self.inner_runs()?.find_running(session).await
    }

    async fn has_turn(&self, session: &SessionKey) -> Result<bool, StoreError> {
        self.inner_runs()?.has_turn(session).await
    }

    async fn list_interrupted(&self, apps: &[String], limit: usize) -> Result<Vec<StoredRun>, StoreError> {
        self.inner_runs()?.list_interrupted(apps, limit).await
    }
}

/// Checks the size of a delta, including keys that it removes.
fn check_delta(quotas: &Quotas, delta: &JsonMap) -> Result<(), StoreError> {
    quotas.check(Quota::DeltaKeys, delta.len() as u64)?;
    quotas.check(Quota::DeltaBytes, delta.iter().map(|(name, value)| state_entry_bytes(name, value)).sum())
}
