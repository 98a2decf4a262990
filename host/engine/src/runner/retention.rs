//! Deletion of sessions by retention rules.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use hatchery_core::sync::MutexExt;
use hatchery_core::{
    EventWindow, ExpiredSession, ExpiryRule, SessionKey, StoreError, Timestamp, TurnLease, TurnStart, UptimeInstant,
};
use tokio_util::sync::CancellationToken;

use super::session_access::renew_during;
use super::{Runner, RunnerInner};

/// Lease of a session during its deletion.
const DELETION_LEASE: Duration = Duration::from_secs(10);

/// Maximum number of sessions of an app that are deleted at a time.
const MAX_DELETIONS: usize = 100;

/// Maximum number of sessions of an app that are skipped because they were not deleted. A search reads this many more.
const MAX_UNDELETED: usize = 5000;

/// Expired sessions that were not deleted, by app: at most [`MAX_UNDELETED`] each.
pub(super) type UndeletedSessions = HashMap<String, HashSet<SessionKey>>;

impl RunnerInner {
    /// Deletes the artifacts of a session that no longer exists, because nobody could read or delete them any more: one
    /// may be saved while its session is deleted. Returns true if the session does not exist. Returns false, without
    /// looking, if artifacts are kept.
    pub(super) async fn delete_orphaned_artifacts(&self, key: &SessionKey) -> Result<bool, StoreError> {
        let (sessions, artifacts) = (&self.services.sessions, &self.services.artifacts);
        if self.keeps_artifacts.load(Ordering::Relaxed) || sessions.get(key, EventWindow::Recent(0)).await?.is_some() {
            return Ok(false);
        }
        artifacts.delete_all(key).await?;
        Ok(true)
    }
}

impl Runner {
    /// Deletes the artifacts of a session that no longer exists. Call it after an artifact was saved, whose session may
    /// have been deleted meanwhile. Returns true if the session does not exist; false if artifacts are
    /// [kept](Self::with_kept_artifacts).
    ///
    /// # Errors
    /// If the session or the artifacts cannot be read or deleted.
    pub async fn delete_orphaned_artifacts(&self, key: &SessionKey) -> Result<bool, StoreError> {
        self.0.delete_orphaned_artifacts(key).await
    }

    /// Deletes at most 100 sessions of an app that have expired by a rule, with their artifacts unless the runner
    /// [keeps](Self::with_kept_artifacts) them. Sessions that are in use stay. Sessions that could not be deleted are
    /// tried again once no others are left, or once they are 5,000. Each deletion is in the audit log. Returns the
    /// number of deleted sessions.
    ///
    /// # Errors
    /// The errors of the services, and [`StoreError::InvalidRequest`] if the session service has no retention. The
    /// error of a session is returned once the other sessions are deleted.
    pub async fn delete_expired(&self, app: &str, rule: &ExpiryRule) -> Result<usize, StoreError> {
        let mut undeleted = self.0.undeleted.lock_unpoisoned().get(app).cloned().unwrap_or_default();
        // A search finds the least recently used sessions, so those that stay would hide all later ones.
        let limit = MAX_DELETIONS.saturating_add(undeleted.len());
        let mut expired = self.services().sessions.list_expired(app, rule, limit).await?;
        expired.retain(|session| !undeleted.contains(&session.key));
        expired.truncate(MAX_DELETIONS);
        let has_more = expired.len() == MAX_DELETIONS;
        let (mut deleted, mut failure) = (0, None);
        for session in expired {
            match self.delete_if_unused(&session).await {
                Ok(true) => deleted += 1,
                other => {
                    failure = failure.or(other.err());
                    undeleted.insert(session.key);
                }
            }
        }
        let is_full = undeleted.len() >= MAX_UNDELETED;
        if has_more && is_full {
            tracing::warn!(
                app,
                "{} expired sessions are in use or cannot be deleted, and hide those that expired later; delete them with `hatchery \
                 sessions delete`, or see the warnings before for the reason",
                undeleted.len()
            );
        }
        let mut kept = self.0.undeleted.lock_unpoisoned();
        if has_more && !is_full {
            kept.insert(app.to_owned(), undeleted);
        } else {
            kept.remove(app);
        }
        drop(kept);
        failure.map_or(Ok(deleted), Err)
    }

    /// Deletes a session, unless it is in use or has a new event. Returns true if it was deleted.
    async fn delete_if_unused(&self, ExpiredSession { key, updated }: &ExpiredSession) -> Result<bool, StoreError> {
        // Runs of this host wait until the session is deleted.
        let Some(mut guard) = self.0.queue.try_acquire(key) else { return Ok(false) };
        let previous = guard.take().and_then(|cached| cached.last_turn).map(|lease| lease.fence());
        let (sessions, acquired) = (&self.services().sessions, UptimeInstant::now());
        let turn = match sessions.begin_turn(key, previous, DELETION_LEASE).await {
            Ok(TurnStart::Begun(turn)) => turn,
            Ok(TurnStart::Held { .. }) | Err(StoreError::SessionNotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let (fence, cancel) = (turn.fence, CancellationToken::new());
        let lease = TurnLease::new(sessions.clone(), key.clone(), fence, acquired, DELETION_LEASE, cancel);
        let deleted = renew_during(&lease, self.delete_in_turn(&lease, *updated)).await;
        if !matches!(deleted, Ok(true)) {
            // A lease that cannot be ended expires.
            let _ = lease.end().await;
            return deleted;
        }
        let SessionKey { app, user, id } = key;
        let detail = format!("newest event at {}", updated.as_micros());
        tracing::info!(target: "hatchery::audit", %app, %user, session = %id, decision = "deleted", detail, "retention");
        Ok(true)
    }

    /// Deletes the session of a turn, unless it has a new event. Returns true if it was deleted.
    async fn delete_in_turn(&self, lease: &TurnLease, updated: Timestamp) -> Result<bool, StoreError> {
        let (services, key) = (self.services(), lease.session());
        let now = services.sessions.get(key, EventWindow::Recent(0)).await?;
        if now.is_none_or(|now| now.last_update_time != updated) {
            return Ok(false);
        }
        if !self.keeps_artifacts() {
            // First, because no rule finds the artifacts of a session that is not there.
            services.artifacts.delete_all(key).await?;
        }
        lease.ensure().await?;
        services.sessions.delete(key).await?;
        Ok(true)
    }
}
