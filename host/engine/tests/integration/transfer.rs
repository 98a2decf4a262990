//! Transfers between agents, and the agent that continues in the next turn.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentKind, CallContext, Callback, Content, HookPoint, JsonMap, LlmRequest, LlmResponse, RunError, Tool,
    ToolError,
};
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
    child.callbacks.push(
        HookPoint::AfterAgent,
        FixedCallback { name: "c", agent: Some("after child"), ..FixedCallback::default() }.arc(),
    );
    let mut root = llm("root", Scripted::sequence([transfer_to("child")])).with_sub_agents(vec![child]);
    root.callbacks.push(
        HookPoint::AfterAgent,
        FixedCallback { name: "r", agent: Some("after root"), ..FixedCallback::default() }.arc(),
    );
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

/// Returns a tool that transfers to this agent, with or without asking.
fn hands_over(target: &'static str, asks: bool) -> Arc<dyn Tool> {
    tool("hand_over", move |_, cx| {
        if asks {
            cx.transfer_to(target).map_err(|error| ToolError::Recoverable(error.client_message()))?
        } else {
            cx.actions().transfer_to_agent = Some(target.into())
        }
        Ok(json!("handed over"))
    })
}

fn with_tool(target: &'static str, asks: bool) -> Agent {
    let model = Scripted::sequence([Reply::call("hand_over", json!({})), Reply::text("stays")]);
    let root = llm_with("root", model, |llm| llm.tools = vec![hands_over(target, asks)]);
    root.with_sub_agents(vec![llm("child", Scripted::new().default_reply("child"))])
}

#[tokio::test]
async fn a_tool_hands_over_to_an_agent_that_its_caller_may_transfer_to() {
    for asks in [true, false] {
        let events = Harness::new(with_tool("child", asks)).await.transcript("hi").await;
        assert_eq!(events[1..], [r#"root: answer hand_over{"result":"handed over"}"#, "child: child"]);
    }
}

#[tokio::test]
async fn a_tool_that_hands_over_to_an_unknown_or_disallowed_agent_gets_an_error() {
    for (target, asks) in [("nobody", true), ("nobody", false), ("root", true), ("root", false)] {
        let events = Harness::new(with_tool(target, asks)).await.transcript("hi").await;
        let error =
            format!("agent `root`: cannot transfer to `{target}`; the agents that it can transfer to are `child`");
        assert_eq!(events[1..], [format!(r#"root: answer hand_over{{"error":"{error}"}}"#), "root: stays".into()]);
    }
}

/// Transfers to the agent `target` at one hook.
struct TransferringCallback {
    at: HookPoint,
    target: &'static str,
}

impl TransferringCallback {
    fn transfer(&self, at: HookPoint, cx: &CallContext) -> Result<(), RunError> {
        if self.at == at { cx.transfer_to(self.target) } else { Ok(()) }
    }
}

#[async_trait]
impl Callback for TransferringCallback {
    fn name(&self) -> &str {
        "hands_over"
    }

    async fn before_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        self.transfer(HookPoint::BeforeAgent, cx).map(|()| None)
    }

    async fn after_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        self.transfer(HookPoint::AfterAgent, cx).map(|()| None)
    }

    async fn before_model(&self, cx: &CallContext, _: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        self.transfer(HookPoint::BeforeModel, cx).map(|()| None)
    }

    async fn after_model(&self, cx: &CallContext, _: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        self.transfer(HookPoint::AfterModel, cx).map(|()| None)
    }

    async fn after_tool(
        &self,
        cx: &CallContext,
        _: &str,
        _: &JsonMap,
        _: &JsonMap,
    ) -> Result<Option<JsonMap>, RunError> {
        self.transfer(HookPoint::AfterTool, cx).map(|()| None)
    }
}

fn with_callback(at: HookPoint, target: &'static str) -> Agent {
    let model = Scripted::new().on_tool("work", "done").default_reply(Reply::text("first").and_call("work", json!({})));
    let callback: Arc<dyn Callback> = Arc::new(TransferringCallback { at, target });
    let mut root = llm_with("root", model, |llm| {
        llm.tools = vec![tool("work", |_, _| Ok(json!("worked")))];
        if !matches!(at, HookPoint::BeforeAgent | HookPoint::AfterAgent) {
            llm.callbacks.push(at, callback.clone());
        }
    });
    if matches!(at, HookPoint::BeforeAgent | HookPoint::AfterAgent) {
        root.callbacks.push(at, callback);
    }
    root.with_sub_agents(vec![llm("child", Scripted::new().default_reply("child"))])
}

#[tokio::test]
async fn callbacks_transfer_to_another_agent() {
    let called = ["root: first; call work{}", r#"root: answer work{"result":"worked"}"#, "child: child"];
    let cases = [
        (HookPoint::BeforeAgent, vec!["root: ", "child: child"]),
        (HookPoint::BeforeModel, called.to_vec()),
        (HookPoint::AfterModel, called.to_vec()),
        (HookPoint::AfterTool, called.to_vec()),
        (HookPoint::AfterAgent, vec![called[0], called[1], "root: done", "root: ", "child: child"]),
    ];
    for (at, expected) in cases {
        assert_eq!(Harness::new(with_callback(at, "child")).await.transcript("hi").await, expected, "{at:?}");
    }
}

#[tokio::test]
async fn a_callback_that_hands_over_to_an_unknown_agent_gets_an_error() {
    for at in [HookPoint::BeforeAgent, HookPoint::AfterModel] {
        let (_, error) = Harness::new(with_callback(at, "nobody")).await.expect_error("hi").await;
        assert_eq!(error.code(), "TRANSFER_NOT_ALLOWED", "{at:?}");
    }
}

#[tokio::test]
async fn a_run_in_which_callbacks_have_handed_over_resumes() {
    for at in [HookPoint::BeforeAgent, HookPoint::AfterModel, HookPoint::AfterAgent] {
        assert_resumable(|| with_callback(at, "child")).await;
    }
}
