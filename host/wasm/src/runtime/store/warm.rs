//! Instances that wait for the next call, for components whose operator wants that.
//!
//! An instance belongs to one call at a time: the call takes it out of the pool, owns it, and puts it back when it has ended well. There
//! is no other way back, so what traps, exceeds a limit, is cancelled or takes too long is gone with its call, whichever way that ends.
//! So is an instance in which the guest has left work behind, or still holds a stream or a call of the host: they would go on in the next
//! call, on behalf of this one's caller. Nothing in an instance runs while it waits.
//!
//! Each waiting instance has one of the engine's places and gives it up as soon as any other call needs one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;
use wasmtime::Store;
use wasmtime::component::Instance;

use super::HostState;
use super::output::Output;
use crate::catalog::settings::Warm;

/// A guest, ready to be called. The store goes before its place.
pub(super) struct Live {
    pub(super) store: Store<HostState>,
    pub(super) instance: Instance,
    pub(super) output: Output,
    /// Calls that it has ended well.
    pub(super) served: u32,
    pub(super) _slot: OwnedSemaphorePermit,
}

/// The waiting instances of one revision of a component.
pub(crate) struct Pool {
    settings: Warm,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// The longest waiting first.
    instances: VecDeque<(Instant, Live)>,
    /// Calls that an instance may serve less than `max_calls`; changes with each.
    early: u32,
    is_closed: bool,
    is_swept: bool,
}

impl Pool {
    pub(crate) fn new(settings: Warm) -> Arc<Self> {
        Arc::new(Self { settings, waiting: Mutex::default() })
    }

    /// The instance that has served last: the others can then go when there is little to do.
    pub(super) fn take(&self) -> Option<Live> {
        self.waiting().instances.pop_back().map(|(_, live)| live)
    }

    /// Keeps an instance after a call, unless it has done its share, there are enough, or the component has been replaced.
    pub(super) fn keep(self: &Arc<Self>, mut live: Live) {
        live.served += 1;
        let mut waiting = self.waiting();
        let max_calls = self.settings.max_calls.get();
        let is_spent = live.served >= max_calls.saturating_sub(waiting.early);
        if is_spent {
            waiting.early = (waiting.early + 1) % (max_calls / 8 + 1);
        }
        let is_full = waiting.instances.len() >= self.settings.size.get() as usize;
        if is_spent || is_full || waiting.is_closed {
            // Ending a store takes longer than others should wait.
            drop(waiting);
            return;
        }
        waiting.instances.push_back((Instant::now(), live));
        let is_swept = std::mem::replace(&mut waiting.is_swept, true);
        drop(waiting);
        if !is_swept {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Ends all that wait, and keeps none from now on.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        let ended = std::mem::take(&mut waiting.instances);
        drop(waiting);
        drop(ended);
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting().instances.len()
    }

    /// Since when the one waits that has waited longest.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.waiting().instances.front().map(|(since, _)| *since)
    }

    /// Ends the one that has waited longest; false when none waits.
    pub(crate) fn give_up_one(&self) -> bool {
        let oldest = self.waiting().instances.pop_front();
        oldest.is_some()
    }

    /// Ends those that have waited for too long. Gives when the next one will have; nothing when none is left.
    fn end_idle(&self) -> Option<Instant> {
        let mut waiting = self.waiting();
        let due = |since: Instant| since.checked_add(self.settings.idle);
        let now = Instant::now();
        let idle = waiting.instances.iter().take_while(|(since, _)| due(*since).is_some_and(|due| due <= now)).count();
        let ended: Vec<_> = waiting.instances.drain(..idle).collect();
        let next = waiting.instances.front().and_then(|(since, _)| due(*since));
        waiting.is_swept = next.is_some();
        drop(waiting);
        drop(ended);
        next
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends idle instances until none is left.
async fn sweep(pool: Weak<Pool>) {
    while let Some(next) = pool.upgrade().and_then(|pool| pool.end_idle()) {
        tokio::time::sleep_until(next.into()).await;
    }
}
