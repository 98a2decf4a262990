//! Log lines that are written at most once in a while, however often there is reason to.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long nothing more is written.
const PAUSE: Duration = Duration::from_secs(10);

/// Limits how often a line is written.
#[derive(Default)]
pub(super) struct Throttle(Mutex<State>);

#[derive(Default)]
struct State {
    times: u64,
    last: Option<Instant>,
}

impl Throttle {
    /// Calls `write` with how often this has been called so far, unless it was written a short while ago.
    pub(super) fn log(&self, write: impl FnOnce(u64)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.times += 1;
        if state.last.is_none_or(|last| last.elapsed() >= PAUSE) {
            state.last = Some(Instant::now());
            let times = state.times;
            drop(state);
            write(times);
        }
    }

    #[cfg(test)]
    pub(super) fn times(&self) -> u64 {
        self.0.lock().unwrap().times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line() {
        let (throttle, mut lines) = (Throttle::default(), Vec::new());
        for _ in 0..1000 {
            throttle.log(|times| lines.push(times));
        }
        assert_eq!((lines, throttle.times()), (vec![1], 1000));
    }
}
