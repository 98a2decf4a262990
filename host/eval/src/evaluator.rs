//! Runs of an app on the cases of a set, and their scores.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use hatchery_core::{CallerOrigin, Event, JsonMap, RunError, StateScope, pluralize};
use hatchery_engine::{App, RunRequest, Runner};
use tokio_util::sync::CancellationToken;

use crate::criteria::Metric;
use crate::error::EvalError;
use crate::eval_set::{EvalCase, EvalSet, InvocationRecord};
use crate::metrics;
use crate::record::extract_record;
use crate::result::{EvalCaseResult, EvalSetResult, EvalStatus, InvocationResult, MetricResult};

/// The prefix of the ids of sessions of evaluations, which are not listed to users.
pub const EVAL_SESSION_PREFIX: &str = "adk-eval-session-";

/// Maximum number of runs of each case.
pub const MAX_RUNS: u32 = 100;

/// Maximum number of runs of one evaluation. Their events are part of its result.
const MAX_TOTAL_RUNS: usize = 2000;

/// Maximum number of runs at the same time.
const MAX_PARALLEL: usize = 64;

/// The options of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct EvalOptions {
    pub metrics: Vec<Metric>,
    /// The cases to run; empty for all.
    pub case_ids: Vec<String>,
    /// Number of runs of each case.
    pub num_runs: u32,
    /// Maximum number of concurrent runs.
    pub parallelism: usize,
}

impl EvalOptions {
    /// Returns options for one run of each case, four at the same time.
    pub fn new(metrics: Vec<Metric>) -> Self {
        Self { metrics, case_ids: Vec::new(), num_runs: 1, parallelism: 4 }
    }

    fn check(&self) -> Result<(), EvalError> {
        let invalid = |message: String| Err(EvalError::InvalidRequest(message));
        if self.metrics.is_empty() {
            return invalid("there is no metric; name at least one".into());
        }
        if !(1..=MAX_RUNS).contains(&self.num_runs) {
            return invalid(format!("the number of runs is {}; it must be from 1 to {MAX_RUNS}", self.num_runs));
        }
        if !(1..=MAX_PARALLEL).contains(&self.parallelism) {
            return invalid(format!("the parallelism is {}; it must be from 1 to {MAX_PARALLEL}", self.parallelism));
        }
        Ok(())
    }
}

/// Progress of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The runs that have ended.
    pub done: usize,
    /// All runs.
    pub total: usize,
}

/// Runs an app on a set. Dropping the future cancels the runs.
///
/// # Errors
/// If the options are invalid or name a case that does not exist. A failed run is a result.
pub(crate) async fn evaluate(
    runner: &Runner,
    app: &Arc<App>,
    set: &EvalSet,
    options: &EvalOptions,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<EvalSetResult, EvalError> {
    options.check()?;
    let cases = select_cases(set, &options.case_ids)?;
    let total = cases.len() * options.num_runs as usize;
    if total > MAX_TOTAL_RUNS {
        let cases = pluralize(cases.len(), "case", "cases");
        let message = format!("{cases} run {} times are {total} runs", options.num_runs);
        let message =
            format!("{message}; an evaluation has at most {MAX_TOTAL_RUNS}: name fewer cases, or run them less often");
        return Err(EvalError::InvalidRequest(message));
    }
    let cancel = CancellationToken::new();
    let _guard = cancel.clone().drop_guard();
    let evaluator = Evaluator { runner, app, set: &set.eval_set_id, metrics: &options.metrics, cancel };
    let done = AtomicUsize::new(0);
    progress(Progress { done: 0, total });
    let mut runs: Vec<BoxFuture<'_, EvalCaseResult>> = Vec::with_capacity(total);
    for case in cases.iter().flat_map(|case| std::iter::repeat_n(*case, options.num_runs as usize)) {
        let (evaluator, done) = (&evaluator, &done);
        let run = async move {
            let result = evaluator.run(case).await;
            progress(Progress { done: done.fetch_add(1, Ordering::Relaxed) + 1, total });
            result
        };
        runs.push(run.boxed());
    }
    let results = stream::iter(runs).buffered(options.parallelism).collect().await;
    Ok(EvalSetResult::new(&app.name, &set.eval_set_id, results))
}

/// Returns the cases with these ids, each once; all cases if there is no id.
fn select_cases<'a>(set: &'a EvalSet, ids: &[String]) -> Result<Vec<&'a EvalCase>, EvalError> {
    if let Some(case) = ids.iter().find(|id| set.case(id).is_none()) {
        return Err(EvalError::CaseNotFound { set: set.eval_set_id.clone(), case: case.clone() });
    }
    let ids: HashSet<_> = ids.iter().collect();
    Ok(set.eval_cases.iter().filter(|case| ids.is_empty() || ids.contains(&case.eval_id)).collect())
}

struct Evaluator<'a> {
    runner: &'a Runner,
    app: &'a Arc<App>,
    set: &'a str,
    metrics: &'a [Metric],
    cancel: CancellationToken,
}

impl Evaluator<'_> {
    /// Runs a case once, in its own session and as its own user, and scores it.
    async fn run(&self, case: &EvalCase) -> EvalCaseResult {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let session = format!("{EVAL_SESSION_PREFIX}{id}");
        let input = case.session_input.as_ref();
        let named = input.map(|input| input.user_id.as_str()).filter(|user| !user.is_empty()).unwrap_or("user");
        // Another user for each run: neither the state nor the memory of a person is read or changed.
        let user = format!("{}-eval-{}", truncate(named, 200), id.get(..12).unwrap_or_default());
        let state = input.map(|input| without_app_state(&input.state)).unwrap_or_default();
        let (actual, error) = match self.converse(case, &user, &session, state).await {
            (actual, None) if case.conversation.is_empty() => (actual, Some("the case has no conversation".to_owned())),
            (actual, error) => (actual, error),
        };
        let turns = self.score_turns(actual, &case.conversation).await;
        let overall = self.overall(&turns);
        let status = match &error {
            Some(_) => EvalStatus::Failed,
            None => EvalStatus::all(overall.iter().map(|result| result.eval_status)),
        };
        EvalCaseResult {
            eval_set_id: self.set.into(),
            eval_id: case.eval_id.clone(),
            final_eval_status: status,
            overall_eval_metric_results: overall,
            eval_metric_result_per_invocation: turns,
            session_id: session,
            user_id: user,
            error_message: error,
        }
    }

    /// Sends the messages of a case in sequence. Returns the turns, and the reason if one of them failed.
    async fn converse(
        &self,
        case: &EvalCase,
        user: &str,
        session: &str,
        state: JsonMap,
    ) -> (Vec<InvocationRecord>, Option<String>) {
        let mut turns = Vec::new();
        let sessions = &self.runner.services().sessions;
        if let Err(error) = sessions.create(&self.app.name, user, Some(session), state).await {
            return (turns, Some(RunError::from(error).client_message()));
        }
        for expected in &case.conversation {
            let mut events = Vec::new();
            let outcome = self.run_turn(expected, user, session, &mut events).await;
            turns.push(extract_record(expected.user_content.clone(), &events));
            if let Err(error) = outcome {
                let reason = format!("turn {}: {}: {}", turns.len(), error.code(), error.client_message());
                return (turns, Some(reason));
            }
        }
        (turns, None)
    }

    async fn run_turn(
        &self,
        expected: &InvocationRecord,
        user: &str,
        session: &str,
        events: &mut Vec<Arc<Event>>,
    ) -> Result<(), RunError> {
        let mut message = expected.user_content.clone();
        message.role = None;
        let request = RunRequest {
            origin: CallerOrigin::InProcess,
            cancel: self.cancel.child_token(),
            ..RunRequest::new(user, session, message)
        };
        let mut run = self.runner.run(self.app.clone(), request).await?;
        while let Some(event) = run.next().await {
            events.push(event?);
        }
        Ok(())
    }

    async fn score_turns(&self, actual: Vec<InvocationRecord>, expected: &[InvocationRecord]) -> Vec<InvocationResult> {
        let models = &self.runner.services().models;
        let mut turns = Vec::new();
        for (actual, expected) in actual.into_iter().zip(expected) {
            let mut results = Vec::new();
            for metric in self.metrics {
                results.push(metrics::score(metric, &actual, expected, models.as_ref()).await);
            }
            turns.push(InvocationResult {
                actual_invocation: actual,
                expected_invocation: expected.clone(),
                eval_metric_results: results,
            });
        }
        turns
    }

    fn overall(&self, turns: &[InvocationResult]) -> Vec<MetricResult> {
        let of_metric = |(index, metric)| {
            let results: Vec<_> = turns.iter().filter_map(|turn| turn.eval_metric_results.get(index)).collect();
            metrics::mean(metric, &results)
        };
        self.metrics.iter().enumerate().map(of_metric).collect()
    }
}

/// Returns the state without the keys that all users of the app share.
fn without_app_state(state: &JsonMap) -> JsonMap {
    let is_kept = |key: &String| StateScope::split_key(key).0 != StateScope::App;
    state.iter().filter(|(key, _)| is_kept(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns at most `max` bytes of a string.
fn truncate(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}
