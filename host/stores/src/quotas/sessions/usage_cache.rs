//! Cached totals of users and apps.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use hatchery_core::{FastHashMap, SessionKey, SessionUsage, StateUsage, StoreError, Usage, UserUsage};

use super::{Owner, WriteGuard};
use crate::quotas::state_change::{StateChange, add, subtract};
use crate::quotas::{Quota, Quotas};

/// Number of writes of a user after which the totals are read again, because other processes may have written too.
const MAX_CACHED_WRITES: u32 = 256;

/// Maximum number of sessions whose totals are cached.
const MAX_CACHED_SESSIONS: usize = 16_384;

/// Cached totals, which are at least as large as the totals of the service.
#[derive(Default)]
pub(super) struct UsageCache {
    users: FastHashMap<Owner, CachedUser>,
    apps: FastHashMap<Arc<str>, StateUsage>,
    /// Number of cached sessions of all users.
    sessions: usize,
}

#[derive(Default)]
struct CachedUser {
    usage: UserUsage,
    sessions: FastHashMap<Arc<str>, SessionUsage>,
    writes: u32,
}

/// The usage that a write adds.
#[derive(Clone, Copy, Default)]
pub(super) struct Growth {
    pub(super) sessions: u64,
    pub(super) events: u64,
    pub(super) event_bytes: u64,
    pub(super) state: StateChange,
}

impl UsageCache {
    /// Counts a write. Returns the number of the session's events after it; `None` if the exact totals are needed.
    pub(super) fn reserve(
        &mut self,
        quotas: &Quotas,
        key: &SessionKey,
        growth: Growth,
        guard: &WriteGuard<'_>,
    ) -> Option<u64> {
        let user = self.users.get_mut(&(key.app.clone(), key.user.clone()))?;
        if user.writes >= MAX_CACHED_WRITES {
            return None;
        }
        let app = if guard.app.is_some() { *self.apps.get(&key.app)? } else { StateUsage::default() };
        let session = user.sessions.entry(key.id.clone());
        let before = match &session {
            Entry::Occupied(session) if growth.sessions == 0 => *session.get(),
            Entry::Vacant(_) if growth.sessions > 0 => SessionUsage::default(),
            Entry::Occupied(_) | Entry::Vacant(_) => return None,
        };
        let before = Usage { session: before, user: user.usage, app };
        let after = add_growth(quotas, &before, growth, StateChange::default()).ok()?;
        match session {
            Entry::Occupied(mut session) => *session.get_mut() = after.session,
            Entry::Vacant(session) => {
                session.insert(after.session);
                self.sessions += 1;
            }
        }
        user.usage = after.user;
        user.writes += 1;
        if guard.app.is_some() {
            self.apps.insert(key.app.clone(), after.app);
        }
        Some(after.session.events)
    }

    /// Sets the totals after a write.
    fn update(&mut self, key: &SessionKey, after: Usage, guard: &WriteGuard<'_>) {
        let user = self.users.entry((key.app.clone(), key.user.clone())).or_default();
        user.usage = after.user;
        user.writes += 1;
        if user.sessions.insert(key.id.clone(), after.session).is_none() {
            self.sessions += 1;
        }
        if guard.app.is_some() {
            self.apps.insert(key.app.clone(), after.app);
        }
    }

    /// Sets totals that were read from the service, plus a write.
    pub(super) fn insert_exact(&mut self, key: &SessionKey, after: Usage, guard: &WriteGuard<'_>) {
        if self.sessions >= MAX_CACHED_SESSIONS {
            // Totals are read again when they are needed.
            *self = Self::default();
        }
        if let Some(user) = self.users.get_mut(&(key.app.clone(), key.user.clone())) {
            user.writes = 0;
        }
        self.update(key, after, guard);
    }

    /// Removes totals that may be wrong.
    pub(super) fn invalidate(&mut self, key: &SessionKey, guard: &WriteGuard<'_>) {
        if let Some(user) = self.users.remove(&(key.app.clone(), key.user.clone())) {
            self.sessions = self.sessions.saturating_sub(user.sessions.len());
        }
        if guard.app.is_some() {
            self.apps.remove(&key.app);
        }
    }
}

/// Returns the totals after a write that adds `growth` and removes `replaced`.
///
/// # Errors
/// [`StoreError::QuotaExceeded`] if a total grows beyond its quota.
pub(super) fn add_growth(
    quotas: &Quotas,
    used: &Usage,
    growth: Growth,
    replaced: StateChange,
) -> Result<Usage, StoreError> {
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
