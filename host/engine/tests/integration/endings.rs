//! Runs that one of their agents, tools, callbacks or plugins ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, Callback, Content, CustomAgent, CustomAgentSpec, EventActions,
    EventData, HookPoint, Instruction, InstructionProvider, Plugin, RunError,
};
use hatchery_engine::{AgentTool, Plugins, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

/// Returns an LLM agent that calls a tool which ends the run. Its model has no other reply.
fn ending(name: &str) -> Agent {
    let model = Scripted::sequence([Reply::call("stop", json!({}))]);
    llm_with(name, model, |llm| {
        llm.tools = vec![tool("stop", |_, cx| {
            cx.actions().end_invocation = Some(true);
            Ok(json!({"stopped": true}))
        })];
    })
}

fn leaf(name: &str) -> Agent {
    llm(name, Scripted::new().default_reply("never"))
}

fn code(name: &str, code: impl CustomAgent + 'static) -> Agent {
    Agent::new(name, "", AgentKind::Custom(CustomAgentSpec { code: Arc::new(code), model: None, tools: vec![] }))
}

const ENDED: [&str; 2] = ["ends: call stop{}", r#"ends: answer stop{"stopped":true}"#];

#[tokio::test]
async fn a_tool_ends_the_run_and_its_event_says_so() {
    let app = Harness::new(ending("ends")).await;
    let events = app.run("hi").await;
    assert_eq!(briefs(&events), ENDED);
    let json: serde_json::Value = serde_json::from_slice(events[1].json()).unwrap();
    assert_eq!(json["actions"]["endInvocation"], true);
    assert_eq!(app.session().await.events.len(), 3);
}

#[tokio::test]
async fn agents_after_it_do_not_run_in_any_workflow() {
    for kind in [AgentKind::Sequential, AgentKind::Loop { max_iterations: None }] {
        let inner = workflow("inner", kind.clone(), vec![ending("ends"), leaf("next")]);
        let outer = workflow("outer", kind, vec![inner, leaf("last")]);
        assert_eq!(Harness::new(outer).await.transcript("hi").await, ENDED);
    }
}

/// Never ends by itself.
struct NeverEndingAgent;

#[async_trait]
impl CustomAgent for NeverEndingAgent {
    async fn run(&self, _: AgentContext) -> Result<(), RunError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn other_branches_of_a_parallel_agent_are_stopped() {
    let all = workflow("all", AgentKind::Parallel, vec![code("waits", NeverEndingAgent), ending("ends")]);
    let flow = workflow("flow", AgentKind::Sequential, vec![all, leaf("last")]);
    assert_eq!(Harness::new(flow).await.transcript("hi").await, ENDED);
}

/// Ends the run, and continues as if it had not.
struct IgnoringAgent;

#[async_trait]
impl CustomAgent for IgnoringAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let actions = EventActions { end_invocation: Some(true), ..EventActions::default() };
        let ended = cx.emit(EventData { actions, ..EventData::default() }).await;
        assert!(matches!(ended, Err(RunError::Stopped)));
        assert!(matches!(cx.say("more").await, Err(RunError::Stopped)));
        Ok(())
    }
}

#[tokio::test]
async fn code_that_ignores_the_end_emits_nothing_more() {
    let flow = workflow("flow", AgentKind::Sequential, vec![code("deaf", IgnoringAgent), leaf("last")]);
    assert_eq!(Harness::new(flow).await.transcript("hi").await, ["deaf: "]);
}

/// Ends the run at every hook.
struct EndingCallback;

#[async_trait]
impl Callback for EndingCallback {
    fn name(&self) -> &str {
        "ends"
    }

    async fn before_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        cx.actions().end_invocation = Some(true);
        Ok(None)
    }

    async fn after_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        cx.actions().end_invocation = Some(true);
        Ok(Some(Content::model("bye")))
    }
}

#[tokio::test]
async fn a_callback_ends_the_run_before_or_after_its_agent() {
    let hooked = |point: HookPoint| {
        let mut agent = llm("agent", Scripted::new().default_reply("hello"));
        agent.callbacks.push(point, Arc::new(EndingCallback));
        workflow("flow", AgentKind::Sequential, vec![agent, leaf("last")])
    };
    assert_eq!(Harness::new(hooked(HookPoint::BeforeAgent)).await.transcript("hi").await, ["agent: "]);
    let after = Harness::new(hooked(HookPoint::AfterAgent)).await.transcript("hi").await;
    assert_eq!(after, ["agent: hello", "agent: bye"]);
}

/// EndingCallback each run before it begins, and records that it is over.
#[derive(Default)]
struct EndingPlugin {
    is_over: AtomicBool,
}

impl Callback for EndingPlugin {
    fn name(&self) -> &str {
        "closed"
    }
}

#[async_trait]
impl Plugin for EndingPlugin {
    async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        cx.actions().end_invocation = Some(true);
        Ok(None)
    }

    async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        self.is_over.store(true, Ordering::Relaxed);
        cx.set_state("counted", json!(1));
        Ok(())
    }
}

#[tokio::test]
async fn a_plugin_ends_the_run_and_what_follows_a_run_still_happens() {
    let closed = Arc::new(EndingPlugin::default());
    let mut app = Harness::new(leaf("root")).await;
    app.runner = Runner::with_plugins(app.runner.services().clone(), Plugins::new(vec![closed.clone()]).unwrap());
    assert_eq!(app.transcript("hi").await, ["model: ", "model: "]);
    assert!(closed.is_over.load(Ordering::Relaxed));
    assert_eq!(app.state().await, json!({"counted": 1}));
}

#[tokio::test]
async fn an_agent_that_is_called_as_a_tool_ends_its_own_run_only() {
    let model = Scripted::sequence([Reply::call("ends", json!({"request": "go"})), Reply::text("done")]);
    let root = llm_with("root", model, |llm| {
        let flow = workflow("ends_flow", AgentKind::Sequential, vec![ending("ends_it"), leaf("last")]);
        let agent = Agent { name: "ends".into(), ..flow };
        llm.tools = vec![Arc::new(AgentTool::new(agent).unwrap())];
    });
    let events = Harness::new(root).await.transcript("hi").await;
    assert_eq!(events, [r#"root: call ends{"request":"go"}"#, r#"root: answer ends{"stopped":true}"#, "root: done"]);
}

#[tokio::test]
async fn an_ended_run_is_not_continued() {
    let mut app = Harness::new(ending("ends")).await;
    app.resumable();
    let invocation = app.run("hi").await[0].invocation_id.clone();
    let request = RunRequest::resume(USER, SESSION, invocation.as_str());
    let error = app.runner.run(app.app.clone(), request).await.err().unwrap();
    assert_eq!(error.code(), "BAD_INPUT");
    assert_eq!(
        error.to_string(),
        format!("invocation `{invocation}` was ended by one of its agents; omit its id to begin a new run")
    );
}

/// Computes an instruction, and tries to change the session.
struct MeddlingInstruction;

#[async_trait]
impl InstructionProvider for MeddlingInstruction {
    async fn instruction(&self, cx: &CallContext) -> Result<String, RunError> {
        cx.set_state("meddled", json!(true));
        let error = cx.check_writable().unwrap_err();
        let artifact = cx.save_artifact("a.txt", &hatchery_core::Part::text("a")).await.unwrap_err();
        assert_eq!(artifact.to_string(), error.to_string());
        Ok(format!("{}: {error}", error.code()))
    }
}

#[tokio::test]
async fn an_instruction_only_reads() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    let root = llm_on("root", &model, |llm| llm.instruction = Instruction::Computed(Arc::new(MeddlingInstruction)));
    let app = Harness::new(root).await;
    app.run("hi").await;
    assert_eq!(
        model.requests()[0].system_instructions[0],
        "READ_ONLY: an instruction only reads: make this change in a tool, a callback or an agent"
    );
    assert_eq!(app.state().await, json!({}));
}
