//! Turns of a session: the fence, which lets only one host write to a session at a time, and the lease, the time
//! for which a host may act without asking.
//!
//! The fence is a number in the stored session that grows with every lease. It makes writing safe: once a turn with a
//! newer lease has begun, the events of the earlier turn are refused. The lease makes it rare that the earlier turn
//! still has effects outside of the session. A host that was suspended sees by its own clock that its lease has
//! expired, and asks the store before it continues.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::StoreError;
use crate::event::Event;
use crate::id::SessionKey;
use crate::journal::{CallJournal, CallRecord};
use crate::session::{Session, SessionService};
use crate::sync::MutexExt;
use crate::time::UptimeInstant;

/// The longest lease of a turn. A stored lease that ends later is taken for the result of a clock that was set back.
pub const MAX_TURN_LEASE: Duration = Duration::from_secs(60);

/// A turn that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The number of the turn, which its appends carry.
    pub fence: u64,
    /// The session's revision when the turn began.
    pub revision: u64,
}

/// The result of [`SessionService::begin_turn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnStart {
    /// The turn has begun.
    Begun(Turn),
    /// Another turn is in progress.
    Held {
        /// Duration of its lease, unless it is renewed.
        remaining: Duration,
    },
}

/// The result of [`SessionService::open_turn`].
#[derive(Debug, Clone)]
pub enum TurnOpening {
    /// The turn has begun.
    Begun {
        /// The number of the turn, which its appends carry.
        fence: u64,
        /// The session when the turn began, with the events of the requested window.
        session: Session,
    },
    /// Another turn is in progress.
    Held {
        /// Duration of its lease, unless it is renewed.
        remaining: Duration,
    },
}

impl TurnOpening {
    /// Completes the start of a turn with the session that `read` returns. If that fails, ends the turn by `end`.
    ///
    /// # Errors
    /// The errors of `read`, and [`StoreError::SessionNotFound`] if it returns `None`.
    pub async fn complete<E: Future<Output = Result<(), StoreError>>>(
        key: &SessionKey,
        start: TurnStart,
        read: impl Future<Output = Result<Option<Session>, StoreError>>,
        end: impl FnOnce(u64) -> E,
    ) -> Result<Self, StoreError> {
        let fence = match start {
            TurnStart::Begun(turn) => turn.fence,
            TurnStart::Held { remaining } => return Ok(Self::Held { remaining }),
        };
        let error = match read.await {
            Ok(Some(session)) => return Ok(Self::Begun { fence, session }),
            Ok(None) => StoreError::SessionNotFound(key.clone()),
            Err(error) => error,
        };
        // A lease that cannot be ended expires.
        let _ = end(fence).await;
        Err(error)
    }
}

/// The lease of a turn. It counts by the clock of this host, from before the request that acquired or renewed it.
pub struct TurnLease {
    sessions: Arc<dyn SessionService>,
    key: SessionKey,
    fence: u64,
    duration: Duration,
    /// When the lease was acquired or renewed.
    renewed: Mutex<UptimeInstant>,
    /// True once another turn has begun.
    is_lost: AtomicBool,
    /// Cancelled once another turn has begun.
    cancel: CancellationToken,
    /// [`HELD`], [`PASSED_ON`] or [`ENDED`].
    state: AtomicU8,
}

/// This turn has the lease.
const HELD: u8 = 0;
/// The next turn of this host has it.
const PASSED_ON: u8 = 1;
/// It is ended, or about to be.
const ENDED: u8 = 2;

impl TurnLease {
    /// Returns the lease of a turn that was acquired for `duration` by a request at `acquired`. `cancel` is
    /// cancelled if the lease is lost.
    pub fn new(
        sessions: Arc<dyn SessionService>,
        key: SessionKey,
        fence: u64,
        acquired: UptimeInstant,
        duration: Duration,
        cancel: CancellationToken,
    ) -> Self {
        let (is_lost, state) = (AtomicBool::new(false), AtomicU8::new(HELD));
        Self { sessions, key, fence, duration, renewed: Mutex::new(acquired), is_lost, cancel, state }
    }

    /// Returns the lease for the next turn of this host, if it has been renewed lately and is not ended. It has the
    /// same number, so nothing needs to be stored. `cancel` is cancelled if the lease is lost.
    pub fn pass_on(&self, cancel: CancellationToken) -> Option<Self> {
        let renewed = *self.renewed.lock_unpoisoned();
        let is_recent = UptimeInstant::now() < renewed + self.duration / 3;
        if self.is_lost() || !is_recent || !self.release(PASSED_ON) {
            return None;
        }
        Some(Self::new(self.sessions.clone(), self.key.clone(), self.fence, renewed, self.duration, cancel))
    }

    /// Releases the lease. Returns false if it was released before.
    fn release(&self, state: u8) -> bool {
        self.state.compare_exchange(HELD, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns true once the lease has expired, unless it was renewed.
    pub fn is_expired(&self) -> bool {
        UptimeInstant::now() >= *self.renewed.lock_unpoisoned() + self.duration
    }

    /// Returns the session.
    pub fn session(&self) -> &SessionKey {
        &self.key
    }

    /// Returns the number of the turn.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Returns true once another turn has begun.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Marks the lease as replaced by the next turn of this host, so that it need not be ended.
    pub fn set_replaced(&self) {
        self.release(PASSED_ON);
    }

    /// Appends an event of the turn.
    ///
    /// # Errors
    /// As [`SessionService::append_with`]. [`StoreError::Fenced`] cancels the run.
    pub async fn append(&self, event: &Arc<Event>) -> Result<u64, StoreError> {
        self.observe(self.sessions.append_with(&self.key, event, Some(self.fence)).await)
    }

    pub(crate) fn journal(&self) -> Option<&dyn CallJournal> {
        self.sessions.journal()
    }

    /// Records a call of the turn, if the service has a journal.
    pub(crate) async fn record(&self, run: &str, record: &CallRecord) -> Result<(), StoreError> {
        match self.journal() {
            Some(journal) => self.observe(journal.record(&self.key, run, self.fence, record).await),
            None => Ok(()),
        }
    }

    /// Returns immediately if the lease is valid, otherwise renews it first.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if another turn has begun, which cancels the run, and other errors of the store.
    pub async fn ensure(&self) -> Result<(), StoreError> {
        if self.is_lost() {
            return Err(StoreError::Fenced(self.key.clone()));
        }
        // The lease is renewed when a sixth of it is left.
        let deadline = *self.renewed.lock_unpoisoned() + self.duration.saturating_sub(self.duration / 6);
        if UptimeInstant::now() < deadline { Ok(()) } else { self.renew().await }
    }

    /// Renews the lease.
    ///
    /// # Errors
    /// As [`TurnLease::ensure`].
    pub async fn renew(&self) -> Result<(), StoreError> {
        let requested = UptimeInstant::now();
        self.observe(self.sessions.renew_turn(&self.key, self.fence, self.duration).await)?;
        let mut renewed = self.renewed.lock_unpoisoned();
        *renewed = (*renewed).max(requested);
        Ok(())
    }

    /// Ends the turn, so that the next one can begin immediately, unless the next turn of this host has the lease.
    ///
    /// # Errors
    /// As [`SessionService::renew_turn`].
    pub async fn end(&self) -> Result<(), StoreError> {
        if !self.release(ENDED) {
            return Ok(());
        }
        self.sessions.renew_turn(&self.key, self.fence, Duration::ZERO).await
    }

    /// Returns the time between renewals.
    pub fn renewal_interval(&self) -> Duration {
        (self.duration / 3).max(Duration::from_millis(10))
    }

    fn observe<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if matches!(result, Err(StoreError::Fenced(_))) && !self.is_lost.swap(true, Ordering::AcqRel) {
            tracing::warn!(session = %self.key, fence = self.fence, "another host has taken over the session's turn");
            self.cancel.cancel();
        }
        result
    }
}
