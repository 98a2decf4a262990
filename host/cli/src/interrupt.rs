//! SIGINT and SIGTERM.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of a process that was told twice to stop, as shells expect it.
const TOLD_TWICE: i32 = 130;

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

    /// Waits for one; the one after it ends the process at once.
    pub async fn first(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            tracing::warn!("told twice to stop: ending without waiting for anything");
            std::process::exit(TOLD_TWICE);
        });
    }
}
