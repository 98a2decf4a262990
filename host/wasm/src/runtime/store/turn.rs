//! Turns: how guests that compute for long share the threads with everything else.
//!
//! Guests run on the threads that serve the network, since a hop to another thread would cost as much as a whole call. Most calls end
//! within the first tick. One that does not must have a turn to go on, there are as many turns as processors, and a turn ends with the
//! tick, when the next in line gets it. So however many guests spin, no more than that are in the queues of the threads at one time, and
//! a request waits for a tick or two rather than for a tick of each guest. Before a guest takes its turn it stands back once, for as long
//! as the thread needs to look at the network.
//!
//! A turn is held only while the guest's code runs: neither waiting for a model nor a caller that stops looking keeps one. No more are
//! called than there are turns, since those who are called run one after the other without a look at the network between them. Whoever is
//! called and does not come in time loses the call, but not the place in the line.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Ticks after which a call is lost: a busy machine may leave a thread alone for some of them.
const LATE: u32 = 50;

/// The turns of an engine.
#[derive(Clone)]
pub(crate) struct Turns(Arc<Mutex<Line>>);

struct Line {
    /// Turns that nobody uses.
    free: usize,
    /// The number of whoever comes next.
    next: u64,
    waiting: BTreeMap<u64, Waker>,
    /// Those who may use a free turn, with the ticks since they were called.
    called: Vec<(u64, u32)>,
}

impl Line {
    /// Calls as many as there are turns for.
    fn call(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while self.called.len() < self.free
            && let Some((number, waker)) = self.waiting.pop_first()
        {
            self.called.push((number, 0));
            wakers.push(waker);
        }
        wakers
    }

    /// Takes back a call; false when there was none.
    fn uncall(&mut self, number: u64) -> bool {
        let before = self.called.len();
        self.called.retain(|(called, _)| *called != number);
        self.called.len() < before
    }
}

impl Turns {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(Line { free: count, next: 0, waiting: BTreeMap::new(), called: Vec::new() })))
    }

    /// Calls others in place of those who have not come.
    pub(crate) fn tick(&self) {
        self.change(|line| {
            line.called.iter_mut().for_each(|(_, age)| *age += 1);
            line.called.retain(|(_, age)| *age <= LATE);
        });
    }

    /// Begins the turn of a number that was called; false when the call is lost.
    fn take(&self, number: u64) -> bool {
        let mut line = self.line();
        let is_called = line.uncall(number);
        line.free -= usize::from(is_called);
        is_called
    }

    /// Changes the line, and calls those who can have a turn then.
    fn change(&self, change: impl FnOnce(&mut Line)) {
        let called = {
            let mut line = self.line();
            change(&mut line);
            line.call()
        };
        called.into_iter().for_each(Waker::wake);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one call has of them.
pub(super) struct Turn {
    turns: Turns,
    is_held: AtomicBool,
}

impl Turn {
    pub(super) fn new(turns: Turns) -> Self {
        Self { turns, is_held: AtomicBool::new(false) }
    }

    /// Ends the turn, if there was one, and waits for the next.
    pub(super) async fn next(&self) {
        self.stop();
        let place = Place::at_the_end(&self.turns);
        loop {
            Called(&place).await;
            tokio::task::yield_now().await;
            if self.turns.take(place.number) {
                self.is_held.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    /// The guest's code has stopped running.
    pub(super) fn stop(&self) {
        if self.is_held.swap(false, Ordering::Relaxed) {
            self.turns.change(|line| line.free += 1);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A place in the line.
struct Place<'a> {
    turns: &'a Turns,
    number: u64,
}

impl<'a> Place<'a> {
    fn at_the_end(turns: &'a Turns) -> Self {
        let mut line = turns.line();
        let number = line.next;
        line.next += 1;
        drop(line);
        Self { turns, number }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.turns.change(|line| {
            line.waiting.remove(&self.number);
            line.uncall(self.number);
        });
    }
}

/// Ready when the place is called.
struct Called<'p>(&'p Place<'p>);

impl Future for Called<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Place { turns, number } = self.0;
        let mut is_called = false;
        turns.change(|line| {
            is_called = line.called.iter().any(|(called, _)| called == number);
            if !is_called && line.waiting.is_empty() && line.called.len() < line.free {
                line.called.push((*number, 0));
                is_called = true;
            }
            if !is_called {
                line.waiting.insert(*number, cx.waker().clone());
            }
        });
        if is_called { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::future::join_all;
    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn turns_go_round_and_are_never_more_than_there_are() {
        let turns = Turns::new(2);
        let (running, most, order) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
        let guests = (0..5).map(async |guest| {
            let turn = Turn::new(turns.clone());
            for _ in 0..3 {
                turn.next().await;
                most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                order.lock().unwrap().push(guest);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::Relaxed);
            }
        });
        join_all(guests).await;
        assert_eq!(most.into_inner(), 2);
        let order = order.into_inner().unwrap();
        assert_eq!(order.len(), 15);
        let early = order.iter().take(10).filter(|guest| **guest == 4).count();
        assert!(early > 0, "the last is not passed over: {order:?}");
    }

    #[tokio::test]
    async fn who_waits_for_something_else_has_no_turn() {
        let turns = Turns::new(1);
        let (first, second) = (Turn::new(turns.clone()), Turn::new(turns));
        first.next().await;
        first.stop();
        second.next().await;
        drop(second);
        first.next().await;
    }

    #[tokio::test]
    async fn who_is_called_and_does_not_come_is_passed_over() {
        let turns = Turns::new(1);
        let [first, absent, last] = [(); 3].map(|()| Turn::new(turns.clone()));
        first.next().await;
        let (absent, last) = (absent.next(), last.next());
        tokio::pin!(absent, last);
        assert!(poll!(&mut absent).is_pending() && poll!(&mut last).is_pending());
        first.stop();
        assert!(poll!(&mut last).is_pending(), "it is the turn of another");
        (0..=LATE).for_each(|_| turns.tick());
        last.await;
    }
}
