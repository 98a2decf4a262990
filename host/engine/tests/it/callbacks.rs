//! Callbacks: who answers, what is changed, what is stored.

use std::sync::Arc;

use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn the_first_answer_before_an_agent_replaces_it_and_what_comes_after_it() {
    let mut agent = llm("root", Scripted::new().otherwise("model"));
    agent.before_agent = vec![
        Answers { name: "silent", ..Answers::default() }.arc(),
        Answers { name: "first", agent: Some("from callback"), ..Answers::default() }.arc(),
        Answers { name: "second", agent: Some("never"), ..Answers::default() }.arc(),
    ];
    agent.after_agent = vec![Answers { name: "after", agent: Some("never"), ..Answers::default() }.arc()];
    assert_eq!(Harness::new(agent).await.talk("hi").await, ["root: from callback"]);
}

#[tokio::test]
async fn an_answer_after_an_agent_is_added() {
    let mut agent = llm("root", Scripted::new().otherwise("model"));
    agent.after_agent = vec![Answers { name: "after", agent: Some("and more"), ..Answers::default() }.arc()];
    assert_eq!(Harness::new(agent).await.talk("hi").await, ["root: model", "root: and more"]);
}

#[tokio::test]
async fn state_without_an_answer_is_an_event_of_its_own() {
    let mut agent = llm("root", Scripted::new().otherwise("model"));
    agent.before_agent = vec![Answers { name: "noting", state: Some("seen"), ..Answers::default() }.arc()];
    let app = Harness::new(agent).await;
    let events = app.say("hi").await;
    assert!(events[0].content.is_none());
    assert_eq!(events[0].actions.state_delta, map(json!({"seen": true})));
    assert_eq!(brief(&events[1]), "root: model");
}

#[tokio::test]
async fn an_answer_before_the_model_replaces_it() {
    let model = Arc::new(Scripted::sequence(["never"]));
    let agent = llm_on("root", &model, |llm| {
        llm.before_model = vec![Answers { name: "cached", model: Some("cached"), ..Answers::default() }.arc()];
    });
    assert_eq!(Harness::new(agent).await.talk("hi").await, ["root: cached"]);
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_changed_request_is_what_the_model_gets() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    let agent = llm_on("root", &model, |llm| {
        llm.before_model = vec![Answers { name: "marking", mark: Some("be kind"), ..Answers::default() }.arc()];
    });
    Harness::new(agent).await.say("hi").await;
    assert_eq!(model.requests()[0].system_instructions.last().unwrap(), "be kind");
}

#[tokio::test]
async fn an_answer_after_the_model_replaces_pieces_and_whole() {
    let agent = llm_with("root", Scripted::new().otherwise(Reply::chunks(["bad ", "word"])), |llm| {
        llm.after_model = vec![Answers { name: "censor", model: Some("***"), ..Answers::default() }.arc()];
    });
    let app = Harness::new(agent).await.streaming();
    assert_eq!(app.talk("hi").await, ["root~: ***", "root~: ***", "root: ***"]);
}

#[tokio::test]
async fn an_answer_before_a_tool_replaces_it_and_still_passes_the_callbacks_after_it() {
    let model = Scripted::sequence([Reply::call("roll", json!({})), Reply::text("ok")]);
    let agent = llm_with("root", model, |llm| {
        llm.tools = vec![tool("roll", |_, _| panic!("must not run"))];
        llm.before_tool = vec![Answers { name: "b", tool: Some(json!({"n": 6})), ..Answers::default() }.arc()];
        llm.after_tool = vec![Answers { name: "a", tool: Some(json!({"checked": true})), ..Answers::default() }.arc()];
    });
    assert_eq!(Harness::new(agent).await.talk("hi").await[1], "root: answer roll{\"n\":6,\"checked\":true}");
}

#[tokio::test]
async fn changed_arguments_are_what_the_tool_gets() {
    let model = Scripted::sequence([Reply::call("echo", json!({"a": 1})), Reply::text("ok")]);
    let agent = llm_with("root", model, |llm| {
        llm.tools = vec![tool("echo", |args, _| Ok(args.into()))];
        llm.before_tool = vec![Answers { name: "b", mark: Some("seen"), ..Answers::default() }.arc()];
    });
    assert_eq!(Harness::new(agent).await.talk("hi").await[1], "root: answer echo{\"a\":1,\"mark\":\"seen\"}");
}

#[tokio::test]
async fn a_failing_callback_ends_the_run_and_names_itself() {
    let mut agent = llm("root", Scripted::new().otherwise("model"));
    agent.before_agent = vec![Answers { name: "guard", fails: true, ..Answers::default() }.arc()];
    let (events, error) = Harness::new(agent).await.fail("hi").await;
    assert_eq!(error.to_string(), "callback `guard` of agent `root`: it broke");
    assert_eq!(events, ["root: error CALLBACK_FAILED: callback `guard` of agent `root`: it broke"]);
}
