//! What all handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hatchery_core::{EventWindow, Services, Session, SessionKey};
use hatchery_engine::{App, Runner};
use tokio_util::sync::CancellationToken;

use crate::body::BodyBudget;
use crate::error::ApiError;
use hatchery::config::ServerConfig;
use hatchery::source::AppSource;

/// What all handlers share. Cheap to clone.
#[derive(Clone)]
pub struct AppState {
    shared: Arc<Shared>,
}

struct Shared {
    runner: Runner,
    source: Arc<dyn AppSource>,
    config: ServerConfig,
    body_budget: BodyBudget,
    starting: AtomicUsize,
    stop_runs: CancellationToken,
}

impl AppState {
    /// Serves the apps of `source` by `runner`.
    pub fn new(runner: Runner, source: Arc<dyn AppSource>, config: ServerConfig) -> Self {
        let (stop_runs, body_budget) = (CancellationToken::new(), BodyBudget::new(config.body_memory));
        let starting = AtomicUsize::new(0);
        Self { shared: Arc::new(Shared { runner, source, config, body_budget, starting, stop_runs }) }
    }

    /// Bytes that the bodies of requests may take beside those that there are now.
    pub fn available_body_memory(&self) -> usize {
        self.shared.body_budget.available()
    }

    pub(crate) fn body_budget(&self) -> &BodyBudget {
        &self.shared.body_budget
    }

    /// Runs agents.
    pub fn runner(&self) -> &Runner {
        &self.shared.runner
    }

    /// Sessions, artifacts, memory and models.
    pub fn services(&self) -> &Services {
        self.shared.runner.services()
    }

    /// The apps.
    pub fn source(&self) -> &dyn AppSource {
        self.shared.source.as_ref()
    }

    /// Limits and habits.
    pub fn config(&self) -> &ServerConfig {
        &self.shared.config
    }

    /// Cancelled when the server will wait no longer for its runs; the parent of every run's token.
    pub fn stop_runs(&self) -> &CancellationToken {
        &self.shared.stop_runs
    }

    /// The app of this name.
    ///
    /// # Errors
    /// 404 with the names that there are; 503 while something is loaded that may bring it.
    pub fn app(&self, name: &str) -> Result<Arc<App>, ApiError> {
        // Asked first: what is loaded in between is found.
        let loading = self.source().loading();
        self.source().app(name).ok_or_else(|| match loading.is_empty() {
            true => ApiError::app_not_found(name, &self.source().app_names()),
            false => ApiError::app_loading(name, &loading),
        })
    }

    /// The session with as many events as `window` says.
    ///
    /// # Errors
    /// 404 when there is no such app or session; 500 when the storage fails.
    pub async fn session(&self, key: &SessionKey, window: EventWindow) -> Result<Session, ApiError> {
        self.app(&key.app)?;
        let session = self.services().sessions.get(key, window).await?;
        session.ok_or_else(|| hatchery_core::StoreError::SessionNotFound(key.clone()).into())
    }

    /// Leave to start one more run; it is given back when the [`Admission`] is dropped, by then the runner counts the run itself.
    ///
    /// # Errors
    /// 503 when as many runs are active as may be.
    pub(crate) fn admit(&self) -> Result<Admission<'_>, ApiError> {
        let admission = Admission { starting: &self.shared.starting };
        let starting = self.shared.starting.fetch_add(1, Ordering::SeqCst) + 1;
        let most = self.config().max_concurrent_runs;
        if starting + self.runner().active_runs() > most {
            return Err(ApiError::busy(format!(
                "{most} runs are active, which is the most; try again, or raise server.max_concurrent_runs in hatchery.yaml"
            )));
        }
        Ok(admission)
    }
}

/// Leave to start a run.
pub(crate) struct Admission<'a> {
    starting: &'a AtomicUsize,
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.starting.fetch_sub(1, Ordering::SeqCst);
    }
}
