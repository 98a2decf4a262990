//! The output of a host's process: the announcement on stdout, and the log on stderr.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};
use tokio::task::JoinHandle;

use super::TIMEOUT;

/// The output of a process so far.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<String>>);

impl Log {
    /// Collects the lines of a pipe until it is closed.
    pub(super) async fn follow(self, pipe: impl AsyncRead + Unpin) {
        let mut lines = BufReader::new(pipe).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            text.push_str(&line);
            text.push('\n');
        }
    }

    /// Returns the output so far.
    pub(super) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads the next line of JSON with the URL and the loaded components. If the host has closed its output instead, waits
/// for the end of its log, so that the error contains all of it.
pub(super) async fn read_announcement(
    stdout: &mut (impl AsyncBufRead + Unpin),
    log: &Log,
    log_end: &mut JoinHandle<()>,
    timeout: Duration,
) -> anyhow::Result<Value> {
    let mut line = String::new();
    let read = tokio::time::timeout(timeout, stdout.read_line(&mut line)).await;
    read.with_context(|| format!("not ready after {timeout:?}: {}", log.text()))??;
    if line.is_empty() {
        let _ = tokio::time::timeout(TIMEOUT, log_end).await;
    }
    serde_json::from_str(&line).with_context(|| format!("unexpected output {line:?}: {}", log.text()))
}
