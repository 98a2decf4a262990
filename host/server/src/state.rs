//! The shared state of all request handlers.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hatchery::{RetentionConfig, SettingsReport};
use hatchery_a2a::{A2aAgents, A2aEndpoint, A2aService};
use hatchery_core::{EventWindow, Services, Session, SessionKey};
use hatchery_engine::{App, RunPermit, Runner};
use hatchery_eval::{EvalStore, Evaluations};
use hatchery_mcp::{McpEndpoint, McpServers, McpService};
use hatchery_openapi::Apis;
use hatchery_telemetry::{HostEvents, Metrics, TraceStore};
use tokio_util::sync::CancellationToken;

use crate::auth::Authentication;
use crate::body::BodyBudget;
use crate::drafts::Drafts;
use crate::error::ApiError;
use crate::live::LiveConnections;
use crate::tls::Tls;
use hatchery::AppSource;
use hatchery::{ServerAuthConfig, ServerConfig};

/// The shared state of all request handlers. Cheap to clone.
#[derive(Clone)]
pub struct AppState {
    shared: Arc<StateInner>,
}

struct StateInner {
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
    /// Empty until the server is bound, and afterwards if it has no authentication.
    auth: OnceLock<Authentication>,
    /// Empty until the server is bound, and afterwards if it speaks HTTP.
    tls: OnceLock<Tls>,
    host_events: HostEvents,
    drafts: Drafts,
    /// Cancelled when the server stops.
    stop: CancellationToken,
    retention: RetentionConfig,
    created: Instant,
    settings: SettingsReport,
}

impl AppState {
    /// Creates the state of a server that runs the apps of `source` with `runner`.
    pub fn new(runner: Runner, source: Arc<dyn AppSource>, config: ServerConfig) -> Self {
        let body_budget = BodyBudget::new(config.body_memory);
        let (a2a, mcp, mcp_servers, a2a_agents) = (None, None, McpServers::default(), A2aAgents::default());
        let (traces, metrics) = (TraceStore::default(), Metrics::default());
        let evaluations = Evaluations::new(runner.clone(), EvalStore::in_memory());
        let (auth, tls) = (OnceLock::new(), OnceLock::new());
        let live = LiveConnections::default();
        let shared = StateInner {
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
            auth,
            tls,
            host_events: HostEvents::default(),
            drafts: Drafts::default(),
            stop: CancellationToken::new(),
            retention: RetentionConfig::default(),
            settings: SettingsReport::default(),
            created: Instant::now(),
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
            shared.a2a = Some(A2aEndpoint::new(service).with_base_path(&shared.config.path_of("")));
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

    /// Reads the keys of the configured authentication.
    ///
    /// # Errors
    /// The problem, without the text of a key.
    pub(crate) fn open_auth(&self) -> Result<(), String> {
        if let (Some(config), None) = (&self.config().auth, self.shared.auth.get()) {
            // Another thread that was faster has read the same configuration.
            let _ = self.shared.auth.set(Authentication::open(config)?);
        }
        Ok(())
    }

    /// Reads the configured certificate.
    ///
    /// # Errors
    /// The problem, with the file.
    pub(crate) fn open_tls(&self) -> Result<(), String> {
        if let (Some(config), None) = (&self.config().tls, self.shared.tls.get()) {
            // As above.
            let _ = self.shared.tls.set(Tls::open(config)?);
        }
        Ok(())
    }

    /// Returns the certificate. `None` if the server speaks HTTP.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.shared.tls.get()
    }

    /// Reads the certificate again, as the server does by itself when its files change.
    pub fn reload_tls(&self) {
        if let Some(tls) = self.tls() {
            tls.reload();
        }
    }

    /// Replaces the clients of the server by those of a changed configuration, without a restart. Keys are read again.
    ///
    /// # Errors
    /// The problem, without the text of a key. The server keeps its clients then.
    pub fn reload_auth(&self, config: Option<&ServerAuthConfig>) -> Result<(), String> {
        match (self.auth(), config) {
            (Some(auth), Some(config)) => auth.reload(config),
            (None, None) => Ok(()),
            (Some(_), None) => Err("it was removed; restart the server to serve without authentication".into()),
            (None, Some(_)) => Err("it was added; restart the server to serve with authentication".into()),
        }
    }

    /// Returns the authentication. `None` if the server has none.
    pub(crate) fn auth(&self) -> Option<&Authentication> {
        self.shared.auth.get()
    }

    /// Returns how many requests were refused because they had no valid credentials.
    pub fn refused_credentials(&self) -> u64 {
        self.auth().map_or(0, Authentication::refused)
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

    /// Reports these settings. To be called before the state is shared.
    #[must_use]
    pub fn with_settings(mut self, settings: SettingsReport) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.settings = settings;
        }
        self
    }

    pub(crate) fn settings(&self) -> &SettingsReport {
        &self.shared.settings
    }

    /// Returns the time since the state was created.
    pub(crate) fn uptime(&self) -> Duration {
        self.shared.created.elapsed()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    pub(crate) fn traces(&self) -> &TraceStore {
        &self.shared.traces
    }

    /// Serves this log of what happens. To be called before the state is shared.
    #[must_use]
    pub fn with_host_events(mut self, host_events: HostEvents) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.host_events = host_events;
        }
        self
    }

    pub(crate) fn host_events(&self) -> &HostEvents {
        &self.shared.host_events
    }

    pub(crate) fn drafts(&self) -> &Drafts {
        &self.shared.drafts
    }

    /// Returns a token that is cancelled when the server stops, for responses without an end of their own.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.shared.stop
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
    /// its file cannot be loaded. Clients that are authenticated get no names of other apps, which they may not know.
    pub fn app(&self, name: &str) -> Result<Arc<App>, ApiError> {
        // Read before the app, so that an app that is loaded in between is found.
        let loading = self.source().loading();
        self.source().app(name).ok_or_else(|| {
            let report = self.source().report();
            match (report.reason_for_missing_app(name), loading.is_empty()) {
                (Some(reason), _) => ApiError::app_not_loaded(name, reason),
                (None, true) if self.auth().is_some() => ApiError::unknown_app(name),
                (None, true) => ApiError::app_not_found(name, &self.source().app_names()),
                (None, false) if self.auth().is_some() => ApiError::app_loading(name, &[name.to_owned()]),
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
