//! Stop signals: SIGINT and SIGTERM.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code after a stop signal, as shells expect it.
pub const EXIT_CODE: u8 = 130;

/// A listener for stop signals.
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Installs the signal handlers. From now on these signals do not end the process.
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot install signal handlers");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Returns the output of `work`, or `None` if a signal arrives first. Drops the work in that case.
    pub async fn race<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            output = work => Some(output),
            () = self.next() => None,
        }
    }

    /// Waits for the first signal. After that, a second signal exits the process immediately.
    pub async fn wait_for_first(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            tracing::warn!("second stop signal; exiting immediately");
            std::process::exit(EXIT_CODE.into());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_runs_until_a_signal_arrives() {
        let mut interrupts = Interrupts::listen().unwrap();
        assert_eq!(interrupts.race(async { "done" }).await, Some("done"));
        let status = std::process::Command::new("kill").args(["-INT", &std::process::id().to_string()]).status();
        assert!(status.unwrap().success());
        assert_eq!(interrupts.race(std::future::pending::<()>()).await, None);
    }
}
