//! The epoch timer: a thread that ticks while guests run, and parks while none does.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

/// Ticks without a running guest before the thread parks. A busy host pays no wake-up for each call.
const IDLE_TICKS: u32 = 50;

/// Owns the thread, which ends when this is dropped.
pub(crate) struct EpochTimer {
    guests: RunningGuests,
    thread: Thread,
}

impl EpochTimer {
    /// Starts the thread. It calls `tick` each `interval` while guests run. While none runs, it continues as long as
    /// `tick` returns true.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start(interval: Duration, mut tick: impl FnMut() -> bool + Send + 'static) -> io::Result<Self> {
        let guests = RunningGuests::default();
        let state = guests.0.clone();
        let spawned = thread::Builder::new().name("epochs".into()).spawn(move || {
            let mut idle = 0;
            while !state.is_stopped.load(Ordering::SeqCst) {
                if idle > IDLE_TICKS {
                    state.park();
                    idle = 0;
                } else {
                    thread::sleep(interval);
                }
                let is_busy = tick() || state.running.load(Ordering::SeqCst) > 0;
                idle = if is_busy { 0 } else { idle + 1 };
            }
        })?;
        let thread = spawned.thread().clone();
        guests.0.thread.get_or_init(|| thread.clone());
        Ok(Self { guests, thread })
    }

    /// Returns the counter of running guests.
    pub(crate) fn guests(&self) -> &RunningGuests {
        &self.guests
    }
}

impl Drop for EpochTimer {
    fn drop(&mut self) {
        self.guests.0.is_stopped.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Counts the guests whose code runs now. Clones share the count.
#[derive(Clone, Default)]
pub(crate) struct RunningGuests(Arc<State>);

impl RunningGuests {
    /// Counts a guest until the guard is dropped, and wakes the timer if it is parked.
    pub(crate) fn enter(&self) -> RunningGuest<'_> {
        self.0.running.fetch_add(1, Ordering::SeqCst);
        if self.0.is_parked.load(Ordering::SeqCst)
            && let Some(thread) = self.0.thread.get()
        {
            thread.unpark();
        }
        RunningGuest(&self.0)
    }
}

pub(crate) struct RunningGuest<'a>(&'a State);

impl Drop for RunningGuest<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct State {
    running: AtomicUsize,
    is_parked: AtomicBool,
    is_stopped: AtomicBool,
    thread: OnceLock<Thread>,
}

impl State {
    /// Blocks until a guest runs or the timer is dropped. May return early.
    fn park(&self) {
        // A guest that is not counted here sees the flag, and unparks.
        self.is_parked.store(true, Ordering::SeqCst);
        let is_idle = self.running.load(Ordering::SeqCst) == 0 && !self.is_stopped.load(Ordering::SeqCst);
        if is_idle {
            thread::park();
        }
        self.is_parked.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn wait_until_parked(timer: &EpochTimer) {
        while !timer.guests.0.is_parked.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }

    #[test]
    fn the_timer_parks_without_guests_and_ticks_for_each_new_one() {
        let (ticks, received) = mpsc::channel();
        let timer = EpochTimer::start(Duration::from_micros(50), move || ticks.send(()).is_err()).unwrap();
        for _ in 0..3 {
            wait_until_parked(&timer);
            while received.try_recv().is_ok() {}
            let running = timer.guests().enter();
            (0..2 * IDLE_TICKS).for_each(|_| received.recv().unwrap());
            drop(running);
        }
    }

    #[test]
    fn the_timer_goes_on_while_ticks_have_work() {
        let (ticks, received) = mpsc::channel();
        let timer = EpochTimer::start(Duration::from_micros(50), move || ticks.send(()).is_ok()).unwrap();
        (0..2 * IDLE_TICKS).for_each(|_| received.recv().unwrap());
        drop(timer);
    }

    #[test]
    fn a_parked_timer_ends_when_it_is_dropped() {
        let (ticks, received) = mpsc::channel::<()>();
        let timer = EpochTimer::start(Duration::from_micros(50), move || ticks.send(()).is_err()).unwrap();
        wait_until_parked(&timer);
        drop(timer);
        while received.recv().is_ok() {}
    }
}
