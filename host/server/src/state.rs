//! The shared state of all request handlers.

mod builder;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use hatchery::{RetentionConfig, SettingsReport};
use hatchery_a2a::{A2aAgents, A2aEndpoint};
use hatchery_core::{EventWindow, Services, Session, SessionKey, pluralize};
use hatchery_engine::{App, RunPermit, Runner};
use hatchery_eval::{EvalStore, Evaluations};
use hatchery_mcp::{McpEndpoint, McpServers};
use hatchery_openapi::Apis;
use hatchery_telemetry::{HostEvents, Metrics, TraceStore};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::auth::{Authentication, Credentials, Principal, missing_credentials};
use crate::body::BodyBudget;
use crate::drafts::Drafts;
use crate::error::ApiError;
use crate::live::LiveConnections;
use crate::service::OriginRules;
use crate::tls::Tls;
pub use builder::AppStateBuilder;
use hatchery::AppSource;
use hatchery::ServerConfig;

/// The shared state of all request handlers. Cheap to clone.
#[derive(Clone)]
pub struct AppState {
    shared: Arc<StateInner>,
}

struct StateInner {
    runner: Runner,
    source: Arc<dyn AppSource>,
    config: ArcSwap<ServerConfig>,
    /// Notified when `config` was replaced.
    changes: watch::Sender<()>,
    origin_rules: Arc<ArcSwap<OriginRules>>,
    is_loopback: AtomicBool,
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
    /// `None` until the server is bound, and while it has no authentication.
    auth: ArcSwapOption<Authentication>,
    /// Empty until the server is bound, and afterwards if it speaks HTTP.
    tls: OnceLock<Tls>,
    host_events: HostEvents,
    drafts: Drafts,
    /// Places for runs of triggers.
    triggers: Arc<Semaphore>,
    /// Cancelled when the server stops.
    stop: CancellationToken,
    retention: watch::Sender<RetentionConfig>,
    created: Instant,
    settings: ArcSwap<SettingsReport>,
}

impl StateInner {
    fn new(runner: Runner, source: Arc<dyn AppSource>, config: ServerConfig) -> Self {
        let body_budget = BodyBudget::new(config.body_memory);
        let evaluations = Evaluations::new(runner.clone(), EvalStore::in_memory());
        let max_triggers = config.max_concurrent_triggers.get().min(Semaphore::MAX_PERMITS);
        Self {
            runner,
            source,
            origin_rules: Arc::new(ArcSwap::from_pointee(OriginRules::new(true, &config))),
            is_loopback: AtomicBool::new(true),
            config: ArcSwap::from_pointee(config),
            changes: watch::Sender::new(()),
            body_budget,
            live: LiveConnections::default(),
            a2a: None,
            mcp: None,
            mcp_servers: McpServers::default(),
            a2a_agents: A2aAgents::default(),
            apis: Apis::default(),
            evaluations,
            traces: TraceStore::default(),
            metrics: Metrics::default(),
            auth: ArcSwapOption::empty(),
            tls: OnceLock::new(),
            host_events: HostEvents::default(),
            drafts: Drafts::default(),
            triggers: Arc::new(Semaphore::new(max_triggers)),
            stop: CancellationToken::new(),
            retention: watch::Sender::new(RetentionConfig::default()),
            settings: ArcSwap::default(),
            created: Instant::now(),
        }
    }
}

impl AppState {
    /// Creates the state of a server that runs the apps of `source` with `runner`, and has no other parts.
    pub fn new(runner: Runner, source: Arc<dyn AppSource>, config: ServerConfig) -> Self {
        Self::builder(runner, source, config).build()
    }

    /// Returns a builder for the state of a server that runs the apps of `source` with `runner`.
    pub fn builder(runner: Runner, source: Arc<dyn AppSource>, config: ServerConfig) -> AppStateBuilder {
        AppStateBuilder::new(runner, source, config)
    }

    /// Reads the keys of the configured authentication.
    ///
    /// # Errors
    /// The problem, without the text of a key.
    pub(crate) fn open_auth(&self) -> Result<(), String> {
        if let (Some(config), None) = (&self.config().auth, self.auth()) {
            self.shared.auth.store(Some(Arc::new(Authentication::open(config)?)));
        }
        Ok(())
    }

    /// Reads the configured certificate.
    ///
    /// # Errors
    /// The problem, with the file.
    pub(crate) fn open_tls(&self) -> Result<(), String> {
        if let (Some(config), None) = (&self.config().tls, self.shared.tls.get()) {
            // Another thread that was faster has read the same configuration.
            let _ = self.shared.tls.set(Tls::open(config)?);
        }
        Ok(())
    }

    /// Returns the certificate. `None` if the server speaks HTTP.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.shared.tls.get()
    }

    /// Checks a changed configuration, and reads its keys and certificate if their settings have changed or `rereads`
    /// is true. Returns a function that applies it: requests and connections in progress keep the earlier one. Changes
    /// of `base_path`, and between HTTP and HTTPS, need a restart.
    ///
    /// # Errors
    /// The problem, with its key and without the text of an API key. Nothing is changed then.
    pub fn prepare(&self, config: ServerConfig, rereads: bool) -> Result<impl FnOnce() + Send + use<>, String> {
        let in_force = self.config();
        let replace_auth = self.prepare_auth(&config, rereads || in_force.auth != config.auth);
        let replace_auth = replace_auth.map_err(|problem| format!("server.auth: {problem}"))?;
        let changed_tls = config.tls.as_ref().filter(|_| rereads || in_force.tls != config.tls);
        let replace_tls = self.tls().zip(changed_tls).map(|(tls, config)| tls.prepare(config)).transpose();
        let replace_tls = replace_tls.map_err(|problem| format!("server.tls: {problem}"))?;
        let shared = self.shared.clone();
        Ok(move || {
            let is_loopback = shared.is_loopback.load(Ordering::Relaxed);
            shared.origin_rules.store(Arc::new(OriginRules::new(is_loopback, &config)));
            shared.body_budget.set(config.body_memory);
            replace_auth();
            if let Some(replace) = replace_tls {
                replace();
            }
            shared.config.store(Arc::new(config));
            shared.changes.send_replace(());
        })
    }

    /// Returns a function that replaces the clients of the server.
    fn prepare_auth(&self, config: &ServerConfig, rereads: bool) -> Result<Box<dyn FnOnce() + Send>, String> {
        let shared = self.shared.clone();
        Ok(match (self.auth(), &config.auth) {
            (Some(auth), Some(config)) if rereads => Box::new(auth.prepare(config)?),
            (Some(_), Some(_)) | (None, None) => Box::new(|| {}),
            (Some(_), None) => Box::new(move || shared.auth.store(None)),
            (None, Some(config)) => {
                let auth = Arc::new(Authentication::open(config)?);
                Box::new(move || shared.auth.store(Some(auth)))
            }
        })
    }

    /// Applies other rules for the deletion of sessions.
    pub fn set_retention(&self, retention: RetentionConfig) {
        self.shared.runner.set_kept_artifacts(retention.keep_artifacts);
        let is_changed = |rules: &mut RetentionConfig| std::mem::replace(rules, retention) != retention;
        self.shared.retention.send_if_modified(is_changed);
    }

    /// Reports other settings.
    pub fn set_settings(&self, settings: SettingsReport) {
        self.shared.settings.store(Arc::new(settings));
    }

    /// Returns the authentication. `None` if the server has none.
    pub(crate) fn auth(&self) -> Option<Arc<Authentication>> {
        self.shared.auth.load_full()
    }

    /// Returns the sender of a message over a connection that was opened with these credentials. Its permissions may
    /// have changed since.
    ///
    /// # Errors
    /// As for a request, if there is authentication.
    pub(crate) async fn admit_message(&self, credentials: Option<&Credentials>) -> Result<Principal, ApiError> {
        match (self.auth(), credentials) {
            (Some(auth), Some(credentials)) => auth.admit_message(credentials).await,
            (Some(_), None) => Err(missing_credentials()),
            (None, _) => Ok(Principal::Anybody),
        }
    }

    /// Returns the number of requests that were refused because they had no valid credentials.
    pub fn refused_credentials(&self) -> u64 {
        self.auth().map_or(0, |auth| auth.refused_requests())
    }

    pub(crate) fn a2a(&self) -> Option<&A2aEndpoint> {
        self.shared.a2a.as_ref()
    }

    /// Returns the connections of live runs.
    pub(crate) fn live(&self) -> &LiveConnections {
        &self.shared.live
    }

    /// Returns the rules by which sessions are deleted, and their changes.
    pub(crate) fn retention(&self) -> watch::Receiver<RetentionConfig> {
        self.shared.retention.subscribe()
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> Arc<SettingsReport> {
        self.shared.settings.load_full()
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

    pub(crate) fn host_events(&self) -> &HostEvents {
        &self.shared.host_events
    }

    pub(crate) fn drafts(&self) -> &Drafts {
        &self.shared.drafts
    }

    /// Returns the semaphore that limits the runs of triggers.
    pub(crate) fn triggers(&self) -> &Arc<Semaphore> {
        &self.shared.triggers
    }

    /// Returns a token that is cancelled when the server stops, for responses without their own end.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.shared.stop
    }

    pub(crate) fn evaluations(&self) -> &Evaluations {
        &self.shared.evaluations
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

    /// Returns the number of bytes that further request bodies may use.
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

    /// Returns the configuration in force.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.shared.config.load_full()
    }

    /// Returns a receiver that is notified when the configuration was replaced.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changes.subscribe()
    }

    /// Records whether the server listens on a loopback address, and returns the rules for the origins of requests.
    pub(crate) fn set_loopback(&self, is_loopback: bool) -> Arc<ArcSwap<OriginRules>> {
        self.shared.is_loopback.store(is_loopback, Ordering::Relaxed);
        self.shared.origin_rules.store(Arc::new(OriginRules::new(is_loopback, &self.config())));
        self.shared.origin_rules.clone()
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
            let runs = pluralize(max, "run", "runs");
            let error = ApiError::busy(format!("the maximum of {runs} is active; try again"));
            error.advise("raise server.max_concurrent_runs in hatchery.yaml to allow more")
        })
    }
}
