//! Runs that wait for a person or a result in apps that are not resumable: the answer begins a new run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hatchery_core::{
    Content, Event, EventData, FunctionCall, FunctionResponse, Part, PartData, REQUEST_CONFIRMATION, RunState,
    RunTransition, SessionKey, StoredRun, ToolError, TurnStart,
};
use hatchery_engine::build::custom;
use hatchery_engine::{RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};

use crate::support::*;

/// An app whose model calls `pay` this many times, which a person must confirm, and then answers `asked` or `paid`.
async fn shop(calls: usize) -> (Harness, Arc<AtomicUsize>) {
    let paid: Arc<AtomicUsize> = Arc::default();
    let counted = paid.clone();
    let pay = tool_with_confirmation("pay", move |args, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(args["euros"].clone())
    });
    let call = (0..calls).fold(Reply::new(), |reply, number| reply.and_call("pay", json!({"euros": number})));
    let replies = [call, Reply::text("asked"), Reply::text("one"), Reply::text("two")];
    (Harness::new(llm_with("root", Scripted::sequence(replies), |llm| llm.tools = vec![pay])).await, paid)
}

/// Returns the id and the state of each run, oldest first.
async fn states(app: &Harness) -> Vec<(String, RunState)> {
    let runs = app.runner.services().sessions.runs().unwrap();
    let listed = runs.list(&SessionKey::new("app", USER, SESSION), None, 10).await.unwrap().runs;
    listed.into_iter().rev().map(|run| (run.id, run.state)).collect()
}

async fn run(app: &Harness, id: &str, message: Content) -> Vec<Arc<Event>> {
    let request = RunRequest { run_id: Some(id.into()), ..app.request(message) };
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap()
}

fn requests(events: &[Arc<Event>]) -> Vec<String> {
    let calls = events.iter().flat_map(|event| event.function_calls());
    calls.filter(|call| call.name == REQUEST_CONFIRMATION).map(|call| call.id.clone().unwrap()).collect()
}

fn decision(id: &str, is_confirmed: bool) -> Content {
    tool_response(id, REQUEST_CONFIRMATION, json!({"confirmed": is_confirmed}))
}

fn state_of(id: &str, state: RunState) -> (String, RunState) {
    (id.into(), state)
}

#[tokio::test]
async fn a_run_that_has_asked_a_person_waits_until_another_run_has_the_decision() {
    let (mut app, paid) = shop(1).await;
    let asked = run(&app, "r1", Content::user("buy")).await;
    assert_eq!(brief(asked.last().unwrap()), "root: asked", "the agent has ended");
    assert_eq!(states(&app).await, [state_of("r1", RunState::Waiting)]);
    run(&app, "r2", Content::user("and now?")).await;
    let waiting = [state_of("r1", RunState::Waiting), state_of("r2", RunState::Done)];
    assert_eq!(states(&app).await, waiting, "any other message is no answer");
    // Nothing of it is kept in memory.
    app.runner.drain().await;
    app.runner = Runner::new(app.runner.services().clone());
    let answered = run(&app, "r3", decision(&requests(&asked)[0], true)).await;
    assert_eq!(briefs(&answered), [r#"root: answer pay{"result":0}"#, "root: two"]);
    assert!(answered.iter().all(|event| event.invocation_id == "r3"), "the answer has begun a run");
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    let done = ["r1", "r2", "r3"].map(|id| state_of(id, RunState::Done));
    assert_eq!(states(&app).await, done);
    // The request of the first run is answered from the store, as before.
    assert_eq!(briefs(&run(&app, "r1", Content::user("buy")).await), briefs(&asked));
}

#[tokio::test]
async fn a_run_with_two_questions_waits_until_both_are_answered() {
    let (app, paid) = shop(2).await;
    let asked = requests(&run(&app, "r1", Content::user("buy")).await);
    run(&app, "r2", decision(&asked[1], false)).await;
    assert_eq!(states(&app).await, [state_of("r1", RunState::Waiting), state_of("r2", RunState::Done)]);
    run(&app, "r3", decision(&asked[0], true)).await;
    assert_eq!(states(&app).await, ["r1", "r2", "r3"].map(|id| state_of(id, RunState::Done)));
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_run_with_very_many_closed_calls_does_not_block_the_host() {
    const CALLS: usize = 60_000;
    let root = custom("root", |cx| async move {
        let ids: Vec<String> = (0..CALLS).map(|number| format!("c{number}")).collect();
        let calls = ids.iter().map(|id| {
            let call = FunctionCall { id: Some(id.clone()), name: "f".into(), ..FunctionCall::default() };
            Part::from(PartData::FunctionCall(call))
        });
        let failures = ids.iter().map(|id| {
            let (id, response) = (Some(id.clone()), map(json!({"error": 1})));
            let response = FunctionResponse { id, name: "f".into(), response, ..FunctionResponse::default() };
            Part::from(PartData::FunctionResponse(response))
        });
        let (calls, failures) = (Content::new("model", calls.collect()), Content::new("user", failures.collect()));
        let calls = EventData { content: Some(Arc::new(calls)), long_running_tool_ids: ids, ..EventData::default() };
        cx.emit(calls).await?;
        let failures = EventData { content: Some(Arc::new(failures)), ..EventData::default() };
        cx.emit(failures).await.map(drop)
    });
    let app = Harness::new(root.build().unwrap()).await;
    let ending = tokio::time::timeout(Duration::from_secs(30), run(&app, "r1", Content::user("call")));
    assert_eq!(ending.await.expect("the run does not end").len(), 2);
    assert_eq!(states(&app).await, [state_of("r1", RunState::Done)]);
}

#[tokio::test]
async fn a_decision_for_a_cancelled_run_is_refused_and_its_tool_does_not_run() {
    let (app, paid) = shop(1).await;
    let asked = requests(&run(&app, "r1", Content::user("buy")).await);
    let key = SessionKey::new("app", USER, SESSION);
    let cancelled = app.runner.cancel_run(&key, "r1").await.unwrap().unwrap();
    assert_eq!(cancelled.state, RunState::Cancelled);
    let late = app.runner.run(app.app.clone(), app.request(decision(&asked[0], true))).await.unwrap();
    let error = late.collect().await.unwrap_err();
    assert_eq!(
        (error.code(), error.client_message()),
        ("BAD_INPUT", "run `r1`, which the message answers, was cancelled; send a new message instead".into())
    );
    assert_eq!((paid.load(Ordering::SeqCst), states(&app).await.len()), (0, 1));
}

#[tokio::test]
async fn a_run_that_is_continued_ends_the_wait_of_the_run_that_it_answers() {
    let (app, paid) = shop(1).await;
    let asked = requests(&run(&app, "r1", Content::user("buy")).await);
    run(&app, "r2", decision(&asked[0], true)).await;
    // As if the host had died after it had stored the decision.
    app.runner.drain().await;
    let (key, sessions) = (SessionKey::new("app", USER, SESSION), app.runner.services().sessions.clone());
    let TurnStart::Begun(turn) = sessions.begin_turn(&key, None, Duration::ZERO).await.unwrap() else {
        panic!("no turn is in progress")
    };
    let runs = sessions.runs().unwrap();
    runs.start(&StoredRun::new(key.clone(), "r1", 0), turn.fence).await.unwrap();
    runs.change(&key, "r1", Some(turn.fence), &RunTransition::Wait).await.unwrap();
    let resume = RunRequest::resume(USER, SESSION, "r2");
    assert!(app.runner.run(app.app.clone(), resume).await.unwrap().collect().await.unwrap().is_empty());
    assert_eq!(states(&app).await, ["r1", "r2"].map(|id| state_of(id, RunState::Done)));
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

/// An app whose model calls a tool whose result comes later, and then says `ordered`.
async fn orders(result: Result<Value, &'static str>) -> Harness {
    let order =
        long_running("order", move |_, _| result.clone().map_err(|error| ToolError::Recoverable(error.to_owned())));
    let model = Scripted::sequence([Reply::call("order", json!({})), Reply::text("ordered"), Reply::text("thanks")]);
    Harness::new(llm_with("root", model, |llm| llm.tools = vec![order])).await
}

#[tokio::test]
async fn a_run_waits_for_a_result_that_comes_later() {
    let app = orders(Ok(json!({"status": "pending"}))).await;
    let events = run(&app, "r1", Content::user("order")).await;
    assert_eq!(states(&app).await, [state_of("r1", RunState::Waiting)]);
    let call = events[0].function_calls().next().unwrap().id.clone().unwrap();
    run(&app, "r2", tool_response(&call, "order", json!({"status": "arrived"}))).await;
    assert_eq!(states(&app).await, ["r1", "r2"].map(|id| state_of(id, RunState::Done)));
}

#[tokio::test]
async fn a_run_does_not_wait_for_a_call_that_has_failed() {
    let app = orders(Err("sold out")).await;
    run(&app, "r1", Content::user("order")).await;
    assert_eq!(states(&app).await, [state_of("r1", RunState::Done)]);
}

#[tokio::test]
async fn one_message_that_answers_two_runs_ends_the_wait_of_both() {
    let (app, _) = shop(1).await;
    let first = requests(&run(&app, "r1", Content::user("buy")).await);
    let mut parts: Vec<Part> = decision(&first[0], true).parts;
    let second = {
        let model = Scripted::sequence([Reply::call("pay", json!({"euros": 7})), Reply::text("asked again")]);
        let pay = tool_with_confirmation("pay", |_, _| Ok(json!(null)));
        let again = llm_with("root", model, |llm| llm.tools = vec![pay]);
        let again = Arc::new(hatchery_engine::App::new("app", again).unwrap());
        let request = RunRequest { run_id: Some("r2".into()), ..app.request(Content::user("again")) };
        requests(&app.runner.run(again, request).await.unwrap().collect().await.unwrap())
    };
    parts.extend(decision(&second[0], false).parts);
    assert!(parts.iter().all(|part| matches!(part.data, PartData::FunctionResponse(_))));
    run(&app, "r3", Content::new("user", parts)).await;
    assert_eq!(states(&app).await, ["r1", "r2", "r3"].map(|id| state_of(id, RunState::Done)));
}
