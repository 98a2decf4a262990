//! The watchdog of a stop: aborts a process that hangs, and names the step at which it hangs.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use hatchery_core::sync::MutexExt;

/// How long the watchdog waits for its last log line, which a hanging thread may keep it from writing.
const MAX_LOG_WAIT: Duration = Duration::from_secs(1);

/// A separate thread, so that it works if the async runtime hangs, too.
pub struct Watchdog {
    step: Arc<Mutex<&'static str>>,
}

impl Watchdog {
    /// Aborts the process unless it ends within `limit`. The system can keep a core dump, which shows where it hangs.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(limit: Duration, step: &'static str) -> io::Result<Self> {
        Self::start_with(limit, step, move |step| {
            let (written, log) = channel();
            thread::spawn(move || log_expiry(limit, step, &written));
            let _ = log.recv_timeout(MAX_LOG_WAIT);
            std::process::abort();
        })
    }

    fn start_with(
        limit: Duration,
        step: &'static str,
        on_expiry: impl FnOnce(&'static str) + Send + 'static,
    ) -> io::Result<Self> {
        let step = Arc::new(Mutex::new(step));
        let current = step.clone();
        thread::Builder::new().name("watchdog".into()).spawn(move || {
            thread::sleep(limit);
            let step = *current.lock_unpoisoned();
            on_expiry(step);
        })?;
        Ok(Self { step })
    }

    /// Sets the name of the current step of the stop.
    pub fn enter(&self, step: &'static str) {
        *self.step.lock_unpoisoned() = step;
    }
}

fn log_expiry(limit: Duration, step: &str, written: &Sender<()>) {
    tracing::error!("{}", expiry(limit, step));
    // The receiver may have given up.
    let _ = written.send(());
}

fn expiry(limit: Duration, step: &str) -> String {
    format!(
        "the host has not stopped within {} seconds, it waits for {step}: aborting the process; please report this with the \
         core dump, if the system keeps one (`coredumpctl`)",
        limit.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_hangs_ends_with_what_it_waited_for() {
        let (sender, expired) = channel();
        let (proceed, wait) = channel();
        let watchdog = Watchdog::start_with(Duration::ZERO, "active runs", move |first| {
            sender.send(first).unwrap();
            wait.recv().unwrap();
        });
        let watchdog = watchdog.unwrap();
        assert_eq!(expired.recv().unwrap(), "active runs");
        watchdog.enter("connections");
        assert_eq!(*watchdog.step.lock_unpoisoned(), "connections");
        proceed.send(()).unwrap();
        assert_eq!(
            expiry(Duration::from_secs(40), "connections"),
            "the host has not stopped within 40 seconds, it waits for connections: aborting the process; please report this \
             with the core dump, if the system keeps one (`coredumpctl`)"
        );
    }
}
