//! Sequential, parallel and loop agents.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CustomAgent, CustomAgentSpec, EventActions, EventData, HookPoint, ModelErrorKind,
    RunError,
};
use hatchery_engine::build::{custom as custom_fn, parallel};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;
use tokio::sync::Barrier;

use crate::support::*;

fn leaf(name: &str, text: &'static str) -> Agent {
    llm(name, Scripted::new().default_reply(text))
}

fn exiting(name: &str) -> Agent {
    llm_with(name, Scripted::new().default_reply(Reply::call("exit_loop", json!({}))), |llm| {
        llm.tools = vec![hatchery_engine::builtin::tool("exit_loop").unwrap()];
    })
}

fn rounds(most: Option<u32>, sub_agents: Vec<Agent>) -> Agent {
    workflow("rounds", AgentKind::Loop { max_iterations: most }, sub_agents)
}

#[tokio::test]
async fn a_sequence_runs_in_order_and_shares_state() {
    let first = llm_with("first", Scripted::new().default_reply("Rome"), |llm| llm.output_key = Some("city".into()));
    let model = Arc::new(Scripted::sequence(["ok"]));
    let second = llm_on("second", &model, |llm| {
        llm.instruction = hatchery_core::Instruction::Template("Describe {city}.".into());
    });
    let app = Harness::new(workflow("flow", AgentKind::Sequential, vec![first, second])).await;
    assert_eq!(app.transcript("hi").await, ["first: Rome", "second: ok"]);
    assert_eq!(model.requests()[0].system_instructions[0], "Describe Rome.");
}

#[tokio::test]
async fn a_loop_stops_after_its_rounds() {
    let app = Harness::new(rounds(Some(2), vec![leaf("a", "A"), leaf("b", "B")])).await;
    assert_eq!(app.transcript("hi").await, ["a: A", "b: B", "a: A", "b: B"]);
}

#[tokio::test]
async fn a_loop_without_sub_agents_or_rounds_emits_nothing() {
    assert!(Harness::new(rounds(None, vec![])).await.transcript("hi").await.is_empty());
    assert!(Harness::new(rounds(Some(0), vec![leaf("a", "A")])).await.transcript("hi").await.is_empty());
}

#[tokio::test]
async fn escalating_ends_the_loop_with_that_event() {
    let app = Harness::new(rounds(None, vec![leaf("a", "A"), exiting("b"), leaf("c", "C")])).await;
    assert_eq!(app.transcript("hi").await, ["a: A", "b: call exit_loop{}", "b: answer exit_loop{}"]);
}

#[tokio::test]
async fn a_sequence_in_a_loop_ends_with_the_loop() {
    let inner = workflow("inner", AgentKind::Sequential, vec![exiting("b"), leaf("c", "C")]);
    let app = Harness::new(rounds(None, vec![inner])).await;
    assert_eq!(app.transcript("hi").await, ["b: call exit_loop{}", "b: answer exit_loop{}"]);
}

#[tokio::test]
async fn escalating_outside_a_loop_changes_nothing() {
    let app = Harness::new(workflow("flow", AgentKind::Sequential, vec![exiting("b"), leaf("c", "C")])).await;
    assert_eq!(app.transcript("hi").await.last().unwrap(), "c: C");
}

/// Emits an event when all agents have reached the barrier.
struct MeetingAgent(Arc<Barrier>);

#[async_trait]
impl CustomAgent for MeetingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        self.0.wait().await;
        cx.say("met").await.map(|_| ())
    }
}

/// Escalates after a message.
struct EscalatingAgent;

#[async_trait]
impl CustomAgent for EscalatingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let actions = EventActions { escalate: Some(true), ..EventActions::default() };
        cx.emit(EventData { actions, ..EventData::default() }).await.map(|_| ())
    }
}

/// Never ends by itself.
struct WaitingAgent;

#[async_trait]
impl CustomAgent for WaitingAgent {
    async fn run(&self, _: AgentContext) -> Result<(), RunError> {
        std::future::pending().await
    }
}

fn custom(name: &str, code: impl CustomAgent + 'static) -> Agent {
    Agent::new(name, "", AgentKind::Custom(CustomAgentSpec { code: Arc::new(code), model: None, tools: vec![] }))
}

#[tokio::test]
async fn branches_run_at_the_same_time_each_in_its_own_branch() {
    let barrier = Arc::new(Barrier::new(3));
    let agents = ["a", "b", "c"].map(|name| custom(name, MeetingAgent(barrier.clone()))).to_vec();
    let app = Harness::new(workflow("all", AgentKind::Parallel, agents)).await;
    let branches: BTreeSet<_> = app.run("hi").await.iter().map(|event| event.branch.clone().unwrap()).collect();
    assert_eq!(branches, BTreeSet::from(["all.a".into(), "all.b".into(), "all.c".into()]));
}

#[tokio::test]
async fn nested_parallel_agents_name_each_branch_once() {
    let inner = workflow("inner", AgentKind::Parallel, vec![leaf("x", "X")]);
    let app = Harness::new(workflow("outer", AgentKind::Parallel, vec![inner])).await;
    assert_eq!(app.run("hi").await[0].branch.as_deref(), Some("outer.inner.x"));
}

#[tokio::test]
async fn branches_do_not_see_each_other_but_a_later_agent_sees_all() {
    let models: Vec<_> = ["a", "b"].map(|_| Arc::new(Scripted::sequence(["one", "two"]))).to_vec();
    let branches = vec![llm_on("a", &models[0], |_| {}), llm_on("b", &models[1], |_| {})];
    let last = Arc::new(Scripted::sequence(["sum", "sum"]));
    let flow = workflow(
        "flow",
        AgentKind::Sequential,
        vec![workflow("all", AgentKind::Parallel, branches), llm_on("last", &last, |_| {})],
    );
    let app = Harness::new(flow).await;
    app.run("hi").await;
    app.run("again").await;
    let second = &models[0].requests()[1];
    assert!(second.contents.iter().all(|content| !format!("{content:?}").contains("[b]")), "{:?}", second.contents);
    let contents = format!("{:?}", last.requests()[0].contents);
    assert!(contents.contains("[a] said: one") && contents.contains("[b] said: one"), "{contents}");
}

#[tokio::test]
async fn an_agent_that_gathers_inside_a_nested_parallel_sees_the_branches_below_its_own() {
    let gather = Arc::new(Scripted::sequence(["sum"]));
    let inner = workflow("inner", AgentKind::Parallel, vec![leaf("x", "one"), leaf("y", "two")]);
    let seq = workflow("seq", AgentKind::Sequential, vec![inner, llm_on("gather", &gather, |_| {})]);
    let app = Harness::new(workflow("outer", AgentKind::Parallel, vec![seq, leaf("sibling", "hidden")])).await;
    app.run("hi").await;
    let contents = format!("{:?}", gather.requests()[0].contents);
    assert!(contents.contains("[x] said: one") && contents.contains("[y] said: two"), "{contents}");
    assert!(!contents.contains("hidden"), "{contents}");
}

#[tokio::test]
async fn an_escalation_in_one_branch_ends_the_others() {
    let agents = vec![custom("waits", WaitingAgent), custom("stops", EscalatingAgent)];
    let events = Harness::new(workflow("all", AgentKind::Parallel, agents)).await.run("hi").await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].author, "stops");
}

#[tokio::test]
async fn a_failed_branch_ends_the_others_and_their_events_stay() {
    let failing = llm("fails", Scripted::new().default_reply(Reply::error(ModelErrorKind::Server, "down")));
    let first =
        workflow("first", AgentKind::Sequential, vec![leaf("first_leaf", "stays"), custom("waits", WaitingAgent)]);
    let app = Harness::new(workflow("all", AgentKind::Parallel, vec![first, failing])).await;
    let (_, error) = app.expect_error("hi").await;
    assert_eq!(error.code(), "MODEL_SERVER_ERROR");
    assert_eq!(app.session_transcript().await.first().unwrap(), "user: hi");
}

#[tokio::test]
async fn a_failure_is_attributed_to_the_agent_that_failed() {
    let failing = llm("fails", Scripted::new().default_reply(Reply::error(ModelErrorKind::Server, "down")));
    let agents = vec![custom("waits", WaitingAgent), failing, custom("waits_too", WaitingAgent)];
    let (events, _) = Harness::new(workflow("all", AgentKind::Parallel, agents)).await.expect_error("hi").await;
    assert!(events[0].starts_with("fails: error MODEL_SERVER_ERROR"), "{events:?}");
}

#[tokio::test]
async fn an_exit_ends_the_nearest_loop_and_the_loop_around_goes_on() {
    let inner =
        workflow("inner", AgentKind::Loop { max_iterations: None }, vec![exiting("critic"), leaf("c", "never")]);
    let app = Harness::new(rounds(Some(2), vec![inner, leaf("after", "went on")])).await;
    let round = ["critic: call exit_loop{}", "critic: answer exit_loop{}", "after: went on"];
    assert_eq!(app.transcript("hi").await, [round, round].concat());
}

#[tokio::test]
async fn an_escalation_inside_a_loop_of_a_branch_does_not_end_the_other_branches() {
    let left = Arc::new(tokio::sync::Notify::new());
    let waits = {
        let left = left.clone();
        custom_fn("waits", move |cx| {
            let left = left.clone();
            async move {
                left.notified().await;
                cx.say("still here").await.map(|_| ())
            }
        })
    };
    let tells = custom_fn("tells", move |cx| {
        left.notify_one();
        async move { cx.say("the loop is over").await.map(|_| ()) }
    });
    let refine = workflow("refine", AgentKind::Loop { max_iterations: None }, vec![exiting("critic")]);
    let branch = workflow("branch", AgentKind::Sequential, vec![refine, tells.build().unwrap()]);
    let all = workflow("all", AgentKind::Parallel, vec![waits.build().unwrap(), branch]);
    let events: BTreeSet<_> = Harness::new(all).await.transcript("hi").await.into_iter().collect();
    assert!(events.contains("waits: still here") && events.contains("tells: the loop is over"), "{events:?}");
}

#[tokio::test]
async fn an_escalation_of_a_branch_ends_the_parallel_agent_and_the_loop_around_it() {
    let all =
        workflow("all", AgentKind::Parallel, vec![custom("waits", WaitingAgent), custom("stops", EscalatingAgent)]);
    let app = Harness::new(rounds(None, vec![all, leaf("after", "never")])).await;
    assert_eq!(app.transcript("hi").await, ["stops: "]);
}

#[tokio::test]
async fn a_loop_of_one_round_runs_its_agents_once() {
    let app = Harness::new(rounds(Some(1), vec![leaf("a", "A"), leaf("b", "B")])).await;
    assert_eq!(app.transcript("hi").await, ["a: A", "b: B"]);
}

#[tokio::test]
async fn a_loop_without_limit_continues_until_it_is_cancelled() {
    let app = Harness::new(rounds(None, vec![leaf("a", "A"), leaf("b", "B")])).await;
    let request = app.request(hatchery_core::Content::user("hi"));
    let cancel = request.cancel.clone();
    let mut run = app.runner.run(app.app.clone(), request).await.unwrap();
    let mut first = Vec::new();
    while first.len() < 10 {
        first.push(brief(&run.next().await.unwrap().unwrap()));
    }
    cancel.cancel();
    assert_eq!(first, ["a: A", "b: B"].repeat(5));
    assert!(matches!(run.collect().await, Err(RunError::Cancelled)));
}

#[tokio::test]
async fn an_answer_before_an_agent_in_a_loop_does_not_end_the_loop() {
    let mut skipped = leaf("a", "never");
    skipped.callbacks.push(
        HookPoint::BeforeAgent,
        FixedCallback { name: "b", agent: Some("skipped"), ..FixedCallback::default() }.arc(),
    );
    let app = Harness::new(rounds(Some(2), vec![skipped, leaf("b", "B")])).await;
    assert_eq!(app.transcript("hi").await, ["a: skipped", "b: B", "a: skipped", "b: B"]);
}

#[tokio::test]
async fn an_agent_that_ends_its_own_run_does_not_end_the_loop() {
    let ends = custom_fn("a", |cx| async move {
        let actions = EventActions { end_of_agent: Some(true), ..EventActions::default() };
        cx.emit(EventData { actions, ..EventData::default() }).await?;
        Ok(())
    });
    let app = Harness::new(rounds(Some(2), vec![ends.build().unwrap(), leaf("b", "B")])).await;
    assert_eq!(app.transcript("hi").await, ["a: ", "b: B", "a: ", "b: B"]);
}

#[tokio::test]
async fn parallel_agents_emit_in_the_order_of_completion() {
    let done = Arc::new(tokio::sync::Notify::new());
    let fast = {
        let done = done.clone();
        custom_fn("fast", move |cx| {
            let done = done.clone();
            async move {
                cx.say("fast").await?;
                done.notify_one();
                Ok(())
            }
        })
    };
    let slow = custom_fn("slow", move |cx| {
        let done = done.clone();
        async move {
            done.notified().await;
            cx.say("slow").await?;
            Ok(())
        }
    });
    let all = parallel("all").sub_agent(slow).sub_agent(fast).build().unwrap();
    assert_eq!(Harness::new(all).await.transcript("hi").await, ["fast: fast", "slow: slow"]);
}

#[tokio::test]
async fn a_parallel_agent_without_sub_agents_emits_nothing() {
    assert!(Harness::new(workflow("all", AgentKind::Parallel, vec![])).await.transcript("hi").await.is_empty());
}

#[tokio::test]
async fn events_before_an_escalation_stay_and_none_come_after_it() {
    let emitted = Arc::new(tokio::sync::Notify::new());
    let fast = {
        let emitted = emitted.clone();
        custom_fn("fast", move |cx| {
            let emitted = emitted.clone();
            async move {
                cx.say("fast").await?;
                emitted.notify_one();
                Ok(())
            }
        })
    };
    let stops = custom_fn("stops", move |cx| {
        let emitted = emitted.clone();
        async move {
            emitted.notified().await;
            let actions = EventActions { escalate: Some(true), ..EventActions::default() };
            cx.emit(EventData { actions, ..EventData::default() }).await?;
            Ok(())
        }
    });
    let slow = workflow("slow", AgentKind::Sequential, vec![custom("waits", WaitingAgent), leaf("late", "never")]);
    let all = parallel("all").sub_agent(slow).sub_agent(stops).sub_agent(fast).build().unwrap();
    assert_eq!(Harness::new(all).await.transcript("hi").await, ["fast: fast", "stops: "]);
}
