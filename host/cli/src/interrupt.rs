//! SIGINT and SIGTERM.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of a process that was told to stop before it was done, as shells expect it.
pub const EXIT_CODE: u8 = 130;

/// The signals that ask a process to stop.
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// From now on these signals end the process no more.
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// What `work` gives, or `None` when one comes first: then the work is given up.
    pub async fn race<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.next() => None,
        }
    }

    /// Waits for one; the one after it ends the process at once.
    pub async fn first(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            tracing::warn!("told twice to stop: ending without waiting for anything");
            std::process::exit(EXIT_CODE.into());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_goes_on_until_a_signal_comes() {
        let mut interrupts = Interrupts::listen().unwrap();
        assert_eq!(interrupts.race(async { "done" }).await, Some("done"));
        let told = std::process::Command::new("kill").args(["-INT", &std::process::id().to_string()]).status();
        assert!(told.unwrap().success());
        assert_eq!(interrupts.race(std::future::pending::<()>()).await, None);
    }
}
