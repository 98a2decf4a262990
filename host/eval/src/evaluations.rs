//! The evaluation service: sets, cases from sessions, evaluations and results of the apps of a runner.

use std::sync::Arc;

use hatchery_core::{EventWindow, JsonMap, Session, SessionKey, StateScope, StoreError, Timestamp};
use hatchery_engine::{App, Runner};
use tokio::sync::Semaphore;

use crate::criteria::{Metric, default_metrics};
use crate::error::EvalError;
use crate::eval_set::{EvalCase, EvalSet, SessionInput};
use crate::evaluator::{EvalOptions, Progress, evaluate};
use crate::record::extract_records;
use crate::result::EvalSetResult;
use crate::store::EvalStore;

/// Maximum number of evaluations at the same time. Each makes several runs at the same time.
const MAX_EVALUATIONS: usize = 4;

/// Maximum length of a case's id in bytes.
const MAX_CASE_ID: usize = 256;

/// Evaluates apps. Cheap to clone.
#[derive(Clone)]
pub struct Evaluations(Arc<Inner>);

struct Inner {
    runner: Runner,
    store: EvalStore,
    permits: Semaphore,
}

/// A request to evaluate a set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EvalRequest {
    pub set_id: String,
    /// The cases; empty for all.
    pub case_ids: Vec<String>,
    /// The metrics; `None` for the metrics of the app's `test_config.json`, or else the [default
    /// ones](crate::default_metrics).
    pub metrics: Option<Vec<Metric>>,
    /// Number of runs of each case. Default: 1.
    pub num_runs: Option<u32>,
    /// Maximum number of concurrent runs. Default: 4.
    pub parallelism: Option<usize>,
}

impl Evaluations {
    /// Evaluates with the services and plugins of `runner`.
    pub fn new(runner: Runner, store: EvalStore) -> Self {
        Self(Arc::new(Inner { runner, store, permits: Semaphore::new(MAX_EVALUATIONS) }))
    }

    /// Calls the store on a thread for blocking work.
    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&EvalStore) -> Result<T, EvalError> + Send + 'static,
    ) -> Result<T, EvalError> {
        let inner = self.0.clone();
        let joined = tokio::task::spawn_blocking(move || work(&inner.store)).await;
        joined.unwrap_or_else(|error| Err(std::io::Error::other(error).into()))
    }

    /// Returns the ids of the sets of an app, sorted.
    pub async fn set_ids(&self, app: &App) -> Result<Vec<String>, EvalError> {
        let app = app.name.clone();
        self.with_store(move |store| store.set_ids(&app)).await
    }

    /// Returns a set.
    ///
    /// # Errors
    /// If there is none, or its file cannot be used.
    pub async fn set(&self, app: &App, id: &str) -> Result<EvalSet, EvalError> {
        let (app, id) = (app.name.clone(), id.to_owned());
        self.with_store(move |store| store.set(&app, &id)).await
    }

    /// Stores a new set. Returns it with the time of its creation.
    ///
    /// # Errors
    /// If its id is invalid or in use, or a limit is reached.
    pub async fn create_set(&self, app: &App, mut set: EvalSet) -> Result<EvalSet, EvalError> {
        if set.creation_timestamp == Timestamp::default() {
            set.creation_timestamp = Timestamp::now();
        }
        let app = app.name.clone();
        self.with_store(move |store| store.create_set(&app, &set).map(|()| set)).await
    }

    /// Deletes a set.
    ///
    /// # Errors
    /// If there is none, or it is a file of the app.
    pub async fn delete_set(&self, app: &App, id: &str) -> Result<(), EvalError> {
        let (app, id) = (app.name.clone(), id.to_owned());
        self.with_store(move |store| store.delete_set(&app, &id)).await
    }

    /// Adds a case to a set of the host.
    ///
    /// # Errors
    /// If the id is invalid or in use, or the set cannot be changed.
    pub async fn add_case(&self, app: &App, set_id: &str, case: EvalCase) -> Result<(), EvalError> {
        check_case_id(&case.eval_id)?;
        let (app, set_id) = (app.name.clone(), set_id.to_owned());
        let change = move |set: &mut EvalSet| {
            if set.case(&case.eval_id).is_some() {
                return Err(EvalError::CaseExists { set: set.eval_set_id.clone(), case: case.eval_id });
            }
            set.eval_cases.push(case);
            Ok(())
        };
        self.with_store(move |store| store.update_set(&app, &set_id, change)).await
    }

    /// Adds a case with the turns of a session, and with the part of its initial state that no event has changed.
    ///
    /// # Errors
    /// If there is no such session, or it has no turn, or as [`Evaluations::add_case`].
    pub async fn add_session(
        &self,
        app: &App,
        set_id: &str,
        case_id: &str,
        user: &str,
        session: &str,
    ) -> Result<(), EvalError> {
        let key = SessionKey::new(app.name.as_str(), user, session);
        let session = if key.belongs_to_host() {
            None
        } else {
            self.0.runner.services().sessions.get(&key, EventWindow::All).await?
        };
        let session = session.ok_or(StoreError::SessionNotFound(key))?;
        let conversation = extract_records(&session.events);
        if conversation.is_empty() {
            let message = format!("session `{}` has no message of its user; send one first", session.key.id);
            return Err(EvalError::InvalidRequest(message));
        }
        let case = EvalCase {
            eval_id: case_id.into(),
            conversation,
            session_input: Some(SessionInput {
                app_name: app.name.clone(),
                user_id: user.into(),
                state: initial_state(&session),
            }),
            creation_timestamp: Timestamp::now(),
            ..EvalCase::default()
        };
        self.add_case(app, set_id, case).await
    }

    /// Replaces a case. Its id stays.
    ///
    /// # Errors
    /// If there is no such case, or the set cannot be changed.
    pub async fn replace_case(&self, app: &App, set_id: &str, case: EvalCase) -> Result<(), EvalError> {
        let (app, set_id) = (app.name.clone(), set_id.to_owned());
        let change = move |set: &mut EvalSet| {
            let set_id = set.eval_set_id.clone();
            let stored = set.eval_cases.iter_mut().find(|stored| stored.eval_id == case.eval_id);
            match stored {
                Some(stored) => *stored = case,
                None => return Err(EvalError::CaseNotFound { set: set_id, case: case.eval_id }),
            }
            Ok(())
        };
        self.with_store(move |store| store.update_set(&app, &set_id, change)).await
    }

    /// Deletes a case.
    ///
    /// # Errors
    /// If there is no such case, or the set cannot be changed.
    pub async fn delete_case(&self, app: &App, set_id: &str, case_id: &str) -> Result<(), EvalError> {
        let (app, set_id, case_id) = (app.name.clone(), set_id.to_owned(), case_id.to_owned());
        let change = move |set: &mut EvalSet| {
            let count = set.eval_cases.len();
            set.eval_cases.retain(|case| case.eval_id != case_id);
            if set.eval_cases.len() < count {
                Ok(())
            } else {
                Err(EvalError::CaseNotFound { set: set.eval_set_id.clone(), case: case_id })
            }
        };
        self.with_store(move |store| store.update_set(&app, &set_id, change)).await
    }

    /// Evaluates an app, and stores the result. Dropping the future cancels the runs.
    ///
    /// # Errors
    /// As [`Evaluations::evaluate`].
    pub async fn run(&self, app: &Arc<App>, request: EvalRequest) -> Result<EvalSetResult, EvalError> {
        let result = self.evaluate(app, request, &|_| ()).await?;
        let name = app.name.clone();
        self.with_store(move |store| store.save_result(&name, &result).map(|()| result)).await
    }

    /// Evaluates an app without storing the result. Dropping the future cancels the runs.
    ///
    /// # Errors
    /// If there is no such set or case, a metric is unknown, or too many evaluations are in progress. Failed runs are
    /// part of the result.
    pub async fn evaluate(
        &self,
        app: &Arc<App>,
        request: EvalRequest,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<EvalSetResult, EvalError> {
        let _permit = self.0.permits.try_acquire().map_err(|_| EvalError::Busy(MAX_EVALUATIONS))?;
        let set = self.set(app, &request.set_id).await?;
        let metrics = match request.metrics {
            Some(metrics) => metrics,
            None => self.criteria(app).await?,
        };
        let default = EvalOptions::new(metrics);
        let options = EvalOptions {
            case_ids: request.case_ids,
            num_runs: request.num_runs.unwrap_or(default.num_runs),
            parallelism: request.parallelism.unwrap_or(default.parallelism),
            ..default
        };
        evaluate(&self.0.runner, app, &set, &options, progress).await
    }

    /// Returns the metrics of an app: the metrics in its `test_config.json`, or else the default metrics.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub async fn criteria(&self, app: &App) -> Result<Vec<Metric>, EvalError> {
        let app = app.name.clone();
        let criteria = self.with_store(move |store| store.criteria(&app)).await?;
        Ok(criteria.unwrap_or_else(default_metrics))
    }

    /// Returns the ids of the results of an app, oldest first.
    pub async fn result_ids(&self, app: &App) -> Result<Vec<String>, EvalError> {
        let app = app.name.clone();
        self.with_store(move |store| store.result_ids(&app)).await
    }

    /// Returns a result as JSON.
    ///
    /// # Errors
    /// If there is none.
    pub async fn result(&self, app: &App, id: &str) -> Result<Vec<u8>, EvalError> {
        let (app, id) = (app.name.clone(), id.to_owned());
        self.with_store(move |store| store.result(&app, &id)).await
    }
}

/// Returns the initial state keys of a session that no event has set since.
fn initial_state(session: &Session) -> JsonMap {
    let is_initial = |key: &str| {
        let is_own = matches!(StateScope::split_key(key).0, StateScope::Session | StateScope::User);
        is_own && !session.events.iter().any(|event| event.actions.state_delta.contains_key(key))
    };
    let own = session.state.iter().filter(|(key, _)| is_initial(key));
    own.map(|(key, value)| (key.to_owned(), value.clone())).collect()
}

fn check_case_id(id: &str) -> Result<(), EvalError> {
    if !id.trim().is_empty() && id.len() <= MAX_CASE_ID && !id.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!("the id of an eval case has 1 to {MAX_CASE_ID} bytes and no control characters");
    Err(EvalError::InvalidRequest(message))
}
