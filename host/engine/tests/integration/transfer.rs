//! Transfers between agents, and the agent that continues in the next turn.

use std::sync::Arc;

use hatchery_core::{AgentKind, HookPoint, RunError};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

fn transfer_to(to: &str) -> Reply {
    Reply::call("transfer_to_agent", json!({"agent_name": to}))
}

#[tokio::test]
async fn a_sub_agent_gets_and_keeps_the_conversation() {
    let child = llm("child", Scripted::sequence(["child 1", "child 2"]));
    let root = llm("root", Scripted::sequence([transfer_to("child")])).with_sub_agents(vec![child]);
    let app = Harness::new(root).await;
    assert_eq!(
        app.transcript("hi").await,
        [
            "root: call transfer_to_agent{\"agent_name\":\"child\"}",
            "root: answer transfer_to_agent{}",
            "child: child 1"
        ]
    );
    assert_eq!(app.transcript("more").await, ["child: child 2"]);
}

#[tokio::test]
async fn a_sub_agent_that_cannot_return_control_does_not_keep_the_conversation() {
    let child = llm_with("child", Scripted::sequence(["child"]), |llm| llm.disallow_transfer_to_parent = true);
    let root = llm("root", Scripted::sequence([transfer_to("child"), Reply::text("root again")]));
    let app = Harness::new(root.with_sub_agents(vec![child])).await;
    app.run("hi").await;
    assert_eq!(app.transcript("more").await, ["root: root again"]);
}

#[tokio::test]
async fn a_workflow_agent_does_not_keep_the_conversation() {
    let flow = workflow("flow", AgentKind::Sequential, vec![llm("leaf", Scripted::new().default_reply("leaf"))]);
    let root = llm("root", Scripted::sequence([transfer_to("flow"), Reply::text("root again")]));
    let app = Harness::new(root.with_sub_agents(vec![flow])).await;
    assert_eq!(app.transcript("hi").await.last().unwrap(), "leaf: leaf");
    assert_eq!(app.transcript("more").await, ["root: root again"]);
}

#[tokio::test]
async fn only_allowed_agents_can_be_transferred_to() {
    let peers = vec![
        llm_with("a", Scripted::sequence([transfer_to("b"), Reply::text("a stays")]), |llm| {
            llm.disallow_transfer_to_peers = true;
        }),
        llm("b", Scripted::new().default_reply("b")),
    ];
    let root = llm("root", Scripted::sequence([transfer_to("a")])).with_sub_agents(peers);
    let events = Harness::new(root).await.transcript("hi").await;
    assert!(events[3].contains(r#"at `/agent_name`: \"b\" is not one of [\"root\"]"#), "{}", events[3]);
    assert_eq!(events[4..], ["a: a stays"]);
}

#[tokio::test]
async fn the_model_gets_the_agents_that_it_can_transfer_to() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    let child = llm("child", Scripted::new());
    Harness::new(llm_on("root", &model, |_| {}).with_sub_agents(vec![child])).await.run("hi").await;
    let request = &model.requests()[0];
    assert!(request.system_instructions[2].contains("Agent name: child\nAgent description: Does child."));
    assert_eq!(request.tools[0].name, "transfer_to_agent");
}

#[tokio::test]
async fn an_agent_without_others_has_no_transfer_tool() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    Harness::new(llm_on("root", &model, |_| {})).await.run("hi").await;
    assert!(model.requests()[0].tools.is_empty());
}

#[tokio::test]
async fn a_loop_that_escalates_without_an_answer_returns_control() {
    let stop = tool("stop", |_, cx| {
        cx.actions().escalate = Some(true);
        Ok(json!({}))
    });
    let leaf = llm_with("leaf", Scripted::sequence([Reply::call("stop", json!({}))]), |llm| llm.tools = vec![stop]);
    let rounds = workflow("rounds", AgentKind::Loop { max_iterations: None }, vec![leaf]);
    let root = llm("root", Scripted::sequence([transfer_to("rounds"), Reply::text("root concludes")]));
    let app = Harness::new(root.with_sub_agents(vec![rounds])).await;
    assert_eq!(app.transcript("hi").await.last().unwrap(), "root: root concludes");
}

#[tokio::test]
async fn a_tool_that_transfers_to_an_unknown_agent_fails_the_run() {
    let away = tool("away", |_, cx| {
        cx.actions().transfer_to_agent = Some("nobody".into());
        Ok(json!({}))
    });
    let agent = llm_with("root", Scripted::sequence([Reply::call("away", json!({}))]), |llm| llm.tools = vec![away]);
    let (_, error) = Harness::new(agent).await.expect_error("hi").await;
    assert!(matches!(&error, RunError::NotFound { name, .. } if name == "nobody"), "{error:?}");
}

#[tokio::test]
async fn agents_that_keep_transferring_to_each_other_reach_the_limit_without_overflow() {
    let other = llm("other", Scripted::new().default_reply(transfer_to("root")));
    let root = llm("root", Scripted::new().default_reply(transfer_to("other"))).with_sub_agents(vec![other]);
    let (events, error) = Harness::new(root).await.expect_error("hi").await;
    assert_eq!(error.code(), "LIMIT_REACHED");
    assert!(events.len() > 900, "{}", events.len());
}

#[tokio::test]
async fn callbacks_after_an_agent_run_when_the_agents_that_it_transferred_to_have_ended() {
    let mut child = llm("child", Scripted::new().default_reply("child"));
    child
        .callbacks
        .push(HookPoint::AfterAgent, Answers { name: "c", agent: Some("after child"), ..Answers::default() }.arc());
    let mut root = llm("root", Scripted::sequence([transfer_to("child")])).with_sub_agents(vec![child]);
    root.callbacks
        .push(HookPoint::AfterAgent, Answers { name: "r", agent: Some("after root"), ..Answers::default() }.arc());
    let events = Harness::new(root).await.transcript("hi").await;
    assert_eq!(events[2..], ["child: child", "child: after child", "root: after root"]);
}

#[tokio::test]
async fn the_nearest_agent_that_can_return_control_keeps_the_conversation() {
    let lowest = llm_with("lowest", Scripted::sequence(["lowest"]), |llm| {
        llm.disallow_transfer_to_parent = true;
        llm.disallow_transfer_to_peers = true;
    });
    let middle = llm("middle", Scripted::sequence([transfer_to("lowest"), Reply::text("middle goes on")]));
    let root = llm("root", Scripted::sequence([transfer_to("middle")]));
    let app = Harness::new(root.with_sub_agents(vec![middle.with_sub_agents(vec![lowest])])).await;
    assert_eq!(app.transcript("hi").await.last().unwrap(), "lowest: lowest");
    assert_eq!(app.transcript("more").await, ["middle: middle goes on"]);
}

#[tokio::test]
async fn a_loop_does_not_keep_the_conversation() {
    let rounds = AgentKind::Loop { max_iterations: Some(1) };
    let rounds = workflow("rounds", rounds, vec![llm("leaf", Scripted::new().default_reply("leaf"))]);
    let root = llm("root", Scripted::sequence([transfer_to("rounds"), Reply::text("root again")]));
    let app = Harness::new(root.with_sub_agents(vec![rounds])).await;
    assert_eq!(app.transcript("hi").await.last().unwrap(), "leaf: leaf");
    assert_eq!(app.transcript("more").await, ["root: root again"]);
}

#[tokio::test]
async fn a_sub_agent_returns_control_to_its_parent_in_the_same_run() {
    let child = llm("child", Scripted::sequence([transfer_to("root")]));
    let root = llm("root", Scripted::sequence([transfer_to("child"), Reply::text("root answers")]));
    let events = Harness::new(root.with_sub_agents(vec![child])).await.transcript("hi").await;
    assert_eq!(events.last().unwrap(), "root: root answers");
    assert_eq!(events.len(), 5);
}

#[tokio::test]
async fn peers_transfer_to_each_other() {
    let (a, b) = (llm("a", Scripted::sequence([transfer_to("b")])), llm("b", Scripted::sequence(["b answers"])));
    let root = llm("root", Scripted::sequence([transfer_to("a")])).with_sub_agents(vec![a, b]);
    assert_eq!(Harness::new(root).await.transcript("hi").await.last().unwrap(), "b: b answers");
}
