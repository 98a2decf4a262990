//! Long-running tools: results that arrive after the run has ended or paused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hatchery_core::AgentKind;
use hatchery_engine::{RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn a_response_to_a_run_that_did_not_wait_begins_a_new_one() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = Harness::new(ordering_agent(&runs, json!({"status": "pending"}), &["wait", "done"])).await;
    let first = app.run("hi").await;
    let message = tool_response(&call_id(&first), "order", json!({"status": "done"}));
    let request = RunRequest { invocation_id: Some(first[0].invocation_id.clone()), ..app.request(message) };
    let events = app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    assert_eq!(briefs(&events), ["orders: done"]);
    assert_ne!(events[0].invocation_id, first[0].invocation_id);
}

#[tokio::test]
async fn a_pending_result_is_sent_to_the_model_and_each_later_one_begins_a_run() {
    let runs = Arc::new(AtomicUsize::new(0));
    let root = ordering_agent(&runs, json!({"status": "pending"}), &["wait", "half", "done", "done again"]);
    let app = Harness::new(root).await;
    let events = app.run("hi").await;
    assert_eq!(briefs(&events)[1..], [r#"orders: answer order{"status":"pending"}"#, "orders: wait"]);
    for text in ["half", "done", "done again"] {
        let events = app.send(tool_response(&call_id(&events), "order", json!({"status": text}))).await;
        assert_eq!(briefs(&events), [format!("orders: {text}")]);
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn without_a_first_result_the_run_ends_at_the_call() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = Harness::new(ordering_agent(&runs, Value::Null, &["done"])).await;
    let events = app.run("hi").await;
    assert_eq!(briefs(&events), ["orders: call order{}"]);
}

#[tokio::test]
async fn a_resumable_run_pauses_and_continues_as_the_same_invocation() {
    let runs = Arc::new(AtomicUsize::new(0));
    let [a, c] = ["a", "c"].map(|name| counting_agent(name, &[], "!"));
    let orders = ordering_agent(&runs, json!({"status": "pending"}), &["done"]);
    let mut app = Harness::new(workflow("all", AgentKind::Sequential, vec![a, orders, c])).await;
    app.resumable();
    let first = app.run("hi").await;
    assert_eq!(briefs(&first), ["a: !", "orders: call order{}", r#"orders: answer order{"status":"pending"}"#]);
    let events = app.send(tool_response(&call_id(&first[1..]), "order", json!({"status": "done"}))).await;
    assert_eq!(briefs(&events), ["orders: done", "c: !"]);
    assert!(events.iter().all(|event| event.invocation_id == first[0].invocation_id));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_paused_run_that_is_resumed_without_a_response_stays_paused() {
    let runs = Arc::new(AtomicUsize::new(0));
    let mut app = Harness::new(ordering_agent(&runs, Value::Null, &["done"])).await;
    app.resumable();
    let first = app.run("hi").await;
    assert_eq!(
        first[1].long_running_tool_ids, first[0].long_running_tool_ids,
        "the event of a tool that has not responded"
    );
    let request = RunRequest::resume(USER, SESSION, first[0].invocation_id.clone());
    let run = app.runner.run(app.app.clone(), request).await.unwrap();
    assert!(run.collect().await.unwrap().is_empty());
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_loop_stops_at_a_call_whose_result_comes_later() {
    let runs = Arc::new(AtomicUsize::new(0));
    let model = Scripted::sequence([
        Reply::call("order", json!({})),
        Reply::text("got it"),
        Reply::call("order", json!({})),
        Reply::text("got it again"),
    ]);
    let orders = llm_with("orders", model, |llm| llm.tools = vec![order_tool(&runs, Value::Null)]);
    let mut app = Harness::new(workflow("round", AgentKind::Loop { max_iterations: Some(2) }, vec![orders])).await;
    app.resumable();
    let first = app.run("hi").await;
    assert_eq!(briefs(&first), ["orders: call order{}", "orders: "]);
    let second = app.send(tool_response(&call_id(&first), "order", json!({}))).await;
    assert_eq!(briefs(&second), ["orders: got it", "orders: call order{}", "orders: "]);
    let third = app.send(tool_response(&second[1].long_running_tool_ids[0], "order", json!({}))).await;
    assert_eq!(briefs(&third), ["orders: got it again"]);
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn the_other_branches_of_a_paused_one_end_and_do_not_run_again() {
    let (runs, others) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let other = llm_with("other", calls_then_answers(&["one"], "other!"), |llm| {
        llm.tools = vec![counting_tool("one", &others)]
    });
    let both = workflow("both", AgentKind::Parallel, vec![ordering_agent(&runs, Value::Null, &["done"]), other]);
    let mut app =
        Harness::new(workflow("all", AgentKind::Sequential, vec![both, counting_agent("after", &[], "!")])).await;
    app.resumable();
    let first = app.run("hi").await;
    assert_eq!(first.len(), 5);
    let call = first.iter().find(|event| event.author == "orders").unwrap();
    let second = app.send(tool_response(&call.long_running_tool_ids[0], "order", json!({}))).await;
    assert_eq!(briefs(&second), ["orders: done", "after: !"]);
    assert_eq!((runs.load(Ordering::Relaxed), others.load(Ordering::Relaxed)), (1, 1));
}

#[tokio::test]
async fn code_around_a_paused_agent_pauses_with_it() {
    let runs = Arc::new(AtomicUsize::new(0));
    let mut inner = ordering_agent(&runs, Value::Null, &["done"]);
    inner.name = "inner".into();
    let mut app = Harness::new(workflow_code("around", Arc::new(WrappingAgent)).with_sub_agents(vec![inner])).await;
    app.resumable();
    let first = app.run("hi").await;
    assert_eq!(briefs(&first), ["around: before", "around: ", "inner: call order{}", "inner: "]);
    let second = app.send(tool_response(&first[2].long_running_tool_ids[0], "order", json!({}))).await;
    assert_eq!(briefs(&second), ["inner: done", "around: after"]);
}

#[tokio::test]
async fn a_response_to_no_call_is_rejected() {
    let mut app = Harness::new(counting_agent("root", &[], "what?")).await;
    app.resumable();
    let unknown = app.request(tool_response("adk-unknown", "order", json!({})));
    let error = app.runner.run(app.app.clone(), unknown).await.unwrap_err();
    assert_eq!(error.code(), "INVALID_MESSAGE");
    assert!(app.session().await.events.is_empty());
}

#[tokio::test]
async fn a_paused_run_survives_a_restart() {
    let runs = Arc::new(AtomicUsize::new(0));
    let mut app = Harness::new(ordering_agent(&runs, Value::Null, &["done"])).await;
    app.resumable();
    let first = app.run("hi").await;
    app.runner = Runner::new(app.runner.services().clone());
    let second = app.send(tool_response(&call_id(&first), "order", json!({}))).await;
    assert_eq!(briefs(&second), ["orders: done"]);
    assert_eq!(second[0].invocation_id, first[0].invocation_id);
}
