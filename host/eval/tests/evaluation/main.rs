//! Evaluations of native apps on in-memory services.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod sets;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, Content, CustomAgent, CustomAgentSpec, EventWindow, JsonMap, Model, ModelError,
    ModelErrorKind, ModelResolver, RunConfig, RunError, SessionKey,
};
use hatchery_engine::build::{custom, function_tool, llm};
use hatchery_engine::{App, RunRequest, Runner};
use hatchery_eval::{
    EvalCase, EvalCaseResult, EvalError, EvalRequest, EvalSet, EvalStatus, EvalStore, Evaluations, Metric, Progress,
    summarize,
};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// The models by name.
struct Models(BTreeMap<&'static str, Arc<dyn Model>>);

impl ModelResolver for Models {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let found = self.0.get(name).cloned();
        found.ok_or_else(|| ModelError::new(ModelErrorKind::UnknownModel, name, "there is no such model"))
    }
}

fn evaluations_of(store: EvalStore, judge: Scripted) -> Evaluations {
    let models = Models([("judge", Arc::new(judge) as Arc<dyn Model>)].into());
    Evaluations::new(Runner::new(hatchery_stores::in_memory(Arc::new(models))), store)
}

fn evaluations() -> Evaluations {
    evaluations_of(EvalStore::in_memory(), Scripted::new())
}

/// An app that rolls dice when asked to.
fn dice() -> Arc<App> {
    dice_named("dice")
}

fn dice_named(app: &str) -> Arc<App> {
    let model = Scripted::new()
        .on_user("roll", Reply::call("roll_die", json!({"sides": 6})))
        .on_tool("roll_die", "You rolled a 4.")
        .default_reply("I only roll dice.");
    let roll = function_tool("roll_die", "Rolls a die.", |_: JsonMap, _| async { Ok(4) });
    let agent = llm("dice").model_instance("scripted", Arc::new(model)).tool(roll).build().unwrap();
    Arc::new(App::new(app, agent).unwrap())
}

fn app_of(agent: Agent) -> Arc<App> {
    Arc::new(App::new(agent.name.clone(), agent).unwrap())
}

fn turn(message: &str, calls: Value, response: Option<&str>) -> Value {
    let mut turn = json!({
        "userContent": {"role": "user", "parts": [{"text": message}]},
        "intermediateData": {"toolUses": calls},
    });
    if let Some(response) = response {
        turn["finalResponse"] = json!({"role": "model", "parts": [{"text": response}]});
    }
    turn
}

fn set(cases: Value) -> EvalSet {
    EvalSet::from_value(json!({"evalSetId": "set", "evalCases": cases}), "set").unwrap()
}

fn request() -> EvalRequest {
    EvalRequest { set_id: "set".into(), ..EvalRequest::default() }
}

fn metric(json: Value) -> Option<Vec<Metric>> {
    Some(vec![Metric::from_value(json).unwrap()])
}

/// Two cases: one that the app passes, and one whose first turn differs in an argument and in its response.
fn two_cases() -> EvalSet {
    let calls = |sides| json!([{"name": "roll_die", "args": {"sides": sides}}]);
    set(json!([
        {"evalId": "good", "conversation": [
            turn("Roll!", calls(6.0), Some("You rolled a 4.")), turn("Bye", json!([]), Some("I only roll dice.")),
        ]},
        {"evalId": "bad", "conversation": [
            turn("Roll!", calls(20.0), Some("No dice today")), turn("Bye", json!([]), Some("I only roll dice.")),
        ]},
    ]))
}

#[tokio::test]
async fn an_app_is_run_on_each_turn_and_scored_by_calls_and_words() {
    let (evaluations, app) = (evaluations(), dice());
    evaluations.create_set(&app, two_cases()).await.unwrap();
    let result = evaluations.run(&app, request()).await.unwrap();
    let [good, bad] = &result.eval_case_results[..] else { panic!("{result:?}") };
    assert_eq!((good.final_eval_status, bad.final_eval_status), (EvalStatus::Passed, EvalStatus::Failed));
    let scores = |run: &EvalCaseResult| -> Vec<Option<f64>> {
        run.overall_eval_metric_results.iter().map(|result| result.score).collect()
    };
    assert_eq!(scores(good), [Some(1.0), Some(1.0)]);
    assert_eq!(scores(bad), [Some(0.5), Some(0.5)]);
    let first = &bad.eval_metric_result_per_invocation[0];
    assert_eq!(first.actual_invocation.tool_calls()[0].args["sides"], 6);
    assert_eq!(first.actual_invocation.response_text().unwrap(), "You rolled a 4.");
    assert!(first.actual_invocation.invocation_id.starts_with("e-"));
    assert_eq!(first.expected_invocation.response_text().unwrap(), "No dice today");
}

#[tokio::test]
async fn results_are_stored_in_the_format_of_clients() {
    let (evaluations, app) = (evaluations(), dice());
    evaluations.create_set(&app, two_cases()).await.unwrap();
    let result = evaluations.run(&app, request()).await.unwrap();
    let ids = evaluations.result_ids(&app).await.unwrap();
    assert_eq!(ids, std::slice::from_ref(&result.eval_set_result_id));
    assert!(ids[0].starts_with("dice_set_"), "{ids:?}");
    let json: Value = serde_json::from_slice(&evaluations.result(&app, &ids[0]).await.unwrap()).unwrap();
    assert_eq!(json["evalSetId"], "set");
    let bad = &json["evalCaseResults"][1];
    assert_eq!((&bad["evalId"], &bad["finalEvalStatus"]), (&json!("bad"), &json!(2)));
    assert_eq!(
        bad["overallEvalMetricResults"][0],
        json!({
            "metricName": "tool_trajectory_avg_score", "threshold": 1.0,
            "criterion": {"matchType": "EXACT", "threshold": 1.0}, "score": 0.5, "evalStatus": 2,
        })
    );
    assert!(!json.to_string().contains("null"), "{json}");
    let missing = evaluations.result(&app, "dice_set_1").await.unwrap_err();
    assert_eq!(
        (missing.code(), missing.to_string()),
        ("EVAL_RESULT_NOT_FOUND", "eval result not found: dice_set_1".into())
    );
}

#[tokio::test]
async fn each_run_has_a_session_and_a_user_of_its_own() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let counter = custom("counter", {
        let seen = seen.clone();
        move |cx| {
            let seen = seen.clone();
            async move {
                let state = |key| cx.call.state(key);
                seen.lock().unwrap().push((state("lang"), state("user:count"), state("app:shared")));
                cx.call.set_state("user:count", json!(1));
                cx.say("ok").await?;
                Ok(())
            }
        }
    });
    let app = app_of(counter.build().unwrap());
    let evaluations = evaluations();
    let case = json!([{
        "evalId": "c", "conversation": [turn("Hi", json!([]), Some("ok"))],
        "sessionInput": {"appName": "counter", "userId": "ada", "state": {"lang": "en", "user:count": 7, "app:shared": 1}},
    }]);
    evaluations.create_set(&app, set(case)).await.unwrap();
    let request = EvalRequest { num_runs: Some(3), ..request() };
    let result = evaluations.run(&app, request).await.unwrap();
    // App state is not set, and no run sees the user state of another.
    assert_eq!(*seen.lock().unwrap(), vec![(Some(json!("en")), Some(json!(7)), None); 3]);
    let mut users: Vec<_> = result.eval_case_results.iter().map(|run| run.user_id.clone()).collect();
    users.dedup();
    assert_eq!(users.len(), 3);
    assert!(users.iter().all(|user| user.starts_with("ada-eval-")), "{users:?}");
    assert!(result.eval_case_results.iter().all(|run| run.session_id.starts_with("adk-eval-session-")));
    assert_eq!(summarize(&result)[0].passed_runs, 3);
}

#[tokio::test]
async fn the_mean_of_several_runs_decides() {
    let agent = llm("moody")
        .model_instance("scripted", Arc::new(Scripted::sequence(["yes", "no", "no", "no"])))
        .build()
        .unwrap();
    let (app, evaluations) = (app_of(agent), evaluations());
    let case = json!([{"evalId": "c", "conversation": [turn("Well?", json!([]), Some("no"))]}]);
    evaluations.create_set(&app, set(case)).await.unwrap();
    let request = EvalRequest {
        num_runs: Some(4),
        metrics: metric(json!({"metricName": "response_match_score", "threshold": 0.75})),
        ..request()
    };
    let result = evaluations.run(&app, request).await.unwrap();
    let summary = &summarize(&result)[0];
    assert_eq!((summary.passed_runs, summary.runs), (3, 4));
    assert_eq!((summary.metrics[0].score, summary.eval_status), (Some(0.75), EvalStatus::Passed));
}

#[tokio::test]
async fn a_model_judges_the_meaning_of_responses() {
    let judge = Scripted::new()
        .on_user("Paris", "{\"reasoning\": \"the same city\", \"verdict\": \"valid\"}")
        .default_reply("I cannot tell.");
    let evaluations = evaluations_of(EvalStore::in_memory(), judge);
    let agent = llm("guide").model_instance(
        "scripted",
        Arc::new(Scripted::new().on_user("France", "It's Paris.").default_reply("It's Rome.")),
    );
    let app = app_of(agent.build().unwrap());
    let cases = json!([
        {"evalId": "france", "conversation": [turn("Capital of France?", json!([]), Some("Paris"))]},
        {"evalId": "italy", "conversation": [turn("Capital of Italy?", json!([]), Some("Rome"))]},
        {"evalId": "open", "conversation": [turn("Capital of France?", json!([]), None)]},
    ]);
    evaluations.create_set(&app, set(cases)).await.unwrap();
    let judged = |judge: &str| {
        metric(json!({
            "metricName": "final_response_match_v2",
            "criterion": {"judgeModelOptions": {"judgeModel": judge, "numSamples": 3}},
        }))
    };
    let result = evaluations.run(&app, EvalRequest { metrics: judged("judge"), ..request() }).await.unwrap();
    let results: Vec<_> = result
        .eval_case_results
        .iter()
        .map(|run| {
            let metric = &run.overall_eval_metric_results[0];
            let turn = &run.eval_metric_result_per_invocation[0].eval_metric_results[0];
            (run.final_eval_status, metric.score, turn.details.as_ref().unwrap().explanation.as_str())
        })
        .collect();
    assert_eq!(
        results,
        [
            (EvalStatus::Passed, Some(1.0), "3 of 3 answers are `valid`; the same city"),
            (
                EvalStatus::NotEvaluated,
                None,
                "no verdict of `judge` in 3 answers: it answered \"I cannot tell.\" instead of a JSON object with a `verdict`"
            ),
            (EvalStatus::NotEvaluated, None, "the case has no expected final response"),
        ]
    );
    let unknown = evaluations.run(&app, EvalRequest { metrics: judged("nobody"), ..request() }).await.unwrap();
    let explanation =
        &unknown.eval_case_results[0].overall_eval_metric_results[0].details.as_ref().unwrap().explanation;
    assert!(explanation.starts_with("the judge cannot be asked: "), "{explanation}");
}

#[tokio::test]
async fn a_failed_run_fails_its_case_only() {
    let agent = custom("fails", |cx: AgentContext| async move {
        if cx.call.invocation.user_content().text() == "Break" {
            let message = "the oven is cold".into();
            return Err(RunError::Agent { agent: "fails".into(), code: "AGENT_FAILED".into(), message });
        }
        cx.say("ok").await?;
        Ok(())
    });
    let (app, evaluations) = (app_of(agent.build().unwrap()), evaluations());
    let ok = || turn("Go", json!([]), Some("ok"));
    let cases = json!([
        {"evalId": "breaks", "conversation": [ok(), turn("Break", json!([]), Some("ok")), ok()]},
        {"evalId": "works", "conversation": [ok()]},
        {"evalId": "empty", "conversation": []},
    ]);
    evaluations.create_set(&app, set(cases)).await.unwrap();
    let result = evaluations.run(&app, request()).await.unwrap();
    let [breaks, works, empty] = &result.eval_case_results[..] else { panic!("{result:?}") };
    assert_eq!(breaks.final_eval_status, EvalStatus::Failed);
    let error = breaks.error_message.as_deref().unwrap();
    assert!(error.starts_with("turn 2: AGENT_FAILED: ") && error.contains("the oven is cold"), "{error}");
    assert_eq!(breaks.eval_metric_result_per_invocation.len(), 2, "the turn that failed is the last");
    assert_eq!((works.final_eval_status, &works.error_message), (EvalStatus::Passed, &None));
    assert_eq!(empty.error_message.as_deref(), Some("the case has no conversation"));
    assert_eq!(summarize(&result)[0].eval_status, EvalStatus::Failed);
}

#[tokio::test]
async fn a_summary_has_each_error_once() {
    let model = Arc::new(Scripted::new().default_reply(Reply::text("ok")));
    let app = app_of(llm("answers").model_instance("scripted", model).build().unwrap());
    let evaluations = evaluations();
    let cases = json!([{"evalId": "fails", "conversation": [turn("Go", json!([]), Some("ok"))]}]);
    evaluations.create_set(&app, set(cases)).await.unwrap();
    let mut result = evaluations.run(&app, request()).await.unwrap();
    let run = result.eval_case_results[0].clone();
    let failed = |error: &str| EvalCaseResult { error_message: Some(error.into()), ..run.clone() };
    result.eval_case_results = ["late", "cold", "late"].map(failed).to_vec();
    assert_eq!(summarize(&result)[0].errors, ["late", "cold"]);
}

/// Waits for the end of its run, and reports it.
struct Waits {
    started: Semaphore,
    cancelled: Arc<Semaphore>,
}

#[async_trait]
impl CustomAgent for Waits {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        struct Dropped(Arc<Semaphore>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.add_permits(1);
            }
        }
        let _dropped = Dropped(self.cancelled.clone());
        self.started.add_permits(1);
        cx.call.invocation.cancel.cancelled().await;
        std::future::pending().await
    }
}

#[tokio::test]
async fn runs_are_parallel_up_to_a_limit_and_end_with_the_evaluation() {
    let agent = Arc::new(Waits { started: Semaphore::new(0), cancelled: Arc::new(Semaphore::new(0)) });
    let spec = CustomAgentSpec { code: agent.clone(), model: None, tools: Vec::new() };
    let app = app_of(Agent::new("waits", "", AgentKind::Custom(spec)));
    let evaluations = evaluations();
    let case = json!([{"evalId": "c", "conversation": [turn("Hi", json!([]), None)]}]);
    evaluations.create_set(&app, set(case)).await.unwrap();
    let request = EvalRequest { num_runs: Some(5), parallelism: Some(2), ..request() };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let evaluation = tokio::spawn({
        let (evaluations, app, seen) = (evaluations.clone(), app.clone(), seen.clone());
        async move { evaluations.evaluate(&app, request, &|progress| seen.lock().unwrap().push(progress)).await }
    });
    agent.started.acquire_many(2).await.unwrap().forget();
    assert_eq!(agent.started.available_permits(), 0, "only two runs have begun");
    assert_eq!(*seen.lock().unwrap(), [Progress { done: 0, total: 5 }]);
    evaluation.abort();
    agent.cancelled.acquire_many(2).await.unwrap().forget();
    assert!(evaluation.await.unwrap_err().is_cancelled());
    assert_eq!(agent.started.available_permits(), 0, "no other run has begun");
}

#[tokio::test]
async fn more_evaluations_than_allowed_are_refused() {
    let agent = Arc::new(Waits { started: Semaphore::new(0), cancelled: Arc::new(Semaphore::new(0)) });
    let spec = CustomAgentSpec { code: agent.clone(), model: None, tools: Vec::new() };
    let app = app_of(Agent::new("waits", "", AgentKind::Custom(spec)));
    let evaluations = evaluations();
    let case = json!([{"evalId": "c", "conversation": [turn("Hi", json!([]), None)]}]);
    evaluations.create_set(&app, set(case)).await.unwrap();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (evaluations, app) = (evaluations.clone(), app.clone());
        running.spawn(async move { evaluations.run(&app, request()).await });
    }
    agent.started.acquire_many(4).await.unwrap().forget();
    let refused = evaluations.run(&app, request()).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.to_string()),
        ("BUSY", "4 evaluations are in progress, which is the maximum; try again when one has ended".into())
    );
    running.shutdown().await;
}

#[tokio::test]
async fn an_evaluation_has_a_maximum_of_runs() {
    let (evaluations, app) = (evaluations(), dice());
    let cases: Vec<_> = (0..21).map(|case| json!({"evalId": format!("case-{case}"), "conversation": []})).collect();
    evaluations.create_set(&app, set(json!(cases))).await.unwrap();
    let many = EvalRequest { num_runs: Some(100), ..request() };
    assert_eq!(
        evaluations.run(&app, many.clone()).await.unwrap_err().to_string(),
        "21 cases run 100 times are 2100 runs; an evaluation has at most 2000: name fewer cases, or run them less often"
    );
    // A case that is named twice counts once.
    let named = vec!["case-0".to_owned(); 30];
    let result = evaluations.run(&app, EvalRequest { case_ids: named, ..many }).await.unwrap();
    assert_eq!(result.eval_case_results.len(), 100);
}

#[tokio::test]
async fn options_out_of_range_are_errors() {
    let (evaluations, app) = (evaluations(), dice());
    evaluations.create_set(&app, two_cases()).await.unwrap();
    let error = async |request: EvalRequest| evaluations.run(&app, request).await.unwrap_err().to_string();
    assert_eq!(
        error(EvalRequest { num_runs: Some(101), ..request() }).await,
        "the number of runs is 101; it must be from 1 to 100"
    );
    assert_eq!(
        error(EvalRequest { parallelism: Some(0), ..request() }).await,
        "the parallelism is 0; it must be from 1 to 64"
    );
    assert_eq!(
        error(EvalRequest { metrics: Some(Vec::new()), ..request() }).await,
        "there is no metric; name at least one"
    );
    assert_eq!(
        error(EvalRequest { case_ids: vec!["good".into(), "other".into()], ..request() }).await,
        "eval case not found: other; GET …/eval_sets/set/evals lists the cases"
    );
    let one = EvalRequest { case_ids: vec!["bad".into()], ..request() };
    assert_eq!(evaluations.run(&app, one).await.unwrap().eval_case_results.len(), 1);
}
