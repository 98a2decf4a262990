//! Access to a session for one turn: the position in the queue of this host, the stored session, and the lease that
//! keeps other hosts out.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, MaybeDone, maybe_done, select};
use futures::poll;
use hatchery_core::{EventWindow, JsonMap, RunError, SessionKey, StoreError, TurnLease, TurnOpening, UptimeInstant};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::RunnerInner;
use super::session_queue::{AcquireSession, CachedSession, SessionGuard};
use crate::tasks::run_to_completion;

/// Polling interval for the end of another host's turn.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A turn's position in the queue of its session.
pub(super) enum QueuePosition {
    /// The turn has the session.
    Acquired(Box<AcquiredSession>),
    /// Other turns are before it.
    Waiting(Pin<Box<MaybeDone<AcquireSession>>>),
}

/// A session that no other turn of this host has.
pub(super) struct AcquiredSession {
    pub(super) cached: CachedSession,
    pub(super) guard: SessionGuard,
    /// The lease of the turn; `None` if another host has a turn of the session.
    pub(super) lease: Option<LeaseGuard>,
}

/// The lease of a turn that has not begun to run. Dropping it ends the turn.
pub(super) struct LeaseGuard {
    runner: Arc<RunnerInner>,
    lease: Arc<TurnLease>,
    is_used: bool,
}

impl LeaseGuard {
    /// Returns the lease for the turn, which ends it.
    pub(super) fn into_lease(mut self) -> Arc<TurnLease> {
        self.is_used = true;
        self.lease.clone()
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        // Without a runtime, the process is about to end.
        if !self.is_used && Handle::try_current().is_ok() {
            self.runner.ended_turns.end_now(self.lease.clone());
        }
    }
}

/// The result of an attempt to open a turn.
enum TurnAccess {
    Begun(Box<CachedSession>, Arc<TurnLease>),
    /// Another host has a turn.
    Held {
        /// Duration of its lease, unless it is renewed.
        remaining: Duration,
    },
}

impl TurnAccess {
    fn begun(cached: CachedSession, lease: Arc<TurnLease>) -> Self {
        Self::Begun(Box::new(CachedSession { last_turn: Some(lease.clone()), ..cached }), lease)
    }
}

impl RunnerInner {
    /// Enters the session's queue, and begins the turn if it is first. Positions are in the order of these calls.
    /// `cancel` is cancelled if the lease is lost.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if there is no such session and `create` is false, and other errors of the
    /// service.
    pub(super) async fn enqueue(
        self: &Arc<Self>,
        key: &SessionKey,
        create: bool,
        cancel: &CancellationToken,
    ) -> Result<QueuePosition, RunError> {
        let mut acquire = Box::pin(maybe_done(self.queue.acquire(key)));
        let _ = poll!(acquire.as_mut());
        if let Some(guard) = acquire.as_mut().take_output() {
            // Run to completion even if the client disconnects, so that the turn is ended.
            let opening = self.clone().open_session(key.clone(), guard, create, cancel.clone());
            return Ok(QueuePosition::Acquired(Box::new(run_to_completion(opening).await?)));
        }
        if !create && self.services.sessions.get(key, EventWindow::Recent(0)).await?.is_none() {
            return Err(StoreError::SessionNotFound(key.clone()).into());
        }
        Ok(QueuePosition::Waiting(acquire))
    }

    /// Waits until the turn is the first of this host.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        key: &SessionKey,
        position: QueuePosition,
        create: bool,
        cancel: &CancellationToken,
    ) -> Result<AcquiredSession, RunError> {
        match position {
            QueuePosition::Acquired(session) => Ok(*session),
            QueuePosition::Waiting(mut acquire) => {
                acquire.as_mut().await;
                let guard = acquire.as_mut().take_output().ok_or(RunError::Cancelled)?;
                run_to_completion(self.clone().open_session(key.clone(), guard, create, cancel.clone())).await
            }
        }
    }

    /// Begins a turn if no other host has one, and returns the session as it is now.
    async fn open_session(
        self: Arc<Self>,
        key: SessionKey,
        mut guard: SessionGuard,
        create: bool,
        cancel: CancellationToken,
    ) -> Result<AcquiredSession, RunError> {
        let mut cached = guard.take();
        let mut access = self.open_turn(&key, &mut cached, &cancel).await;
        if create && matches!(access, Err(RunError::Store(StoreError::SessionNotFound(_)))) {
            self.create_session(&key).await?;
            access = self.open_turn(&key, &mut cached, &cancel).await;
        }
        match access? {
            TurnAccess::Begun(cached, lease) => {
                let lease = Some(LeaseGuard { runner: self, lease, is_used: false });
                Ok(AcquiredSession { cached: *cached, guard, lease })
            }
            TurnAccess::Held { .. } => {
                let cached = self.refresh(&key, cached).await?;
                Ok(AcquiredSession { cached, guard, lease: None })
            }
        }
    }

    /// Creates a session, unless it was created concurrently.
    pub(super) async fn create_session(&self, key: &SessionKey) -> Result<(), StoreError> {
        match self.services.sessions.create(&key.app, &key.user, Some(&key.id), JsonMap::new()).await {
            Ok(_) | Err(StoreError::SessionExists(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits for the end of another host's turn, at most until its lease expires, and begins a turn. Cancelling
    /// `cancel` ends the waiting.
    ///
    /// # Errors
    /// [`RunError::Cancelled`], the errors of the service, and [`StoreError::Busy`] instead of waiting if not `waits`.
    pub(super) async fn wait_for_turn(
        &self,
        key: &SessionKey,
        cached: CachedSession,
        cancel: &CancellationToken,
        waits: bool,
    ) -> Result<(CachedSession, Arc<TurnLease>), RunError> {
        let mut cached = Some(cached);
        loop {
            match self.open_turn(key, &mut cached, cancel).await? {
                TurnAccess::Begun(cached, lease) => return Ok((*cached, lease)),
                TurnAccess::Held { .. } if !waits => return Err(StoreError::session_in_use(key).into()),
                TurnAccess::Held { remaining } => {
                    tracing::debug!(session = %key, ?remaining, "another host has a turn of the session");
                    let waiting = tokio::time::sleep(remaining.min(POLL_INTERVAL));
                    cancel.run_until_cancelled(waiting).await.ok_or(RunError::Cancelled)?;
                }
            }
        }
    }

    /// Begins a turn if no other host has one, and reads the session: of a cached one, the events since. If the last
    /// turn was of this host and its lease is held, the turn takes the lease over, and nothing is stored. Leaves
    /// `cached` as it is if another host has a turn.
    async fn open_turn(
        &self,
        key: &SessionKey,
        cached: &mut Option<CachedSession>,
        cancel: &CancellationToken,
    ) -> Result<TurnAccess, RunError> {
        let held = |cached: &CachedSession| cached.last_turn.clone().filter(|lease| !lease.is_expired());
        if cached.as_ref().and_then(held).is_some() {
            // Read first, because a session that was recreated does not know the lease.
            let refreshed = self.refresh(key, cached.take()).await?;
            if let Some(lease) = held(&refreshed).and_then(|last| last.pass_on(cancel.clone())) {
                return Ok(TurnAccess::begun(refreshed, Arc::new(lease)));
            }
            *cached = Some(refreshed);
        }
        let (acquired, duration) = (UptimeInstant::now(), self.turn_lease());
        let sessions = &self.services.sessions;
        let window = cached.as_ref().map_or(EventWindow::All, CachedSession::missing_events);
        let last_turn = cached.as_ref().and_then(held);
        let previous = last_turn.as_ref().map(|lease| lease.fence());
        let (fence, now) = match sessions.open_turn(key, previous, duration, window).await? {
            TurnOpening::Begun { fence, session } => (fence, session),
            TurnOpening::Held { remaining } => return Ok(TurnAccess::Held { remaining }),
        };
        if let Some(last) = last_turn {
            last.set_replaced();
        }
        let lease = Arc::new(TurnLease::new(sessions.clone(), key.clone(), fence, acquired, duration, cancel.clone()));
        let updated = match cached.take() {
            None => Some(CachedSession::new(now)),
            Some(cached) => cached.update(now),
        };
        if let Some(session) = updated {
            return Ok(TurnAccess::begun(session, lease));
        }
        match self.refresh(key, None).await {
            Ok(session) => Ok(TurnAccess::begun(session, lease)),
            Err(error) => {
                self.ended_turns.end_now(lease);
                Err(error)
            }
        }
    }

    /// Returns the session as the service has it now. Of a cached session, only the events since are read.
    async fn refresh(&self, key: &SessionKey, cached: Option<CachedSession>) -> Result<CachedSession, RunError> {
        let read = async |window| {
            let session = self.services.sessions.get(key, window).await?;
            session.ok_or_else(|| RunError::from(StoreError::SessionNotFound(key.clone())))
        };
        if let Some(cached) = cached {
            let now = read(cached.missing_events()).await?;
            if let Some(cached) = cached.update(now) {
                return Ok(cached);
            }
        }
        Ok(CachedSession::new(read(EventWindow::All).await?))
    }
}

/// Awaits a run, and renews its lease until then.
pub(super) fn renew_during<T>(lease: &TurnLease, run: impl Future<Output = T>) -> impl Future<Output = T> {
    // Boxed, because an asynchronous function keeps a future that it is given twice: as an argument, and where it is
    // polled.
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
