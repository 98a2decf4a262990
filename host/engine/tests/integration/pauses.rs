//! Pauses: runs of resumable apps wait for all results of a step.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hatchery_core::{Agent, AgentKind, Content, Event, REQUEST_CONFIRMATION, Tool, ToolError};
use hatchery_engine::Runner;
use hatchery_engine::build::custom;
use hatchery_engine::builtin::RequireConfirmation;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};

use crate::support::*;

async fn resumable(root: Agent) -> Harness {
    let mut app = Harness::new(root).await;
    app.resumable();
    app
}

fn twice(name: &str) -> Scripted {
    let both = Reply::call(name, json!({"message": "a"})).with_id("c1");
    Scripted::sequence([both.and_call(name, json!({"message": "b"})).with_id("c2"), Reply::text("done")])
}

fn request_ids(events: &[Arc<Event>]) -> Vec<String> {
    let calls = events.iter().flat_map(|event| event.function_calls());
    calls.filter(|call| call.name == REQUEST_CONFIRMATION).map(|call| call.id.clone().unwrap()).collect()
}

#[tokio::test]
async fn the_model_is_called_once_all_of_its_calls_have_their_results() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = resumable(llm_with("root", twice("order"), |llm| llm.tools = vec![order_tool(&runs, Value::Null)])).await;
    app.run("hi").await;
    assert!(app.send(tool_response("c2", "order", json!({}))).await.is_empty());
    assert!(app.send(tool_response("c2", "order", json!({"still": "b"}))).await.is_empty());
    assert_eq!(briefs(&app.send(tool_response("c1", "order", json!({}))).await), ["root: done"]);
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn each_approved_call_runs_when_its_approval_comes() {
    let echo = tool_with_confirmation("echo", |args, _| Ok(json!({"message": args["message"]})));
    let app = resumable(llm_with("root", twice("echo"), |llm| llm.tools = vec![echo])).await;
    let ids = request_ids(&app.run("hi").await);
    let approve = |id: &str| tool_response(id, REQUEST_CONFIRMATION, json!({"confirmed": true}));
    assert_eq!(briefs(&app.send(approve(&ids[1])).await), [r#"root: answer echo{"message":"b"}"#]);
    assert_eq!(briefs(&app.send(approve(&ids[0])).await), [r#"root: answer echo{"message":"a"}"#, "root: done"]);
}

#[tokio::test]
async fn a_second_result_of_a_call_begins_a_new_run() {
    let runs = Arc::new(AtomicUsize::new(0));
    let model = ["half", "done", "done again"].map(Reply::text);
    let model = Scripted::sequence(std::iter::once(Reply::call("order", json!({})).with_id("c1")).chain(model));
    let app = resumable(llm_with("root", model, |llm| llm.tools = vec![order_tool(&runs, Value::Null)])).await;
    let invocation = app.run("hi").await[0].invocation_id.clone();
    for (text, goes_on) in [("half", true), ("done", false), ("done again", false)] {
        let events = app.send(tool_response("c1", "order", json!({"status": text}))).await;
        assert_eq!(briefs(&events), [format!("root: {text}")]);
        assert_eq!(events[0].invocation_id == invocation, goes_on, "{text}");
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_long_running_tool_that_fails_is_not_waited_for() {
    let fails = long_running("order", |_, _| Err(ToolError::Recoverable("no such dish".into())));
    let model = Scripted::sequence([Reply::call("order", json!({})), Reply::text("sorry")]);
    let app = resumable(llm_with("root", model, |llm| llm.tools = vec![fails])).await;
    assert_eq!(app.transcript("hi").await[1..], [r#"root: answer order{"error":"no such dish"}"#, "root: sorry"]);
}

#[tokio::test]
async fn an_approved_long_running_tool_is_waited_for() {
    let runs = Arc::new(AtomicUsize::new(0));
    let order: Arc<dyn Tool> = Arc::new(RequireConfirmation::new(order_tool(&runs, Value::Null)));
    let model = Scripted::sequence([Reply::call("order", json!({})).with_id("c1"), Reply::text("done")]);
    let orders = llm_with("orders", model, |llm| llm.tools = vec![order]);
    let app = resumable(workflow("all", AgentKind::Sequential, vec![orders, counting_agent("after", &[], "!")])).await;
    let ids = request_ids(&app.run("hi").await);
    let approved = app.send(tool_response(&ids[0], REQUEST_CONFIRMATION, json!({"confirmed": true}))).await;
    assert_eq!(briefs(&approved), ["orders: "]);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!(briefs(&app.send(tool_response("c1", "order", json!({}))).await), ["orders: done", "after: !"]);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_rejected_long_running_tool_is_not_waited_for() {
    let runs = Arc::new(AtomicUsize::new(0));
    let order: Arc<dyn Tool> = Arc::new(RequireConfirmation::new(order_tool(&runs, Value::Null)));
    let model = Scripted::sequence([Reply::call("order", json!({})), Reply::text("as you like")]);
    let app = resumable(llm_with("root", model, |llm| llm.tools = vec![order])).await;
    let ids = request_ids(&app.run("hi").await);
    let events = app.send(tool_response(&ids[0], REQUEST_CONFIRMATION, json!({"confirmed": false}))).await;
    assert_eq!(briefs(&events), [r#"root: answer order{"error":"This tool call is rejected."}"#, "root: as you like"]);
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

fn pays(name: &str, paid: &Arc<Mutex<Vec<String>>>) -> Agent {
    let paid = paid.clone();
    let pay = tool_with_confirmation("pay", move |_, cx| {
        paid.lock().unwrap().push(cx.agent.to_string());
        Ok(json!("paid"))
    });
    let model = Scripted::new().on_tool("pay", "ok").default_reply(Reply::call("pay", json!({})));
    llm_with(name, model, |llm| llm.tools = vec![pay])
}

#[tokio::test]
async fn one_message_that_decides_for_two_agents_reaches_both_also_without_resumability() {
    for is_resumable in [false, true] {
        let paid = Arc::default();
        let mut app =
            Harness::new(workflow("all", AgentKind::Parallel, vec![pays("a", &paid), pays("b", &paid)])).await;
        if is_resumable {
            app.resumable();
        }
        let ids = request_ids(&app.run("hi").await);
        let parts = ids.iter().map(|id| tool_response(id, REQUEST_CONFIRMATION, json!({"confirmed": true})));
        let parts = parts.flat_map(|content| content.parts).collect();
        let events = app.send(Content::new("user", parts)).await;
        let mut paid = paid.lock().unwrap().clone();
        paid.sort();
        assert_eq!(paid, ["a", "b"], "resumable: {is_resumable}");
        let branch = |agent: &str| events.iter().find(|event| event.author == agent).unwrap().branch.clone();
        assert_eq!((branch("a").as_deref(), branch("b").as_deref()), (Some("all.a"), Some("all.b")));
    }
}

/// Returns a sequence of an agent that sets the `temp:` key `secret` and waits for an order, and one that tells the
/// key.
fn waits_with_temporary_state(runs: &Arc<AtomicUsize>) -> Agent {
    let note = tool("note", |_, cx| {
        cx.set_state("temp:secret", json!("swordfish"));
        Ok(json!("noted"))
    });
    let order = order_tool(runs, Value::Null);
    let order_call = Reply::call("order", json!({})).with_id("c1");
    let answers = ["ordered", "done"].map(Reply::text);
    let model = Scripted::sequence([Reply::call("note", json!({})), order_call].into_iter().chain(answers));
    let orders = llm_with("orders", model, |llm| llm.tools = vec![note, order]);
    let tells = custom("tells", |cx| async move {
        cx.say(format!("{:?}", cx.call.state("temp:secret"))).await?;
        Ok(())
    });
    workflow("flow", AgentKind::Sequential, vec![orders, tells.build().unwrap()])
}

#[tokio::test]
async fn temporary_state_survives_a_pause_within_its_invocation() {
    let mut app = resumable(waits_with_temporary_state(&Arc::default())).await;
    app.run("hi").await;
    let session = app.session().await;
    assert_eq!(app.state().await, json!({}), "it is not state of the session");
    assert!(!serde_json::to_string(&session).unwrap().contains("swordfish"), "clients do not see it");
    // After a restart.
    app.runner = Runner::new(app.runner.services().clone());
    let events = app.send(tool_response("c1", "order", json!({"status": "sent"}))).await;
    assert_eq!(briefs(&events), ["orders: ordered", r#"tells: Some(String("swordfish"))"#]);
    assert_eq!(app.transcript("again").await.last().unwrap(), "tells: None", "it ends with its invocation");
}

#[tokio::test]
async fn counts_of_calls_and_tokens_continue_with_a_resumed_run() {
    let runs = Arc::new(AtomicUsize::new(0));
    let model = Scripted::sequence([Reply::call("order", json!({})).with_id("c1"), Reply::call("note", json!({}))]);
    let root = {
        let note = tool("note", |_, cx| Ok(json!(cx.invocation.usage.tokens.load(Ordering::Relaxed))));
        llm_with("root", model, |llm| llm.tools = vec![order_tool(&runs, Value::Null), note])
    };
    let mut app = resumable(root).await;
    app.config.max_llm_calls = 2;
    let first = app.run("hi").await;
    let spent = first[0].usage_metadata.as_ref().unwrap().total();
    let mut run = app.runner.run(app.app.clone(), app.request(tool_response("c1", "order", json!({})))).await.unwrap();
    let mut events = Vec::new();
    let error = loop {
        match run.next().await.unwrap() {
            Ok(event) => events.push(event),
            Err(error) => break error,
        }
    };
    let second = events[0].usage_metadata.as_ref().unwrap().total();
    assert_eq!(brief(&events[1]), format!("root: answer note{{\"result\":{}}}", spent + second));
    assert_eq!(error.code(), "LIMIT_REACHED");
}
