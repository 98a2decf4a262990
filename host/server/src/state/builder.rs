//! The parts of a server, before they are shared.

use std::sync::Arc;

use hatchery::{AppSource, RetentionConfig, ServerConfig, SettingsReport};
use hatchery_a2a::{A2aAgents, A2aEndpoint, A2aService};
use hatchery_engine::Runner;
use hatchery_eval::Evaluations;
use hatchery_mcp::{McpEndpoint, McpServers, McpService};
use hatchery_openapi::Apis;
use hatchery_telemetry::{HostEvents, Metrics, TraceStore};

use super::{AppState, StateInner};

/// Builds an [`AppState`]. By default there are no protocols but HTTP, and everything is kept in memory.
#[must_use]
pub struct AppStateBuilder {
    inner: StateInner,
}

impl AppStateBuilder {
    pub(super) fn new(runner: Runner, source: Arc<dyn AppSource>, config: ServerConfig) -> Self {
        Self { inner: StateInner::new(runner, source, config) }
    }

    /// Serves MCP clients too, and reports the state of these MCP servers.
    pub fn mcp(mut self, service: McpService, servers: McpServers) -> Self {
        self.inner.mcp = Some(McpEndpoint::new(service));
        self.inner.mcp_servers = servers;
        self
    }

    /// Serves A2A clients too, and reports the state of these agents of other hosts.
    pub fn a2a(mut self, service: A2aService, agents: A2aAgents) -> Self {
        let base_path = self.inner.config.load().path_of("");
        self.inner.a2a = Some(A2aEndpoint::new(service).with_base_path(&base_path));
        self.inner.a2a_agents = agents;
        self
    }

    /// Reports the state of these HTTP APIs, whose operations are tools.
    pub fn apis(mut self, apis: Apis) -> Self {
        self.inner.apis = apis;
        self
    }

    /// Keeps eval sets and results elsewhere than in memory.
    pub fn evaluations(mut self, evaluations: Evaluations) -> Self {
        self.inner.evaluations = evaluations;
        self
    }

    /// Serves the spans of runs.
    pub fn traces(mut self, traces: TraceStore) -> Self {
        self.inner.traces = traces;
        self
    }

    /// Serves the metrics of runs.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.inner.metrics = metrics;
        self
    }

    /// Serves these events of the host.
    pub fn host_events(mut self, host_events: HostEvents) -> Self {
        self.inner.host_events = host_events;
        self
    }

    /// Deletes sessions by these rules.
    pub fn retention(self, retention: RetentionConfig) -> Self {
        self.inner.runner.set_kept_artifacts(retention.keep_artifacts);
        self.inner.retention.send_replace(retention);
        self
    }

    /// Reports these settings.
    pub fn settings(self, settings: SettingsReport) -> Self {
        self.inner.settings.store(Arc::new(settings));
        self
    }

    pub fn build(self) -> AppState {
        AppState { shared: Arc::new(self.inner) }
    }
}
