//! Resuming runs that were interrupted or have failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use hatchery_core::{AgentContext, AgentKind, Content, CustomAgent, HookPoint, ModelErrorKind, RunError};
use hatchery_engine::{App, RunRequest};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn an_llm_agent_resumes_where_it_was() {
    let session = assert_resumable(|| counting_agent("root", &["one", "two"], "three")).await;
    assert_eq!(session.events.len(), 6);
    assert_eq!(session.state.get("count"), Some(&json!(2)));
}

#[tokio::test]
async fn a_tool_whose_answer_is_stored_does_not_run_again() {
    let runs = Arc::new(AtomicUsize::new(0));
    let root = llm_with("root", calls_then_answers(&["one", "two"], "three"), |llm| {
        llm.tools = vec![counting_tool("one", &runs), counting_tool("two", &runs)];
    });
    // The user's message, the first call and its answer are stored.
    interrupted(&Arc::new(App::new("app", root).unwrap()), 3).await;
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn sequences_loops_and_branches_resume_where_they_were() {
    let session = assert_resumable(|| {
        let both = workflow(
            "both",
            AgentKind::Parallel,
            vec![counting_agent("p", &["x"], "p!"), counting_agent("q", &[], "q!")],
        );
        let round = workflow(
            "round",
            AgentKind::Loop { max_iterations: Some(2) },
            vec![counting_agent("l", &["y"], "l!"), both],
        );
        workflow(
            "all",
            AgentKind::Sequential,
            vec![counting_agent("a", &["z"], "a!"), round, counting_agent("b", &[], "b!")],
        )
    })
    .await;
    assert_eq!(session.events.len(), 1 + 3 + 2 * (3 + 3 + 1) + 1);
}

#[tokio::test]
async fn a_loop_that_was_left_is_not_entered_again() {
    let session = assert_resumable(|| {
        let model = calls_then_answers(&["exit_loop"], "not emitted");
        let leaves =
            llm_with("leaves", model, |llm| llm.tools = vec![hatchery_engine::builtin::tool("exit_loop").unwrap()]);
        let round = workflow(
            "round",
            AgentKind::Loop { max_iterations: None },
            vec![counting_agent("l", &["y"], "l!"), leaves],
        );
        workflow("all", AgentKind::Sequential, vec![round, counting_agent("after", &[], "after!")])
    })
    .await;
    assert_eq!(brief(session.events.last().unwrap()), "after: after!");
}

#[tokio::test]
async fn a_branch_that_was_ended_by_another_does_not_run_again() {
    let leave = || hatchery_engine::builtin::tool("exit_loop").unwrap();
    let leaves = llm_with("leaves", calls_then_answers(&["exit_loop"], "not emitted"), |llm| llm.tools = vec![leave()]);
    let waits = workflow_code("waits", Arc::new(PausingAgent::default()));
    let both = workflow("both", AgentKind::Parallel, vec![waits, leaves]);
    let all = workflow("all", AgentKind::Sequential, vec![both, counting_agent("after", &[], "after!")]);
    // The user's message, the call of exit_loop and its answer are stored.
    let (_, session) = interrupted(&Arc::new(App::new("app", all).unwrap()), 3).await;
    let events: Vec<_> = session.events.iter().map(|event| brief(event)).collect();
    assert_eq!(events[2..], [r"leaves: answer exit_loop{}", "after: after!"]);
}

/// Waits until it is stopped; emits an event when it is run again.
#[derive(Default)]
struct PausingAgent(AtomicUsize);

#[async_trait]
impl CustomAgent for PausingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => std::future::pending().await,
            _ => cx.say("here I am again").await.map(|_| ()),
        }
    }
}

#[tokio::test]
async fn a_transfer_is_not_made_twice() {
    let session = assert_resumable(|| {
        let model = Scripted::new().default_reply(Reply::call("transfer_to_agent", json!({"agent_name": "sub"})));
        llm("root", model).with_sub_agents(vec![counting_agent("sub", &["one"], "done")])
    })
    .await;
    assert_eq!(brief(session.events.last().unwrap()), "sub: done");
}

#[tokio::test]
async fn callbacks_around_agents_are_not_called_twice() {
    let session = assert_resumable(|| {
        let callback = |name: &'static str, agent| {
            FixedCallback { name, agent, state: Some(name), ..FixedCallback::default() }.arc()
        };
        let mut a = counting_agent("a", &["x"], "a!");
        a.callbacks.push(HookPoint::BeforeAgent, callback("before_a", None));
        a.callbacks.push(HookPoint::AfterAgent, callback("after_a", Some("after a")));
        let mut b = counting_agent("b", &["x"], "not emitted");
        b.callbacks.push(HookPoint::BeforeAgent, callback("before_b", Some("instead of b")));
        let mut round = workflow("round", AgentKind::Loop { max_iterations: Some(2) }, vec![a, b]);
        round.callbacks.push(HookPoint::BeforeAgent, callback("before_round", None));
        round.callbacks.push(HookPoint::AfterAgent, callback("after_round", None));
        round
    })
    .await;
    assert_eq!(session.events.len(), 1 + 1 + 2 * (1 + 3 + 1 + 1) + 1);
}

#[tokio::test]
async fn code_is_run_again_and_its_events_are_not_stored_again() {
    let session = assert_resumable(|| {
        let around = workflow_code("around", Arc::new(WrappingAgent)).with_sub_agents(vec![counting_agent(
            "inner",
            &["x"],
            "inner!",
        )]);
        workflow("all", AgentKind::Sequential, vec![around, counting_agent("last", &[], "last!")])
    })
    .await;
    assert_eq!(session.events.len(), 1 + 1 + 1 + 3 + 1 + 1);
}

#[tokio::test]
async fn a_failed_model_call_is_tried_again() {
    let model = Arc::new(Scripted::sequence([
        Reply::call("one", json!({})),
        Reply::error(ModelErrorKind::Server, "out of order"),
        Reply::text("done"),
    ]));
    let runs = Arc::new(AtomicUsize::new(0));
    let app = Harness::new(llm_on("root", &model, |llm| llm.tools = vec![counting_tool("one", &runs)])).await;
    app.expect_error("hi").await;
    let invocation = app.session().await.events[0].invocation_id.clone();
    let run = app.runner.run(app.app.clone(), RunRequest::resume(USER, SESSION, invocation)).await.unwrap();
    assert_eq!(briefs(&run.collect().await.unwrap()), ["root: done"]);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn resuming_a_run_that_has_ended_does_nothing() {
    let app = Harness::new(counting_agent("root", &["one"], "done")).await;
    let invocation = app.run("hi").await[0].invocation_id.clone();
    let run = app.runner.run(app.app.clone(), RunRequest::resume(USER, SESSION, invocation)).await.unwrap();
    assert!(run.collect().await.unwrap().is_empty());
    assert_eq!(app.session().await.events.len(), 4);
}

#[tokio::test]
async fn an_unknown_run_cannot_be_resumed() {
    let app = Harness::new(counting_agent("root", &[], "done")).await;
    let error = app.runner.run(app.app.clone(), RunRequest::resume(USER, SESSION, "e-1")).await.unwrap_err();
    assert_eq!(error.to_string(), "Invocation not found: e-1; the session has no user message that began it");
}

#[tokio::test]
async fn a_run_is_resumed_by_function_responses_only() {
    let app = Harness::new(counting_agent("root", &[], "done")).await;
    let invocation = app.run("hi").await[0].invocation_id.clone();
    let request = RunRequest { invocation_id: Some(invocation.clone()), ..app.request(Content::user("and now?")) };
    let error = app.runner.run(app.app.clone(), request).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "a message that resumes invocation `{invocation}` must contain function responses; omit the invocation's id to begin a new run"
        )
    );
}
