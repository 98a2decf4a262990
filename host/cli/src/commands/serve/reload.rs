//! Changes of the configuration without a restart: on SIGHUP, and as the host finds them.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use hatchery::{ApplyConfig, Config, ConfigChange, ConfigSubscriber, DevUi, ServerConfig, SettingsReport};
use hatchery_server::AppState;
use hatchery_telemetry::TraceStore;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exposure::{allowed_hosts, default_dev_ui};
use super::listen::ListenAddress;
use super::{ServerArgs, server_config};
use crate::audit;

/// A listener for SIGHUP.
pub(super) struct HangupListener {
    signal: Signal,
    has_terminal: bool,
}

impl HangupListener {
    /// Installs the signal handler. From now on the signal does not end the process.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let signal = signal(SignalKind::hangup()).context("cannot install signal handlers")?;
        Ok(Self { signal, has_terminal: std::io::stdin().is_terminal() })
    }

    /// Reloads the configuration whenever the signal arrives. Returns when the terminal of the process is closed, which
    /// sends the same signal.
    pub(super) async fn follow(mut self, reload: impl AsyncFn() -> bool) {
        while self.signal.recv().await.is_some() {
            if self.has_terminal && !std::io::stdin().is_terminal() {
                return;
            }
            // The log says why a configuration is not applied.
            reload().await;
        }
        std::future::pending().await
    }
}

/// The server, which follows the configuration of its host.
pub(super) struct ServedConfig {
    pub(super) dir: PathBuf,
    pub(super) args: Arc<ServerArgs>,
    pub(super) listen: ListenAddress,
    pub(super) state: AppState,
    pub(super) traces: TraceStore,
}

impl ServedConfig {
    /// Returns the settings of the server with the overrides of the arguments.
    ///
    /// # Errors
    /// If the server may not listen on its address with this configuration.
    pub(super) fn server(
        args: &ServerArgs,
        listen: &ListenAddress,
        change: &ConfigChange<'_>,
    ) -> anyhow::Result<ServerConfig> {
        let config = change.config;
        let hosts = allowed_hosts(listen, args, config, change.file)?;
        let default = default_dev_ui(listen, config.server.auth.is_some());
        server_config(args, config.server.clone(), hosts, config.server.dev_ui.unwrap_or(default))
    }
}

impl ConfigSubscriber for ServedConfig {
    fn prepare(&self, change: &ConfigChange<'_>) -> Result<ApplyConfig, String> {
        let server = Self::server(&self.args, &self.listen, change).map_err(|error| error.to_string())?;
        let in_force = Config { server: server.clone(), ..change.config.clone() };
        let flags = self.args.settings(&self.dir);
        let settings = SettingsReport::new(&in_force, change.file, flags, |name| std::env::var_os(name));
        let settings = settings.with_pending(change.pending, &self.state.settings());
        let changes_clients = change.is_requested || change.before.server.auth != change.config.server.auth;
        let has_clients = server.auth.is_some();
        let open_audit = if change.before.audit == change.config.audit {
            None
        } else {
            let path = change.config.audit.path(&self.args.storage.storage(&self.dir));
            Some(audit::prepare(path.as_deref(), &change.config.audit).map_err(|error| format!("{error:#}"))?)
        };
        let is_traced = server.dev_ui() == DevUi::Full;
        let apply_server = self.state.prepare(server, change.is_requested)?;
        let (state, traces, retention) = (self.state.clone(), self.traces.clone(), change.config.retention);
        Ok(Box::new(move || {
            if let Some(open) = open_audit {
                open();
            }
            apply_server();
            traces.set_enabled(is_traced);
            state.set_retention(retention);
            state.set_settings(settings);
            if changes_clients && has_clients {
                tracing::info!(target: "hatchery::audit", decision = "applied", "clients");
            }
        }))
    }
}
