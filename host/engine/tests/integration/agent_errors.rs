//! Failures of agents: callbacks that recover from them, and their reports.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, Callback, Content, CustomAgent, CustomAgentSpec, HookPoint,
    ModelErrorKind, RunError,
};
use hatchery_models::scripted::{Reply, Scripted};

use crate::support::*;

/// Recovers from failures with this code.
struct RecoveringCallback(&'static str);

#[async_trait]
impl Callback for RecoveringCallback {
    fn name(&self) -> &str {
        "mends"
    }

    async fn on_agent_error(&self, cx: &CallContext, error: &RunError) -> Result<Option<Content>, RunError> {
        Ok((error.code() == self.0).then(|| Content::model(format!("{} could not: {error}", cx.agent))))
    }
}

pub fn fails(name: &str) -> Agent {
    llm(name, Scripted::new().default_reply(Reply::error(ModelErrorKind::Server, "out of order")))
}

pub fn with(mut agent: Agent, callbacks: &[&'static str]) -> Agent {
    for code in callbacks {
        agent.callbacks.push(HookPoint::OnAgentError, Arc::new(RecoveringCallback(code)));
    }
    agent
}

#[tokio::test]
async fn the_first_callback_with_an_answer_recovers_and_the_run_continues() {
    let first = with(fails("first"), &["LIMIT_REACHED", "MODEL_SERVER_ERROR", "MODEL_SERVER_ERROR"]);
    let second = llm("second", Scripted::new().default_reply("here I am"));
    let app = Harness::new(workflow("all", AgentKind::Sequential, vec![first, second])).await;
    assert_eq!(
        app.transcript("hi").await,
        ["first: first could not: model `scripted`: out of order", "second: here I am"]
    );
}

#[tokio::test]
async fn an_agent_above_the_one_that_failed_may_recover() {
    let all = with(workflow("all", AgentKind::Sequential, vec![fails("inner")]), &["MODEL_SERVER_ERROR"]);
    let app = Harness::new(all).await;
    assert_eq!(app.transcript("hi").await, ["all: all could not: model `scripted`: out of order"]);
}

#[tokio::test]
async fn a_failure_that_no_callback_recovers_ends_the_run() {
    let (events, error) = Harness::new(with(fails("root"), &["LIMIT_REACHED"])).await.expect_error("hi").await;
    assert_eq!(error.code(), "MODEL_SERVER_ERROR");
    assert_eq!(events, ["root: error MODEL_SERVER_ERROR: model `scripted`: out of order"]);
}

#[tokio::test]
async fn callbacks_do_not_recover_a_cancelled_run() {
    let app = Harness::new(with(fails("root"), &["CANCELLED"])).await;
    let request = app.request(Content::user("hi"));
    request.cancel.cancel();
    let error = app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap_err();
    assert_eq!(error.code(), "CANCELLED");
}

/// Fails with a message of 1 MiB.
struct VerboseAgent;

#[async_trait]
impl CustomAgent for VerboseAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let (agent, message) = (cx.call.agent.to_string(), "x".repeat(1 << 20));
        Err(RunError::Agent { agent, code: "AGENT_FAILED".into(), message })
    }
}

#[tokio::test]
async fn the_stored_report_of_a_failure_has_at_most_sixteen_kibibytes_of_its_message() {
    let kind = AgentKind::Custom(CustomAgentSpec { code: Arc::new(VerboseAgent), model: None, tools: vec![] });
    let app = Harness::new(Agent::new("root", "", kind)).await;
    app.expect_error("hi").await;
    let session = app.session().await;
    let report = session.events.last().and_then(|event| event.error_message.clone()).unwrap();
    assert_eq!(report.len(), (16 << 10) + "…".len());
    assert!(report.starts_with("agent `root`: xxx") && report.ends_with("x…"), "{report}");
}
