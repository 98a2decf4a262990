//! Fair CPU scheduler: time slices for guests that compute for longer than one epoch tick.
//!
//! Guests run on the threads that serve the network, since a hop to another thread would cost as much as a whole call.
//! Most calls end within the first tick. A longer call needs a time slice to continue. There are as many slices as
//! processors, a slice lasts one tick, and slices are granted in the order of a run queue (round robin). So regardless
//! of the number of spinning guests, the queues of the threads are short. A request waits for a tick or two rather than
//! for a tick of each guest. Before a guest uses its slice it yields once, so that the thread polls the network.
//!
//! A slice is held only while the guest's code runs. A guest that waits for a model, or whose caller does not poll it,
//! holds none. No more waiters are woken than there are free slices, because woken tasks run in sequence
//! without a poll of the network between them. A waiter that is woken but does not run within [`WAKEUP_TIMEOUT`] ticks
//! loses its grant and returns to its position in the queue.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use hatchery_core::sync::MutexExt;

/// Ticks after which a woken waiter loses its grant. A busy machine may not run a thread for some ticks.
const WAKEUP_TIMEOUT: u32 = 50;

/// The scheduler of an engine. Clones share it.
#[derive(Clone)]
pub(crate) struct CpuScheduler(Arc<Mutex<RunQueue>>);

struct RunQueue {
    /// Slices that are not in use.
    free: usize,
    /// The number of the next ticket.
    next: u64,
    waiting: BTreeMap<u64, Waker>,
    /// Tickets that may take a free slice, with the ticks since they were woken.
    woken: Vec<(u64, u32)>,
}

impl RunQueue {
    /// Moves as many waiters as there are free slices to `woken`. Returns their wakers.
    fn grant(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while self.woken.len() < self.free
            && let Some((number, waker)) = self.waiting.pop_first()
        {
            self.woken.push((number, 0));
            wakers.push(waker);
        }
        wakers
    }

    /// Returns false if the ticket was not woken.
    fn withdraw_wakeup(&mut self, number: u64) -> bool {
        let before = self.woken.len();
        self.woken.retain(|(woken, _)| *woken != number);
        self.woken.len() < before
    }
}

impl CpuScheduler {
    pub(crate) fn new(slices: usize) -> Self {
        Self(Arc::new(Mutex::new(RunQueue { free: slices, next: 0, waiting: BTreeMap::new(), woken: Vec::new() })))
    }

    /// Withdraws grants that were not used in time, and wakes the next waiters. Returns false if there are no waiters.
    pub(crate) fn tick(&self) -> bool {
        let mut has_waiters = false;
        self.update(|queue| {
            queue.woken.iter_mut().for_each(|(_, age)| *age += 1);
            queue.woken.retain(|(_, age)| *age <= WAKEUP_TIMEOUT);
            has_waiters = !queue.woken.is_empty() || !queue.waiting.is_empty();
        });
        has_waiters
    }

    /// Starts the slice of a ticket that was woken. Returns false if it lost its grant.
    fn start_slice(&self, number: u64) -> bool {
        let mut queue = self.queue();
        let is_granted = queue.withdraw_wakeup(number);
        queue.free -= usize::from(is_granted);
        is_granted
    }

    /// Changes the queue, then wakes the waiters that can have a slice.
    fn update(&self, change: impl FnOnce(&mut RunQueue)) {
        let wakers = {
            let mut queue = self.queue();
            change(&mut queue);
            queue.grant()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn queue(&self) -> MutexGuard<'_, RunQueue> {
        self.0.lock_unpoisoned()
    }
}

/// The time slice of one call, held or not.
pub(super) struct TimeSlice {
    scheduler: CpuScheduler,
    is_held: AtomicBool,
}

impl TimeSlice {
    pub(super) fn new(scheduler: CpuScheduler) -> Self {
        Self { scheduler, is_held: AtomicBool::new(false) }
    }

    /// Releases the slice if it is held, and waits at the end of the queue for the next one.
    pub(super) async fn acquire(&self) {
        self.release();
        let ticket = Ticket::new(&self.scheduler);
        loop {
            Wakeup(&ticket).await;
            tokio::task::yield_now().await;
            if self.scheduler.start_slice(ticket.number) {
                self.is_held.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Releases the slice if it is held, because the guest's code has stopped running.
    pub(super) fn release(&self) {
        if self.is_held.swap(false, Ordering::Relaxed) {
            self.scheduler.update(|queue| queue.free += 1);
        }
    }
}

impl Drop for TimeSlice {
    fn drop(&mut self) {
        self.release();
    }
}

/// A position in the run queue. Dropping it leaves the queue.
struct Ticket<'a> {
    scheduler: &'a CpuScheduler,
    number: u64,
}

impl<'a> Ticket<'a> {
    fn new(scheduler: &'a CpuScheduler) -> Self {
        let mut queue = scheduler.queue();
        let number = queue.next;
        queue.next += 1;
        drop(queue);
        Self { scheduler, number }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.scheduler.update(|queue| {
            queue.waiting.remove(&self.number);
            queue.withdraw_wakeup(self.number);
        });
    }
}

/// Resolves when the ticket is woken.
struct Wakeup<'p>(&'p Ticket<'p>);

impl Future for Wakeup<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Ticket { scheduler, number } = self.0;
        let mut is_woken = false;
        scheduler.update(|queue| {
            is_woken = queue.woken.iter().any(|(woken, _)| woken == number);
            if !is_woken && queue.waiting.is_empty() && queue.woken.len() < queue.free {
                queue.woken.push((*number, 0));
                is_woken = true;
            }
            if !is_woken {
                queue.waiting.insert(*number, cx.waker().clone());
            }
        });
        if is_woken { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::future::join_all;
    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn slices_rotate_and_are_never_more_than_there_are() {
        let scheduler = CpuScheduler::new(2);
        let (running, max, order) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
        let guests = (0..5).map(async |guest| {
            let slice = TimeSlice::new(scheduler.clone());
            for _ in 0..3 {
                slice.acquire().await;
                max.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                order.lock().unwrap().push(guest);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::Relaxed);
            }
        });
        join_all(guests).await;
        assert_eq!(max.into_inner(), 2);
        let order = order.into_inner().unwrap();
        assert_eq!(order.len(), 15);
        let early = order.iter().take(10).filter(|guest| **guest == 4).count();
        assert!(early > 0, "the last is not starved: {order:?}");
    }

    #[tokio::test]
    async fn a_call_that_waits_for_something_else_holds_no_slice() {
        let scheduler = CpuScheduler::new(1);
        let (first, second) = (TimeSlice::new(scheduler.clone()), TimeSlice::new(scheduler));
        first.acquire().await;
        first.release();
        second.acquire().await;
        drop(second);
        first.acquire().await;
    }

    #[tokio::test]
    async fn a_waiter_that_is_woken_and_does_not_run_is_passed_over() {
        let scheduler = CpuScheduler::new(1);
        let [first, absent, last] = [(); 3].map(|()| TimeSlice::new(scheduler.clone()));
        first.acquire().await;
        let (absent, last) = (absent.acquire(), last.acquire());
        tokio::pin!(absent, last);
        assert!(poll!(&mut absent).is_pending() && poll!(&mut last).is_pending());
        first.release();
        assert!(poll!(&mut last).is_pending(), "the slice is granted to another");
        assert!((0..=WAKEUP_TIMEOUT).all(|_| scheduler.tick()));
        last.await;
    }
}
