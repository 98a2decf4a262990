//! Responses of models that a provider has blocked, or that cannot be read.

use std::sync::Arc;

use hatchery_core::{Agent, AgentKind, LlmResponse, Tool};
use hatchery_engine::AgentTool;
use hatchery_engine::build::llm as llm_builder;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

const BLOCKED: &str = "blocked: error SAFETY: the provider blocked the answer";

fn blocked(name: &str) -> Agent {
    llm(name, Scripted::new().default_reply(Reply::new().finish("SAFETY")))
}

fn says(name: &str) -> Agent {
    llm(name, Scripted::new().default_reply("hello"))
}

#[tokio::test]
async fn a_blocked_response_is_an_event_and_the_run_does_not_fail() {
    let app = Harness::new(blocked("blocked")).await;
    let events = app.run("hi").await;
    assert_eq!(briefs(&events), [BLOCKED]);
    assert_eq!(events[0].finish_reason.as_deref(), Some("SAFETY"));
    assert_eq!(app.session().await.events.len(), 2, "it is stored once");
}

#[tokio::test]
async fn a_malformed_function_call_is_an_event_too() {
    let malformed = Reply::new().finish("MALFORMED_FUNCTION_CALL");
    let app = Harness::new(llm("root", Scripted::new().default_reply(malformed))).await.streaming();
    let last = app.run("hi").await.last().map(|event| brief(event)).unwrap();
    assert_eq!(last, "root: error MALFORMED_FUNCTION_CALL: the model wrote a tool call that cannot be read");
}

#[tokio::test]
async fn a_blocked_response_ends_only_the_turn_of_its_agent() {
    let branches = workflow("all", AgentKind::Parallel, vec![blocked("blocked"), says("sibling")]);
    let app = Harness::new(workflow("flow", AgentKind::Sequential, vec![branches, says("after")])).await;
    let mut events = app.transcript("hi").await;
    events.sort();
    assert_eq!(events, ["after: hello", BLOCKED, "sibling: hello"]);
}

#[tokio::test]
async fn a_callback_for_errors_of_models_may_replace_a_blocked_response() {
    let root = llm_builder("root")
        .model_instance("scripted", Arc::new(Scripted::new().default_reply(Reply::new().finish("SAFETY"))))
        .on_model_error_fn(|_, _, error| {
            let text = error.to_string();
            Box::pin(async move { Ok(Some(LlmResponse::text(text))) })
        });
    let app = Harness::new(root.build().unwrap()).await;
    assert_eq!(app.transcript("hi").await, ["root: model `scripted`: SAFETY: the provider blocked the answer"]);
}

#[tokio::test]
async fn a_run_with_blocked_responses_resumes_after_them() {
    let round =
        || workflow("round", AgentKind::Loop { max_iterations: Some(2) }, vec![blocked("blocked"), says("after")]);
    let session = assert_resumable(round).await;
    assert_eq!(session.events.len(), 5);
}

#[tokio::test]
async fn an_agent_tool_whose_response_is_blocked_tells_its_caller() {
    let tool: Arc<dyn Tool> = Arc::new(AgentTool::new(blocked("helper")).unwrap());
    let model = Scripted::sequence([Reply::call("helper", json!({"request": "hi"})), Reply::text("sorry")]);
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![tool])).await;
    let answer = r#"root: answer helper{"error":"agent `helper` failed: the provider blocked the answer"}"#;
    assert_eq!(app.transcript("hi").await[1..], [answer, "root: sorry"]);
}

#[tokio::test]
async fn an_agent_tool_whose_failure_has_no_message_tells_its_caller_the_code() {
    let helper = llm_builder("helper")
        .model_instance("scripted", Arc::new(Scripted::new().default_reply(Reply::new().finish("SAFETY"))))
        .on_model_error_fn(|_, _, _| {
            let failure = LlmResponse { error_code: Some("BUSY".into()), ..LlmResponse::default() };
            Box::pin(async move { Ok(Some(failure)) })
        });
    let tool: Arc<dyn Tool> = Arc::new(AgentTool::new(helper.build().unwrap()).unwrap());
    let model = Scripted::sequence([Reply::call("helper", json!({"request": "hi"})), Reply::text("sorry")]);
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![tool])).await;
    let answer = r#"root: answer helper{"error":"agent `helper` failed: BUSY"}"#;
    assert_eq!(app.transcript("hi").await[1..], [answer, "root: sorry"]);
}
