//! The shared state of all request handlers.

use std::sync::Arc;

use hatchery::RetentionConfig;
use hatchery_a2a::{A2aAgents, A2aEndpoint, A2aService};
use hatchery_core::{EventWindow, Services, Session, SessionKey};
use hatchery_engine::{App, RunPermit, Runner};
use hatchery_eval::{EvalStore, Evaluations};
use hatchery_mcp::{McpEndpoint, McpServers, McpService};
use hatchery_openapi::Apis;
use hatchery_telemetry::{Metrics, TraceStore};

use crate::body::BodyBudget;
use crate::error::ApiError;
use crate::live::LiveConnections;
use hatchery::AppSource;
use hatchery::ServerConfig;

/// The shared state of all request handlers. Cheap to clone.
#[derive(Clone)]
pub struct AppState {
    shared: Arc<Shared>,
}

struct Shared {
    runner: Runner,
    source: Arc<dyn AppSource>,
    config: ServerConfig,
    body_budget: BodyBudget,
    live: LiveConnections,
    a2a: Option<A2aEndpoint>,
    mcp: Option<McpEndpoint>,
    mcp_servers: McpServers,
    a2a_agents: A2aAgents,
    apis: Apis,
    evaluations: Evaluations,
    traces: TraceStore,
    metrics: Metrics,
    retention: RetentionConfig,
}

impl AppState {
    /// Creates the state of a server that runs the apps of `source` with `runner`.
    pub fn new(runner: Runner, source: Arc<dyn AppSource>, config: ServerConfig) -> Self {
        let body_budget = BodyBudget::new(config.body_memory);
        let (a2a, mcp, mcp_servers, a2a_agents) = (None, None, McpServers::default(), A2aAgents::default());
        let (traces, metrics) = (TraceStore::default(), Metrics::default());
        let evaluations = Evaluations::new(runner.clone(), EvalStore::in_memory());
        let live = LiveConnections::default();
        let shared = Shared {
            runner,
            source,
            config,
            body_budget,
            live,
            a2a,
            mcp,
            mcp_servers,
            a2a_agents,
            apis: Apis::default(),
            evaluations,
            traces,
            metrics,
            retention: RetentionConfig::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Serves MCP clients too, and reports the state of these MCP servers. To be called before the state is shared.
    #[must_use]
    pub fn with_mcp(mut self, service: McpService, servers: McpServers) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.mcp = Some(McpEndpoint::new(service));
            shared.mcp_servers = servers;
        }
        self
    }

    /// Serves A2A clients too, and reports the state of these agents of other hosts. To be called before the state is shared.
    #[must_use]
    pub fn with_a2a(mut self, service: A2aService, agents: A2aAgents) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.a2a = Some(A2aEndpoint::new(service));
            shared.a2a_agents = agents;
        }
        self
    }

    /// Keeps eval sets and results elsewhere than in memory. To be called before the state is shared.
    #[must_use]
    pub fn with_evaluations(mut self, evaluations: Evaluations) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.evaluations = evaluations;
        }
        self
    }

    /// Serves the spans of runs. To be called before the state is shared.
    #[must_use]
    pub fn with_traces(mut self, traces: TraceStore) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.traces = traces;
        }
        self
    }

    pub(crate) fn a2a(&self) -> Option<&A2aEndpoint> {
        self.shared.a2a.as_ref()
    }

    /// Returns the connections of live runs.
    pub(crate) fn live(&self) -> &LiveConnections {
        &self.shared.live
    }

    /// Serves the metrics of runs. To be called before the state is shared.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.metrics = metrics;
        }
        self
    }

    /// Deletes sessions by these rules. To be called before the state is shared.
    #[must_use]
    pub fn with_retention(mut self, retention: RetentionConfig) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.retention = retention;
        }
        self
    }

    pub(crate) fn retention(&self) -> &RetentionConfig {
        &self.shared.retention
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    pub(crate) fn traces(&self) -> &TraceStore {
        &self.shared.traces
    }

    pub(crate) fn evaluations(&self) -> &Evaluations {
        &self.shared.evaluations
    }

    /// Reports the state of these HTTP APIs, whose operations are tools. To be called before the state is shared.
    #[must_use]
    pub fn with_apis(mut self, apis: Apis) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.apis = apis;
        }
        self
    }

    pub(crate) fn apis(&self) -> &Apis {
        &self.shared.apis
    }

    pub(crate) fn a2a_agents(&self) -> &A2aAgents {
        &self.shared.a2a_agents
    }

    pub(crate) fn mcp_servers(&self) -> &McpServers {
        &self.shared.mcp_servers
    }

    pub(crate) fn mcp(&self) -> Option<&McpEndpoint> {
        self.shared.mcp.as_ref()
    }

    /// Returns how many more bytes request bodies may use.
    pub fn available_body_memory(&self) -> usize {
        self.shared.body_budget.available()
    }

    pub(crate) fn body_budget(&self) -> &BodyBudget {
        &self.shared.body_budget
    }

    pub fn runner(&self) -> &Runner {
        &self.shared.runner
    }

    pub fn services(&self) -> &Services {
        self.shared.runner.services()
    }

    pub fn source(&self) -> &dyn AppSource {
        self.shared.source.as_ref()
    }

    pub fn config(&self) -> &ServerConfig {
        &self.shared.config
    }

    /// Returns the app with this name.
    ///
    /// # Errors
    /// 404 with the existing names; 503 while components are loading that may contain the app; 500 with the reason if
    /// its file cannot be loaded.
    pub fn app(&self, name: &str) -> Result<Arc<App>, ApiError> {
        // Read before the app, so that an app that is loaded in between is found.
        let loading = self.source().loading();
        self.source().app(name).ok_or_else(|| {
            let report = self.source().report();
            match (report.reason_for_missing_app(name), loading.is_empty()) {
                (Some(reason), _) => ApiError::app_not_loaded(name, reason),
                (None, true) => ApiError::app_not_found(name, &self.source().app_names()),
                (None, false) => ApiError::app_loading(name, &loading),
            }
        })
    }

    /// Returns the session with the events in `window`.
    ///
    /// # Errors
    /// 404 if there is no such app or session.
    pub async fn session(&self, key: &SessionKey, window: EventWindow) -> Result<Session, ApiError> {
        self.app(&key.app)?;
        let session = self.services().sessions.get(key, window).await?;
        session.ok_or_else(|| hatchery_core::StoreError::SessionNotFound(key.clone()).into())
    }

    /// Acquires a permit to start a run. It must be dropped once the runner counts the run.
    ///
    /// # Errors
    /// 503 if the maximum number of runs is active.
    pub(crate) fn acquire_run_permit(&self) -> Result<RunPermit, ApiError> {
        let max = self.config().max_concurrent_runs;
        self.runner().try_acquire(max).ok_or_else(|| {
            let error = ApiError::busy(format!("the maximum of {max} runs is active; try again"));
            error.advise("raise server.max_concurrent_runs in hatchery.yaml to allow more")
        })
    }
}
