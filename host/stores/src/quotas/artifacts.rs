//! An artifact service that enforces quotas. The totals of a session are read from the service once and then cached.
//! Saves of other processes are noticed when the totals are read again, after a deletion or a failure.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    ArtifactService, ArtifactStream, ArtifactUsage, Blob, ByteStream, IdKind, Part, PartData, SessionKey, StoreError,
};

use super::{AppQuotas, Quota, Quotas, audit};
use crate::keyed_lock::{KeyedLock, KeyedLockGuard, LockMode, MAX_WAIT, busy};

/// Maximum number of sessions whose totals are cached.
const MAX_CACHED_SESSIONS: usize = 16_384;

/// App and user.
type Owner = (Arc<str>, Arc<str>);

/// Versions and bytes.
type Totals = (u64, u64);

/// An [`ArtifactService`] that rejects saves that exceed a quota, and names that are too long or contain control
/// characters.
pub struct QuotaArtifacts {
    inner: Arc<dyn ArtifactService>,
    quotas: Arc<AppQuotas>,
    users: KeyedLock<Owner>,
    cache: Mutex<UsageCache>,
}

#[derive(Default)]
struct UsageCache {
    users: HashMap<Owner, CachedUser>,
    /// Number of cached sessions of all users.
    sessions: usize,
}

#[derive(Default)]
struct CachedUser {
    all: Totals,
    sessions: HashMap<Arc<str>, Totals>,
}

impl QuotaArtifacts {
    /// Wraps a service.
    pub fn new(inner: Arc<dyn ArtifactService>, quotas: Arc<AppQuotas>) -> Self {
        Self { inner, quotas, users: KeyedLock::default(), cache: Mutex::default() }
    }

    /// Waits for earlier writes of the user.
    async fn lock_for_write(&self, session: &SessionKey) -> Result<KeyedLockGuard<'_, Owner>, StoreError> {
        let guard =
            self.users.acquire((session.app.clone(), session.user.clone()), LockMode::Exclusive, MAX_WAIT).await;
        guard.ok_or_else(|| busy("other artifacts of this user are being saved"))
    }

    async fn save_checked(&self, session: &SessionKey, name: &str, part: &Part) -> Result<u64, StoreError> {
        let bytes = part.stored_bytes();
        let _guard = self.lock_for_write(session).await?;
        let used = self.totals(session).await?;
        let after = add_version(self.quotas.of(&session.app), used, bytes, name.starts_with("user:"))?;
        let result = self.inner.save(session, name, part).await;
        let mut cache = self.cache();
        match &result {
            Ok(_) => cache.insert(session, after),
            Err(_) => cache.invalidate(session),
        }
        result
    }

    /// As [`QuotaArtifacts::save_checked`]. Other saves of the user wait only while the end of the stream is saved, so its
    /// bytes are counted then, too.
    async fn save_stream_checked(
        &self,
        session: &SessionKey,
        name: &str,
        mime_type: &str,
        bytes: ByteStream<'_>,
    ) -> Result<u64, StoreError> {
        let (quotas, is_users) = (self.quotas.of(&session.app), name.starts_with("user:"));
        let used = self.totals(session).await?;
        let blob = Blob { mime_type: mime_type.to_owned(), ..Blob::default() };
        let empty = Part::from(PartData::InlineData(blob)).stored_bytes();
        add_version(quotas, used, empty, is_users)?;
        let end = Mutex::new(None);
        let at_end = &end;
        let counted = stream::try_unfold((bytes, empty), move |(mut bytes, mut size)| async move {
            if let Some(chunk) = bytes.try_next().await? {
                size += chunk.len() as u64;
                add_version(quotas, used, size, is_users)?;
                return Ok(Some((chunk, (bytes, size))));
            }
            let guard = self.lock_for_write(session).await?;
            let after = add_version(quotas, self.totals(session).await?, size, is_users)?;
            *at_end.lock_unpoisoned() = Some((guard, after));
            Ok::<_, StoreError>(None)
        });
        let result = self.inner.save_stream(session, name, mime_type, counted.boxed()).await;
        let end = end.lock_unpoisoned().take();
        let mut cache = self.cache();
        match (&result, &end) {
            (Ok(_), Some((_guard, after))) => cache.insert(session, *after),
            (Ok(_), None) | (Err(_), _) => cache.invalidate(session),
        }
        result
    }

    /// Returns the usage of the session and of its user.
    async fn totals(&self, session: &SessionKey) -> Result<ArtifactUsage, StoreError> {
        let cached = self.cache().usage(session);
        match cached {
            Some(usage) => Ok(usage),
            None => self.inner.usage(session).await,
        }
    }

    fn cache(&self) -> MutexGuard<'_, UsageCache> {
        self.cache.lock_unpoisoned()
    }
}

#[async_trait]
impl ArtifactService for QuotaArtifacts {
    async fn save(&self, session: &SessionKey, name: &str, part: &Part) -> Result<u64, StoreError> {
        check(session, name)?;
        let result = self.save_checked(session, name, part).await;
        result.inspect_err(|error| audit(error, &session.app, &session.user, &session.id))
    }

    async fn load(&self, session: &SessionKey, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError> {
        check(session, name)?;
        self.inner.load(session, name, version).await
    }

    async fn save_stream(
        &self,
        session: &SessionKey,
        name: &str,
        mime_type: &str,
        bytes: ByteStream<'_>,
    ) -> Result<u64, StoreError> {
        check(session, name)?;
        let result = self.save_stream_checked(session, name, mime_type, bytes).await;
        result.inspect_err(|error| audit(error, &session.app, &session.user, &session.id))
    }

    async fn load_stream(
        &self,
        session: &SessionKey,
        name: &str,
        version: Option<u64>,
    ) -> Result<Option<ArtifactStream>, StoreError> {
        check(session, name)?;
        self.inner.load_stream(session, name, version).await
    }

    async fn list(&self, session: &SessionKey) -> Result<Vec<String>, StoreError> {
        session.check()?;
        self.inner.list(session).await
    }

    async fn versions(&self, session: &SessionKey, name: &str) -> Result<Vec<u64>, StoreError> {
        check(session, name)?;
        self.inner.versions(session, name).await
    }

    /// Accepts any name, so that artifacts whose names are invalid by now can be deleted.
    async fn delete(&self, session: &SessionKey, name: &str) -> Result<(), StoreError> {
        let _guard = self.lock_for_write(session).await?;
        let deleted = self.inner.delete(session, name).await;
        self.cache().invalidate(session);
        deleted
    }

    async fn usage(&self, session: &SessionKey) -> Result<ArtifactUsage, StoreError> {
        self.inner.usage(session).await
    }
}

impl UsageCache {
    fn usage(&self, session: &SessionKey) -> Option<ArtifactUsage> {
        let user = self.users.get(&(session.app.clone(), session.user.clone()))?;
        let (session_versions, session_bytes) = *user.sessions.get(&session.id)?;
        let (user_versions, user_bytes) = user.all;
        Some(ArtifactUsage { session_versions, session_bytes, user_versions, user_bytes })
    }

    fn insert(&mut self, session: &SessionKey, usage: ArtifactUsage) {
        if self.sessions >= MAX_CACHED_SESSIONS {
            // Totals are read again when they are needed.
            *self = Self::default();
        }
        let user = self.users.entry((session.app.clone(), session.user.clone())).or_default();
        user.all = (usage.user_versions, usage.user_bytes);
        let totals = (usage.session_versions, usage.session_bytes);
        if user.sessions.insert(session.id.clone(), totals).is_none() {
            self.sessions += 1;
        }
    }

    fn invalidate(&mut self, session: &SessionKey) {
        if let Some(user) = self.users.remove(&(session.app.clone(), session.user.clone())) {
            self.sessions = self.sessions.saturating_sub(user.sessions.len());
        }
    }
}

fn check(session: &SessionKey, name: &str) -> Result<(), StoreError> {
    session.check()?;
    Ok(IdKind::Artifact.check(name)?)
}

/// Returns the totals after saving a version of this size.
fn add_version(quotas: &Quotas, used: ArtifactUsage, bytes: u64, is_users: bool) -> Result<ArtifactUsage, StoreError> {
    let mut after = used;
    if !is_users {
        after.session_versions += 1;
        after.session_bytes = after.session_bytes.saturating_add(bytes);
        quotas.check(Quota::SessionArtifacts, after.session_versions)?;
        quotas.check(Quota::SessionArtifactBytes, after.session_bytes)?;
    }
    after.user_versions += 1;
    after.user_bytes = after.user_bytes.saturating_add(bytes);
    quotas.check(Quota::UserArtifacts, after.user_versions)?;
    quotas.check(Quota::UserArtifactBytes, after.user_bytes)?;
    Ok(after)
}
