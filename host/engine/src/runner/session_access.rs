//! Access to a session for one turn: its place in the queue of this host, the session as the service has it, and the
//! lease that keeps other hosts out.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, MaybeDone, maybe_done, select};
use futures::poll;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    EventWindow, JsonMap, RunError, RunJournal, Session, SessionKey, StoreError, TurnLease, TurnStart, UptimeInstant,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::RunnerInner;
use super::session_queue::{AcquireSession, CachedSession, SessionGuard, json_bytes};

/// Time for which a lease is kept after its turn. A next turn of the same host reuses it, which saves two writes.
const END_DELAY: Duration = Duration::from_millis(50);

/// Polling interval for the end of another host's turn.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

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
                let mut events = cached.session.events.clone();
                let bytes = cached.bytes + json_bytes(&now.events);
                events.append(now.events);
                return Ok(CachedSession { session: Session { events, ..now }, bytes, ..cached });
            }
        }
        let session = sessions.get(key, EventWindow::All).await?.ok_or_else(not_found)?;
        Ok(CachedSession::new(session))
    }

    /// Begins a turn. If the last one was of this host and its lease is held, the turn takes the lease over, and nothing is
    /// stored. Waits while another host has one, at most until that host has not renewed its lease in time. Returns the
    /// session as it is now. Cancelling `run` ends the waiting, and losing the lease cancels `run`.
    ///
    /// # Errors
    /// [`RunError::Cancelled`], the errors of the service, and [`StoreError::Busy`] instead of waiting if not `waits`.
    pub(super) async fn begin_turn(
        &self,
        key: &SessionKey,
        cached: CachedSession,
        run: CancellationToken,
        waits: bool,
    ) -> Result<(CachedSession, Arc<TurnLease>), RunError> {
        if let Some(lease) = cached.last_turn.as_ref().and_then(|last| last.pass_on(run.clone())) {
            return Ok((cached, Arc::new(lease)));
        }
        let sessions = &self.services.sessions;
        loop {
            let (acquired, duration) = (UptimeInstant::now(), self.turn_lease());
            let previous = cached.last_turn.as_ref().map(|lease| lease.fence());
            match sessions.begin_turn(key, previous, duration).await? {
                TurnStart::Begun(turn) => {
                    if let Some(last) = &cached.last_turn {
                        last.set_replaced();
                    }
                    let lease = TurnLease::new(sessions.clone(), key.clone(), turn.fence, acquired, duration, run);
                    let lease = Arc::new(lease);
                    if turn.revision == cached.session.revision {
                        return Ok((cached, lease));
                    }
                    let refreshed = self.refresh(key, Some(cached)).await;
                    return match refreshed {
                        Ok(refreshed) => Ok((refreshed, lease)),
                        Err(error) => {
                            self.end_turn(lease, None);
                            Err(error)
                        }
                    };
                }
                TurnStart::Held { .. } if !waits => return Err(StoreError::session_in_use(key).into()),
                TurnStart::Held { remaining } => {
                    tracing::debug!(session = %key, ?remaining, "another host has a turn of the session");
                    let waiting = tokio::time::sleep(remaining.min(POLL_INTERVAL));
                    run.run_until_cancelled(waiting).await.ok_or(RunError::Cancelled)?;
                }
            }
        }
    }

    /// Ends a turn in the background, for other hosts: the next turn of this one need not wait for it. Deletes the records
    /// of the run if it has finished.
    pub(super) fn end_turn(&self, lease: Arc<TurnLease>, finished: Option<Arc<RunJournal>>) {
        let mut turn_ends = self.turn_ends.lock_unpoisoned();
        while turn_ends.tasks.try_join_next().is_some() {}
        let hurry = turn_ends.hurry.clone();
        turn_ends.tasks.spawn(async move {
            if let Some(journal) = finished
                && let Err(error) = journal.finish().await
            {
                tracing::warn!(code = error.code(), "the journal of a run was not deleted: {error}");
            }
            let _ = hurry.run_until_cancelled(tokio::time::sleep(END_DELAY)).await;
            match lease.end().await {
                // Another turn has begun, or the session was deleted.
                Ok(()) | Err(StoreError::Fenced(_) | StoreError::SessionNotFound(_)) => {}
                Err(error) => tracing::warn!(code = error.code(), "a turn's lease was not ended: {error}"),
            }
        });
    }
}

/// Turns that have ended and are still held for a moment.
#[derive(Default)]
pub(super) struct TurnEndTasks {
    tasks: JoinSet<()>,
    /// Cancelled if the wait for the session should end.
    hurry: CancellationToken,
}

impl TurnEndTasks {
    /// Ends all turns at once.
    pub(super) async fn end_all(self) {
        self.hurry.cancel();
        self.tasks.join_all().await;
    }
}

/// Awaits a run, and renews its lease until then.
pub(super) fn renew_during<T>(lease: &TurnLease, run: impl Future<Output = T>) -> impl Future<Output = T> {
    // Boxed, because an asynchronous function keeps a future that it is given twice: as an argument, and where it is polled.
    let run = Box::pin(run);
    async move {
        let renewals = async {
            while !lease.is_lost() {
                tokio::time::sleep(lease.renewal_interval()).await;
                if let Err(error) = lease.renew().await {
                    tracing::warn!(code = error.code(), "a turn's lease was not renewed: {error}");
                }
            }
        };
        match select(run, pin!(renewals)).await {
            Either::Left((result, _)) => result,
            Either::Right(((), run)) => run.await,
        }
    }
}
