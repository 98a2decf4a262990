//! Reloading without a restart, on SIGHUP: the clients of the server and its certificate.

use std::io::IsTerminal;

use anyhow::Context;
use hatchery::trust::{ConfigSource, LoadedConfig};
use hatchery_server::AppState;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A listener for SIGHUP.
pub(super) struct Reload {
    hangup: Signal,
    source: ConfigSource,
    has_terminal: bool,
}

impl Reload {
    /// Installs the signal handler. From now on the signal does not end the process.
    pub(super) fn listen(source: ConfigSource) -> anyhow::Result<Self> {
        let hangup = signal(SignalKind::hangup()).context("cannot install signal handlers")?;
        Ok(Self { hangup, source, has_terminal: std::io::stdin().is_terminal() })
    }

    /// Applies the configuration whenever the signal arrives. Returns when the terminal of the process is closed, which sends
    /// the same signal.
    pub(super) async fn run(mut self, state: &AppState) {
        while self.hangup.recv().await.is_some() {
            if self.has_terminal && !std::io::stdin().is_terminal() {
                return;
            }
            self.apply(state);
        }
        std::future::pending().await
    }

    fn apply(&self, state: &AppState) {
        let loaded = self.source.load().and_then(LoadedConfig::require_host_access);
        let applied = loaded.map_err(|error| error.to_string()).and_then(|loaded| {
            let auth = loaded.config.server.auth.as_ref();
            state.reload_auth(auth).map_err(|problem| format!("server.auth: {problem}"))
        });
        match applied {
            Ok(()) => tracing::info!(target: "hatchery::audit", decision = "applied", "clients"),
            Err(problem) => tracing::error!("{problem}; the clients before may still use the server"),
        }
        state.reload_tls();
    }
}
