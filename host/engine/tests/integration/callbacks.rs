//! Callbacks: answers, changed inputs, stored events.

use std::sync::Arc;

use hatchery_core::{HookPoint, LlmResponse, ModelErrorKind, ToolError};
use hatchery_engine::build::{self, sequential};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn the_first_answer_before_an_agent_replaces_it_and_later_callbacks() {
    let mut agent = llm("root", Scripted::new().default_reply("model"));
    agent.callbacks.push(HookPoint::BeforeAgent, FixedCallback { name: "silent", ..FixedCallback::default() }.arc());
    agent.callbacks.push(
        HookPoint::BeforeAgent,
        FixedCallback { name: "first", agent: Some("from callback"), ..FixedCallback::default() }.arc(),
    );
    agent.callbacks.push(
        HookPoint::BeforeAgent,
        FixedCallback { name: "second", agent: Some("never"), ..FixedCallback::default() }.arc(),
    );
    agent.callbacks.push(
        HookPoint::AfterAgent,
        FixedCallback { name: "after", agent: Some("never"), ..FixedCallback::default() }.arc(),
    );
    assert_eq!(Harness::new(agent).await.transcript("hi").await, ["root: from callback"]);
}

#[tokio::test]
async fn an_answer_after_an_agent_is_added() {
    let mut agent = llm("root", Scripted::new().default_reply("model"));
    agent.callbacks.push(
        HookPoint::AfterAgent,
        FixedCallback { name: "after", agent: Some("and more"), ..FixedCallback::default() }.arc(),
    );
    assert_eq!(Harness::new(agent).await.transcript("hi").await, ["root: model", "root: and more"]);
}

#[tokio::test]
async fn state_without_an_answer_is_an_event_of_its_own() {
    let mut agent = llm("root", Scripted::new().default_reply("model"));
    agent.callbacks.push(
        HookPoint::BeforeAgent,
        FixedCallback { name: "noting", state: Some("seen"), ..FixedCallback::default() }.arc(),
    );
    let app = Harness::new(agent).await;
    let events = app.run("hi").await;
    assert!(events[0].content.is_none());
    assert_eq!(events[0].actions.state_delta, map(json!({"seen": true})));
    assert_eq!(brief(&events[1]), "root: model");
}

#[tokio::test]
async fn an_answer_before_the_model_replaces_it() {
    let model = Arc::new(Scripted::sequence(["never"]));
    let agent = llm_on("root", &model, |llm| {
        llm.callbacks.push(
            HookPoint::BeforeModel,
            FixedCallback { name: "cached", model: Some("cached"), ..FixedCallback::default() }.arc(),
        );
    });
    assert_eq!(Harness::new(agent).await.transcript("hi").await, ["root: cached"]);
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn the_model_gets_the_changed_request() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    let agent = llm_on("root", &model, |llm| {
        llm.callbacks.push(
            HookPoint::BeforeModel,
            FixedCallback { name: "marking", mark: Some("be kind"), ..FixedCallback::default() }.arc(),
        );
    });
    Harness::new(agent).await.run("hi").await;
    assert_eq!(model.requests()[0].system_instructions.last().unwrap(), "be kind");
}

#[tokio::test]
async fn an_answer_after_the_model_replaces_chunks_and_the_full_response() {
    let agent = llm_with("root", Scripted::new().default_reply(Reply::chunks(["bad ", "word"])), |llm| {
        llm.callbacks.push(
            HookPoint::AfterModel,
            FixedCallback { name: "censor", model: Some("***"), ..FixedCallback::default() }.arc(),
        );
    });
    let app = Harness::new(agent).await.streaming();
    assert_eq!(app.transcript("hi").await, ["root~: ***", "root~: ***", "root: ***"]);
}

#[tokio::test]
async fn an_answer_before_a_tool_replaces_it_and_passes_through_after_tool() {
    let model = Scripted::sequence([Reply::call("roll", json!({})), Reply::text("ok")]);
    let agent = llm_with("root", model, |llm| {
        llm.tools = vec![tool("roll", |_, _| panic!("must not run"))];
        llm.callbacks.push(
            HookPoint::BeforeTool,
            FixedCallback { name: "b", tool: Some(json!({"n": 6})), ..FixedCallback::default() }.arc(),
        );
        llm.callbacks.push(
            HookPoint::AfterTool,
            FixedCallback { name: "a", tool: Some(json!({"checked": true})), ..FixedCallback::default() }.arc(),
        );
    });
    assert_eq!(Harness::new(agent).await.transcript("hi").await[1], "root: answer roll{\"n\":6,\"checked\":true}");
}

#[tokio::test]
async fn the_tool_gets_the_changed_arguments() {
    let model = Scripted::sequence([Reply::call("echo", json!({"a": 1})), Reply::text("ok")]);
    let agent = llm_with("root", model, |llm| {
        llm.tools = vec![tool("echo", |args, _| Ok(args.into()))];
        llm.callbacks.push(
            HookPoint::BeforeTool,
            FixedCallback { name: "b", mark: Some("seen"), ..FixedCallback::default() }.arc(),
        );
    });
    assert_eq!(Harness::new(agent).await.transcript("hi").await[1], "root: answer echo{\"a\":1,\"mark\":\"seen\"}");
}

#[tokio::test]
async fn a_failing_callback_ends_the_run_and_names_itself() {
    let mut agent = llm("root", Scripted::new().default_reply("model"));
    agent
        .callbacks
        .push(HookPoint::BeforeAgent, FixedCallback { name: "guard", fails: true, ..FixedCallback::default() }.arc());
    let (events, error) = Harness::new(agent).await.expect_error("hi").await;
    assert_eq!(error.to_string(), "callback `guard` of agent `root`: it broke");
    assert_eq!(events, ["root: error CALLBACK_FAILED: callback `guard` of agent `root`: it broke"]);
}

#[tokio::test]
async fn state_without_an_answer_after_an_agent_is_an_event_of_its_own() {
    let mut agent = llm("root", Scripted::new().default_reply("model"));
    agent.callbacks.push(
        HookPoint::AfterAgent,
        FixedCallback { name: "noting", state: Some("seen"), ..FixedCallback::default() }.arc(),
    );
    let events = Harness::new(agent).await.run("hi").await;
    assert_eq!(brief(&events[0]), "root: model");
    assert!(events[1].content.is_none());
    assert_eq!(events[1].actions.state_delta, map(json!({"seen": true})));
}

#[tokio::test]
async fn state_set_beside_an_answer_is_in_the_event_of_the_answer() {
    let mut agent = llm("root", Scripted::new().default_reply("model"));
    let answers =
        FixedCallback { name: "a", agent: Some("from callback"), state: Some("seen"), ..FixedCallback::default() };
    agent.callbacks.push(HookPoint::BeforeAgent, answers.arc());
    let events = Harness::new(agent).await.run("hi").await;
    assert_eq!((events.len(), brief(&events[0]).as_str()), (1, "root: from callback"));
    assert_eq!(events[0].actions.state_delta, map(json!({"seen": true})));
}

#[tokio::test]
async fn an_answer_before_an_agent_does_not_end_its_parent() {
    let mut first = llm("first", Scripted::new().default_reply("never"));
    first.callbacks.push(
        HookPoint::BeforeAgent,
        FixedCallback { name: "b", agent: Some("skipped"), ..FixedCallback::default() }.arc(),
    );
    let root = sequential("flow").sub_agent(first).sub_agent(llm("second", Scripted::new().default_reply("ran")));
    assert_eq!(Harness::new(root.build().unwrap()).await.transcript("hi").await, ["first: skipped", "second: ran"]);
}

#[tokio::test]
async fn the_first_of_several_answers_before_a_model_wins() {
    let answers = |name, model| FixedCallback { name, model: Some(model), ..FixedCallback::default() }.arc();
    let agent = llm_with("root", Scripted::new(), |llm| {
        llm.callbacks.push(HookPoint::BeforeModel, answers("a", "A"));
        llm.callbacks.push(HookPoint::BeforeModel, answers("b", "B"));
    });
    assert_eq!(Harness::new(agent).await.transcript("hi").await, ["root: A"]);
}

#[tokio::test]
async fn the_first_of_several_answers_after_a_model_wins() {
    let answers = |name, model| FixedCallback { name, model: Some(model), ..FixedCallback::default() }.arc();
    let model = Scripted::new().default_reply("model");
    let agent = llm_with("root", model, |llm| {
        llm.callbacks.push(HookPoint::AfterModel, answers("a", "A"));
        llm.callbacks.push(HookPoint::AfterModel, answers("b", "B"));
    });
    assert_eq!(Harness::new(agent).await.transcript("hi").await, ["root: A"]);
}

#[tokio::test]
async fn an_answer_before_the_model_does_not_pass_through_after_model() {
    let answers = |name, model| FixedCallback { name, model: Some(model), ..FixedCallback::default() }.arc();
    let agent = llm_with("root", Scripted::new(), |llm| {
        llm.callbacks.push(HookPoint::BeforeModel, answers("b", "before"));
        llm.callbacks.push(HookPoint::AfterModel, answers("a", "never"));
    });
    assert_eq!(Harness::new(agent).await.transcript("hi").await, ["root: before"]);
}

#[tokio::test]
async fn the_first_answer_to_a_model_error_replaces_it() {
    let down = Scripted::new().default_reply(Reply::error(ModelErrorKind::Server, "down"));
    let agent = build::llm("root")
        .model_instance("scripted", Arc::new(down))
        .on_model_error_fn(|_, _, _| Box::pin(async { Ok(None) }))
        .on_model_error_fn(|_, _, _| Box::pin(async { Ok(Some(LlmResponse::text("second"))) }))
        .on_model_error_fn(|_, _, _| Box::pin(async { Ok(Some(LlmResponse::text("third"))) }));
    assert_eq!(Harness::new(agent.build().unwrap()).await.transcript("hi").await, ["root: second"]);
}

#[tokio::test]
async fn a_model_error_that_no_callback_answers_ends_the_run() {
    let down = Scripted::new().default_reply(Reply::error(ModelErrorKind::Server, "down"));
    let agent = build::llm("root")
        .model_instance("scripted", Arc::new(down))
        .on_model_error_fn(|_, _, _| Box::pin(async { Ok(None) }));
    let (_, error) = Harness::new(agent.build().unwrap()).await.expect_error("hi").await;
    assert_eq!(error.code(), "MODEL_SERVER_ERROR");
}

#[tokio::test]
async fn a_callback_sees_the_arguments_that_an_earlier_one_changed() {
    let model = Scripted::sequence([Reply::call("echo", json!({"a": 1})), Reply::text("ok")]);
    let agent = build::llm("root")
        .model_instance("scripted", Arc::new(model))
        .tools([tool("echo", |_, _| panic!("must not run"))])
        .before_tool(FixedCallback { name: "marking", mark: Some("seen"), ..FixedCallback::default() }.arc())
        .before_tool_fn(|_, _, args| Box::pin(async move { Ok(Some(args.clone())) }))
        .before_tool_fn(|_, _, _| panic!("must not run"));
    let events = Harness::new(agent.build().unwrap()).await.transcript("hi").await;
    assert_eq!(events[1], "root: answer echo{\"a\":1,\"mark\":\"seen\"}");
}

#[tokio::test]
async fn the_first_of_several_answers_after_a_tool_wins() {
    let model = Scripted::sequence([Reply::call("t", json!({})), Reply::text("ok")]);
    let agent = llm_with("root", model, |llm| {
        llm.tools = vec![tool("t", |_, _| Ok(json!("tool")))];
        let answers =
            |name, n: i32| FixedCallback { name, tool: Some(json!({"n": n})), ..FixedCallback::default() }.arc();
        llm.callbacks.push(HookPoint::AfterTool, answers("a", 1));
        llm.callbacks.push(HookPoint::AfterTool, answers("b", 2));
    });
    assert_eq!(Harness::new(agent).await.transcript("hi").await[1], "root: answer t{\"result\":\"tool\",\"n\":1}");
}

/// An agent whose tool fails with a fatal error.
fn broken() -> build::LlmAgentBuilder {
    let fatal = || Err(ToolError::Fatal { tool: "t".into(), code: "BROKEN".into(), message: "it broke".into() });
    build::llm("root")
        .model_instance("scripted", Arc::new(Scripted::sequence([Reply::call("t", json!({})), Reply::text("ok")])))
        .tools([tool("t", move |_, _| fatal())])
}

#[tokio::test]
async fn the_first_answer_to_a_tool_error_replaces_it() {
    let agent = broken()
        .on_tool_error_fn(|_, _, _, _| Box::pin(async { Ok(None) }))
        .on_tool_error_fn(|_, _, _, _| Box::pin(async { Ok(Some(map(json!({"by": "second"})))) }))
        .on_tool_error_fn(|_, _, _, _| panic!("must not run"));
    let events = Harness::new(agent.build().unwrap()).await.transcript("hi").await;
    assert_eq!(events[1], "root: answer t{\"by\":\"second\"}");
}

#[tokio::test]
async fn a_tool_error_that_no_callback_answers_is_unchanged() {
    let agent = broken().on_tool_error_fn(|_, _, _, _| Box::pin(async { Ok(None) }));
    let (_, error) = Harness::new(agent.build().unwrap()).await.expect_error("hi").await;
    assert_eq!(error.to_string(), "tool `t`: it broke");
}
