//! Turns: how guests that compute for long share the threads with everything else.
//!
//! Guests run on the threads that serve the network, since a hop to another thread would cost as much as a whole call. Most calls end
//! within the first tick. One that does not must have a turn to go on, there are as many turns as processors, and a turn ends with the
//! tick, when the next in line gets it. So however many guests spin, no more than that are in the queues of the threads at one time, and
//! a request waits for a tick or two rather than for a tick of each guest. Before a guest takes its turn it stands back once, for as long
//! as the thread needs to look at the network.
//!
//! A turn is held only while the guest's code runs: neither waiting for a model nor a caller that stops looking keeps one. Whoever is
//! called and does not come is passed over at the next tick.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The turns of an engine.
#[derive(Clone)]
pub(crate) struct Turns(Arc<Mutex<Line>>);

struct Line {
    /// Turns that nobody has.
    free: usize,
    /// The number of whoever comes next.
    next: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl Turns {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(Line { free: count, next: 0, waiting: BTreeMap::new() })))
    }

    /// Calls as many as there are turns: those who were called before may not have come.
    pub(crate) fn tick(&self) {
        let called: Vec<Waker> = {
            let mut line = self.line();
            let count = line.free.min(line.waiting.len());
            (0..count).filter_map(|_| line.waiting.pop_first()).map(|(_, waker)| waker).collect()
        };
        called.into_iter().for_each(Waker::wake);
    }

    fn take(&self) -> bool {
        let mut line = self.line();
        let is_free = line.free > 0;
        line.free -= usize::from(is_free);
        is_free
    }

    fn give_back(&self) {
        let mut line = self.line();
        line.free += 1;
        let called = line.waiting.pop_first();
        drop(line);
        if let Some((_, waker)) = called {
            waker.wake();
        }
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
        let mut place = Place { turns: &self.turns, number: None };
        loop {
            place.called().await;
            tokio::task::yield_now().await;
            if self.turns.take() {
                self.is_held.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    /// The guest's code has stopped running.
    pub(super) fn stop(&self) {
        if self.is_held.swap(false, Ordering::Relaxed) {
            self.turns.give_back();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A place in the line. Who was called in vain keeps it.
struct Place<'a> {
    turns: &'a Turns,
    number: Option<u64>,
}

impl<'t> Place<'t> {
    fn called(&mut self) -> Called<'_, 't> {
        Called { place: self, is_in_line: false }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.turns.line().waiting.remove(&number);
        }
    }
}

struct Called<'p, 't> {
    place: &'p mut Place<'t>,
    is_in_line: bool,
}

impl Future for Called<'_, '_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let was_in_line = std::mem::replace(&mut self.is_in_line, true);
        let place = &mut *self.place;
        let mut line = place.turns.line();
        let is_first = place.number.is_none_or(|number| line.waiting.range(..number).next().is_none());
        let is_called = match place.number {
            Some(number) if was_in_line => !line.waiting.contains_key(&number),
            None if !line.waiting.is_empty() => false,
            Some(_) | None => is_first && line.free > 0,
        };
        if is_called {
            return Poll::Ready(());
        }
        let number = *place.number.get_or_insert(line.next);
        line.next = line.next.max(number + 1);
        line.waiting.insert(number, cx.waker().clone());
        Poll::Pending
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
        turns.tick();
        last.await;
    }
}
