//! A rate limit for log lines.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use hatchery_core::sync::MutexExt;

/// Minimum interval between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// Writes a log line at most once per interval.
#[derive(Default)]
pub(crate) struct LogThrottle(Mutex<State>);

#[derive(Default)]
struct State {
    times: u64,
    last: Option<Instant>,
}

impl LogThrottle {
    /// Calls `write` with the number of calls so far, unless a line was written within the interval.
    pub(crate) fn log(&self, write: impl FnOnce(u64)) {
        let mut state = self.0.lock_unpoisoned();
        state.times += 1;
        if state.last.is_none_or(|last| last.elapsed() >= INTERVAL) {
            state.last = Some(Instant::now());
            let times = state.times;
            drop(state);
            write(times);
        }
    }

    #[cfg(test)]
    pub(crate) fn times(&self) -> u64 {
        self.0.lock().unwrap().times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line() {
        let (throttle, mut lines) = (LogThrottle::default(), Vec::new());
        for _ in 0..1000 {
            throttle.log(|times| lines.push(times));
        }
        assert_eq!((lines, throttle.times()), (vec![1], 1000));
    }
}
