//! Access to a session for one turn: its place in the queue, and the session as the service has it.

use std::pin::Pin;

use futures::future::{MaybeDone, maybe_done};
use futures::poll;
use hatchery_core::{EventWindow, JsonMap, RunError, Session, SessionKey, StoreError};

use super::RunnerInner;
use super::session_queue::{AcquireSession, CachedSession, SessionGuard, json_bytes};

/// A turn's position in the queue of its session.
pub(super) enum QueuePosition {
    /// The turn has the session.
    Acquired(Box<CachedSession>, SessionGuard),
    /// Other turns are before it.
    Waiting(Pin<Box<MaybeDone<AcquireSession>>>),
}

impl RunnerInner {
    /// Enters the session's queue. Positions are in the order of these calls.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if there is no such session and `create` is false, and other errors of the
    /// service.
    pub(super) async fn enqueue(&self, key: &SessionKey, create: bool) -> Result<QueuePosition, RunError> {
        let mut acquire = Box::pin(maybe_done(self.queue.acquire(key)));
        let _ = poll!(acquire.as_mut());
        match acquire.as_mut().take_output() {
            Some(mut guard) => {
                let session = self.refresh_or_create(key, guard.take(), create).await?;
                Ok(QueuePosition::Acquired(Box::new(session), guard))
            }
            None => {
                if !create && self.services.sessions.get(key, EventWindow::Recent(0)).await?.is_none() {
                    return Err(StoreError::SessionNotFound(key.clone()).into());
                }
                Ok(QueuePosition::Waiting(acquire))
            }
        }
    }

    /// Waits until the turn has the session.
    pub(super) async fn acquire(
        &self,
        key: &SessionKey,
        position: QueuePosition,
        create: bool,
    ) -> Result<(CachedSession, SessionGuard), RunError> {
        match position {
            QueuePosition::Acquired(session, guard) => Ok((*session, guard)),
            QueuePosition::Waiting(mut acquire) => {
                acquire.as_mut().await;
                let mut guard = acquire.as_mut().take_output().ok_or(RunError::Cancelled)?;
                let session = self.refresh_or_create(key, guard.take(), create).await?;
                Ok((session, guard))
            }
        }
    }

    async fn refresh_or_create(
        &self,
        key: &SessionKey,
        cached: Option<CachedSession>,
        create: bool,
    ) -> Result<CachedSession, RunError> {
        let refreshed = self.refresh(key, cached).await;
        if !(create && matches!(refreshed, Err(RunError::Store(StoreError::SessionNotFound(_))))) {
            return refreshed;
        }
        match self.services.sessions.create(&key.app, &key.user, Some(&key.id), JsonMap::new()).await {
            Ok(session) => Ok(CachedSession::new(session)),
            // Created by someone else since.
            Err(StoreError::SessionExists(_)) => self.refresh(key, None).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the session as the service has it now. Of a cached session, only the events since are read.
    async fn refresh(&self, key: &SessionKey, cached: Option<CachedSession>) -> Result<CachedSession, RunError> {
        let sessions = &self.services.sessions;
        let not_found = || RunError::from(StoreError::SessionNotFound(key.clone()));
        if let Some(cached) = cached {
            let window = EventWindow::AfterRevision(cached.session.revision);
            let now = sessions.get(key, window).await?.ok_or_else(not_found)?;
            if now.created == cached.session.created && now.revision >= cached.session.revision {
                let mut events = cached.session.events;
                let bytes = cached.bytes + json_bytes(&now.events);
                events.append(now.events);
                return Ok(CachedSession { session: Session { events, ..now }, views: cached.views, bytes });
            }
        }
        let session = sessions.get(key, EventWindow::All).await?.ok_or_else(not_found)?;
        Ok(CachedSession::new(session))
    }
}
