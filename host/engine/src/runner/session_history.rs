//! Rewinds and forks of sessions that this host may be using.

use hatchery_core::{RunError, Session, SessionKey, SessionPoint, StoreError, fork_session};

use super::Runner;

impl Runner {
    /// Removes the events of a session after a point, as
    /// [`SessionService::rewind`](hatchery_core::SessionService::rewind).
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`], [`StoreError::Busy`] while a run of the session is in progress,
    /// [`StoreError::InvalidRequest`] if the session has no such point, and others of the service.
    pub async fn rewind_session(&self, key: &SessionKey, point: &SessionPoint) -> Result<Session, RunError> {
        let mut guard = self.0.queue.try_acquire(key).ok_or_else(|| StoreError::session_in_use(key))?;
        // The last turn of this host is held for a moment, for the next one.
        if let Some(lease) = guard.take().and_then(|cached| cached.last_turn) {
            match lease.end().await {
                Ok(()) | Err(StoreError::Fenced(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let sessions = &*self.0.services.sessions;
        let revision = point.revision(sessions, key).await?;
        Ok(sessions.rewind(key, revision).await?)
    }

    /// Creates a session with the events of another one up to a point, or all of them if it is `None`, as
    /// [`SessionService::fork`](hatchery_core::SessionService::fork).
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`], [`StoreError::SessionExists`], [`StoreError::InvalidRequest`] if the session
    /// has no such point, and others of the service.
    pub async fn fork_session(
        &self,
        key: &SessionKey,
        up_to: Option<&SessionPoint>,
        id: Option<&str>,
    ) -> Result<Session, RunError> {
        Ok(fork_session(&*self.0.services.sessions, key, up_to, id).await?)
    }
}
