//! The artifact usage of users: stored versions, and saves in progress.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use hatchery_core::sync::MutexExt;
use hatchery_core::{ArtifactService, ArtifactUsage, SessionKey, StoreError};

use crate::keyed_lock::{KeyedLock, LockMode, MAX_WAIT, busy};
use crate::quotas::{LiveQuotas, Quota, Quotas};

/// Maximum number of sessions whose totals are cached.
const MAX_CACHED_SESSIONS: usize = 16_384;

/// App and user.
type Owner = (Arc<str>, Arc<str>);

/// Counts artifacts against the quotas: those that are stored, and those that are being saved. Stored artifacts are
/// read from the service once and then cached.
pub(super) struct Ledger {
    inner: Arc<dyn ArtifactService>,
    quotas: LiveQuotas,
    /// The totals of a user are read once at a time.
    reads: KeyedLock<Owner>,
    accounts: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    users: HashMap<Owner, Account>,
    /// Number of cached sessions of all users.
    cached_sessions: usize,
}

/// A user's artifacts in an app.
#[derive(Default)]
struct Account {
    /// The stored artifacts; `None` until they are read.
    stored: Option<Sizes>,
    /// The saves in progress.
    saving: Sizes,
    /// The number of saves in progress.
    saves: usize,
    /// The number of reads of the stored usage in progress.
    readers: usize,
    /// The number of reads that have ended.
    reads: u64,
    /// The number of saves and deletions that have ended.
    changes: u64,
    /// Saves that have ended during a read, which may not have seen them. They count as in progress until it ends.
    ended: Vec<(SessionKey, Totals, bool)>,
}

/// Sizes of a user's artifacts.
#[derive(Debug, Clone, Default)]
struct Sizes {
    all: Totals,
    sessions: HashMap<Arc<str>, Totals>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Totals {
    versions: u64,
    bytes: u64,
}

impl Ledger {
    pub(super) fn new(inner: Arc<dyn ArtifactService>, quotas: LiveQuotas) -> Self {
        Self { inner, quotas, reads: KeyedLock::default(), accounts: Mutex::default() }
    }

    /// Reserves a version with these bytes.
    ///
    /// # Errors
    /// [`StoreError::QuotaExceeded`] if it exceeds the quota together with the stored versions and the saves in
    /// progress. Also the errors of the service.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        session: &SessionKey,
        is_user_scoped: bool,
        bytes: u64,
    ) -> Result<Reservation, StoreError> {
        let mut reservation = Reservation::begin(self.clone(), session.clone(), is_user_scoped);
        reservation.add(Totals { versions: 1, bytes }).await?;
        Ok(reservation)
    }

    /// Records that artifacts of the user were deleted. The stored usage is read again when it is needed.
    pub(super) fn record_deletion(&self, session: &SessionKey) {
        self.accounts().change(session, |account| account.changes += 1);
        self.accounts().forget(session);
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock_unpoisoned()
    }
}

/// A version that is being saved. It counts against the quotas until it is dropped; once it is committed, it counts as
/// stored.
pub(super) struct Reservation {
    ledger: Arc<Ledger>,
    session: SessionKey,
    is_user_scoped: bool,
    size: Totals,
    /// The last known stored usage.
    stored: ArtifactUsage,
    /// The number of reads before the save.
    reads: u64,
    is_committed: bool,
}

impl Reservation {
    fn begin(ledger: Arc<Ledger>, session: SessionKey, is_user_scoped: bool) -> Self {
        let reads = ledger.accounts().change(&session, |account| {
            account.saves += 1;
            account.reads
        });
        let (size, stored) = (Totals::default(), ArtifactUsage::default());
        Self { ledger, session, is_user_scoped, size, stored, reads, is_committed: false }
    }

    /// Adds bytes that are received.
    ///
    /// # Errors
    /// [`StoreError::QuotaExceeded`] if they exceed the quota together with the stored versions and the saves in
    /// progress.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), StoreError> {
        let last_known = self.stored;
        self.try_add(Totals { versions: 0, bytes }, Some(last_known)).map(drop)
    }

    /// Checks the quotas again at the end of a save, whose bytes are counted already: the stored usage may have
    /// changed.
    ///
    /// # Errors
    /// [`StoreError::QuotaExceeded`], and the errors of the service.
    pub(super) async fn check(&mut self) -> Result<(), StoreError> {
        self.add(Totals::default()).await
    }

    /// Counts the version as stored.
    pub(super) fn commit(mut self) {
        self.is_committed = true;
    }

    async fn add(&mut self, size: Totals) -> Result<(), StoreError> {
        if self.try_add(size, None)? {
            return Ok(());
        }
        let (ledger, session) = (self.ledger.clone(), self.session.clone());
        let turn = ledger.reads.acquire(owner(&session), LockMode::Exclusive, MAX_WAIT).await;
        let _turn = turn.ok_or_else(|| busy("the artifacts of this user are being counted"))?;
        if self.try_add(size, None)? {
            return Ok(());
        }
        let read = UsageRead::begin(&ledger, &session);
        let stored = ledger.inner.usage(&session).await?;
        read.record(stored);
        self.try_add(size, Some(stored)).map(drop)
    }

    /// Returns false if the stored usage is unknown: neither cached nor passed as `known`.
    fn try_add(&mut self, size: Totals, known: Option<ArtifactUsage>) -> Result<bool, StoreError> {
        let Self { ledger, session, is_user_scoped, .. } = self;
        let mut accounts = ledger.accounts();
        let Some(account) = accounts.users.get_mut(&owner(session)) else { return Ok(false) };
        let Some(stored) = account.cached_usage(session).or(known) else { return Ok(false) };
        account.check(&ledger.quotas.for_app(&session.app), session, *is_user_scoped, stored, size)?;
        account.saving.add(session, size, *is_user_scoped);
        self.size = self.size + size;
        self.stored = stored;
        Ok(true)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Self { ledger, session, is_user_scoped, size, reads, is_committed, .. } = self;
        let mut accounts = ledger.accounts();
        let is_known = accounts.change(session, |account| {
            account.saves -= 1;
            account.changes += 1;
            if account.readers > 0 {
                account.ended.push((session.clone(), *size, *is_user_scoped));
            } else {
                account.saving.remove(session, *size, *is_user_scoped);
            }
            // A read during the save may or may not have counted it, and so may one after a failure.
            let is_known = *is_committed && account.readers == 0 && account.reads == *reads;
            if is_known && let Some(stored) = &mut account.stored {
                stored.add_cached(session, *size, *is_user_scoped);
            }
            is_known
        });
        if is_known { accounts.remove_idle(session) } else { accounts.forget(session) }
    }
}

/// A read of a user's stored usage.
struct UsageRead<'a> {
    ledger: &'a Ledger,
    session: &'a SessionKey,
    /// The number of changes before it.
    changes: u64,
}

impl<'a> UsageRead<'a> {
    fn begin(ledger: &'a Ledger, session: &'a SessionKey) -> Self {
        let changes = ledger.accounts().change(session, |account| {
            account.readers += 1;
            account.changes
        });
        Self { ledger, session, changes }
    }

    /// Caches the usage that was read, unless it has changed since.
    fn record(&self, usage: ArtifactUsage) {
        let mut accounts = self.ledger.accounts();
        let is_current = accounts.change(self.session, |account| {
            account.reads += 1;
            account.changes == self.changes
        });
        if is_current {
            accounts.cache(self.session, usage);
        }
    }
}

impl Drop for UsageRead<'_> {
    fn drop(&mut self) {
        let mut accounts = self.ledger.accounts();
        accounts.change(self.session, |account| {
            account.readers -= 1;
            if account.readers == 0 {
                for (session, size, is_user_scoped) in std::mem::take(&mut account.ended) {
                    account.saving.remove(&session, size, is_user_scoped);
                }
            }
        });
        accounts.remove_idle(self.session);
    }
}

impl Accounts {
    fn change<T>(&mut self, session: &SessionKey, change: impl FnOnce(&mut Account) -> T) -> T {
        change(self.users.entry(owner(session)).or_default())
    }

    fn cache(&mut self, session: &SessionKey, usage: ArtifactUsage) {
        if self.cached_sessions >= MAX_CACHED_SESSIONS {
            // Totals are read again when they are needed.
            self.users.values_mut().for_each(|account| account.stored = None);
            self.users.retain(|_, account| !account.is_idle());
            self.cached_sessions = 0;
        }
        let account = self.users.entry(owner(session)).or_default();
        let stored = account.stored.get_or_insert_default();
        stored.all = Totals { versions: usage.user_versions, bytes: usage.user_bytes };
        let own = Totals { versions: usage.session_versions, bytes: usage.session_bytes };
        if stored.sessions.insert(session.id.clone(), own).is_none() {
            self.cached_sessions += 1;
        }
    }

    fn forget(&mut self, session: &SessionKey) {
        if let Some(stored) = self.users.get_mut(&owner(session)).and_then(|account| account.stored.take()) {
            self.cached_sessions = self.cached_sessions.saturating_sub(stored.sessions.len());
        }
        self.remove_idle(session);
    }

    fn remove_idle(&mut self, session: &SessionKey) {
        let owner = owner(session);
        if self.users.get(&owner).is_some_and(Account::is_idle) {
            self.users.remove(&owner);
        }
    }
}

impl Account {
    fn is_idle(&self) -> bool {
        self.stored.is_none() && self.saves == 0 && self.readers == 0
    }

    /// Returns the usage of the session and its user, if it is cached.
    fn cached_usage(&self, session: &SessionKey) -> Option<ArtifactUsage> {
        let stored = self.stored.as_ref()?;
        let own = stored.sessions.get(&session.id)?;
        Some(ArtifactUsage {
            session_versions: own.versions,
            session_bytes: own.bytes,
            user_versions: stored.all.versions,
            user_bytes: stored.all.bytes,
        })
    }

    /// Checks the totals of the stored versions, the saves in progress, and a version of this size.
    fn check(
        &self,
        quotas: &Quotas,
        session: &SessionKey,
        is_user_scoped: bool,
        stored: ArtifactUsage,
        size: Totals,
    ) -> Result<(), StoreError> {
        if !is_user_scoped {
            let saving = self.saving.sessions.get(&session.id).copied().unwrap_or_default() + size;
            quotas.check(Quota::SessionArtifacts, stored.session_versions.saturating_add(saving.versions))?;
            quotas.check(Quota::SessionArtifactBytes, stored.session_bytes.saturating_add(saving.bytes))?;
        }
        let saving = self.saving.all + size;
        quotas.check(Quota::UserArtifacts, stored.user_versions.saturating_add(saving.versions))?;
        quotas.check(Quota::UserArtifactBytes, stored.user_bytes.saturating_add(saving.bytes))
    }
}

impl Sizes {
    fn add(&mut self, session: &SessionKey, size: Totals, is_user_scoped: bool) {
        self.all = self.all + size;
        if !is_user_scoped {
            let own = self.sessions.entry(session.id.clone()).or_default();
            *own = *own + size;
        }
    }

    /// As [`Sizes::add`], but only for cached sessions.
    fn add_cached(&mut self, session: &SessionKey, size: Totals, is_user_scoped: bool) {
        self.all = self.all + size;
        if let Some(own) = self.sessions.get_mut(&session.id).filter(|_| !is_user_scoped) {
            *own = *own + size;
        }
    }

    fn remove(&mut self, session: &SessionKey, size: Totals, is_user_scoped: bool) {
        self.all = self.all - size;
        if let Some(own) = self.sessions.get_mut(&session.id).filter(|_| !is_user_scoped) {
            *own = *own - size;
            if *own == Totals::default() {
                self.sessions.remove(&session.id);
            }
        }
    }
}

impl std::ops::Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { versions: self.versions.saturating_add(other.versions), bytes: self.bytes.saturating_add(other.bytes) }
    }
}

impl std::ops::Sub for Totals {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { versions: self.versions.saturating_sub(other.versions), bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

fn owner(session: &SessionKey) -> Owner {
    (session.app.clone(), session.user.clone())
}
