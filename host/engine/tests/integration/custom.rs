//! Custom agents: the capabilities of code through its context.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::poll;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, Callback, Content, CustomAgent, CustomAgentSpec, Event, EventData,
    EventSink, HookPoint, JsonMap, Plugin, RunError, Services, SessionKey, SessionService, StoreError, ToolError,
    WrapperSessionService,
};
use hatchery_engine::{App, Plugins, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_stores::MemorySessions;
use serde_json::json;

use crate::support::*;

fn custom(name: &str, code: impl CustomAgent + 'static) -> Agent {
    Agent::new(name, "", AgentKind::Custom(CustomAgentSpec { code: Arc::new(code), model: None, tools: vec![] }))
}

/// Answers no append at once.
struct YieldingSessions(MemorySessions);

#[async_trait]
impl WrapperSessionService for YieldingSessions {
    fn inner(&self) -> &dyn SessionService {
        &self.0
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        tokio::task::yield_now().await;
        self.0.append_with(key, event, fence).await
    }
}

/// Begins to emit an event, and emits another one while nothing polls the first.
struct ImpatientAgent;

#[async_trait]
impl CustomAgent for ImpatientAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let mut first = pin!(cx.say("first"));
        assert!(poll!(first.as_mut()).is_pending());
        cx.say("second").await?;
        first.await.map(|_| ())
    }
}

#[tokio::test]
async fn an_event_that_nothing_polls_delays_no_other() {
    let sessions: Arc<dyn SessionService> = Arc::new(YieldingSessions(MemorySessions::new()));
    sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap();
    let runner = Runner::new(Services { sessions, ..services() });
    let app = Arc::new(App::new("app", custom("root", ImpatientAgent)).unwrap());
    let run = runner.run(app, RunRequest::new(USER, SESSION, Content::user("hi"))).await.unwrap();
    let events = run.collect().await.unwrap();
    assert_eq!(events.iter().map(|event| brief(event)).collect::<Vec<_>>(), ["root: first", "root: second"]);
}

/// Emits an event before and after each of its sub-agents.
struct FramingAgent(&'static [&'static str]);

#[async_trait]
impl CustomAgent for FramingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.say("begin").await?;
        for sub_agent in self.0 {
            cx.run_sub_agent(sub_agent).await?;
        }
        cx.call.set_state("done", json!(true));
        cx.say("end").await.map(|_| ())
    }
}

#[tokio::test]
async fn a_custom_agent_relays_its_sub_agents_and_sets_state() {
    let root = custom("root", FramingAgent(&["child"]))
        .with_sub_agents(vec![llm("child", Scripted::new().default_reply("hello"))]);
    let app = Harness::new(root).await;
    assert_eq!(app.transcript("hi").await, ["root: begin", "child: hello", "root: end"]);
    assert_eq!(app.state().await, json!({"done": true}));
}

#[tokio::test]
async fn the_error_for_an_unknown_sub_agent_lists_the_existing_ones() {
    let root = custom("root", FramingAgent(&["chidl"])).with_sub_agents(vec![llm("child", Scripted::new())]);
    let (_, error) = Harness::new(root).await.expect_error("hi").await;
    assert_eq!(error.to_string(), "Agent not found: chidl below `root`, which has `child`");
}

/// Keeps the events of its sub-agent from the session.
#[derive(Default)]
struct ListeningSink(Mutex<Vec<String>>);

#[async_trait]
impl EventSink for ListeningSink {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        self.0.lock().unwrap().push(brief(&event));
        Ok(event)
    }
}

struct RetellingAgent;

#[async_trait]
impl CustomAgent for RetellingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let sink = Arc::new(ListeningSink::default());
        cx.call.host()?.run_sub_agent(&cx.call, "child", sink.clone()).await?;
        let text = sink.0.lock().unwrap().join(", ");
        cx.say(format!("heard {text}")).await.map(|_| ())
    }
}

#[tokio::test]
async fn events_that_are_not_relayed_are_not_stored() {
    let root =
        custom("root", RetellingAgent).with_sub_agents(vec![llm("child", Scripted::new().default_reply("psst"))]);
    let app = Harness::new(root).await;
    assert_eq!(app.transcript("hi").await, ["root: heard child: psst"]);
    assert_eq!(app.session().await.events.len(), 2);
}

struct CallingAgent;

#[async_trait]
impl CustomAgent for CallingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let host = cx.call.host()?;
        let sum = host.call_tool(&cx.call, "add", map(json!({"a": 1}))).await?;
        let unknown = host.call_tool(&cx.call, "sub", map(json!({}))).await;
        let Err(ToolError::Recoverable(message)) = unknown else { panic!("{unknown:?}") };
        cx.say(format!("{sum} {message}")).await.map(|_| ())
    }
}

#[tokio::test]
async fn a_custom_agent_calls_the_tools_that_it_was_given() {
    let tools = vec![tool("add", |_, cx| {
        cx.set_state("called", json!(1));
        Ok(json!(2))
    })];
    let root =
        Agent::new("root", "", AgentKind::Custom(CustomAgentSpec { code: Arc::new(CallingAgent), model: None, tools }));
    let app = Harness::new(root).await;
    assert_eq!(app.transcript("hi").await, ["root: 2 there is no tool `sub`; the tools are `add`"]);
    assert_eq!(app.state().await, json!({"called": 1}), "a tool's changes become the agent's");
}

struct PanickingAgent;

#[async_trait]
impl CustomAgent for PanickingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.emit(EventData::default()).await?;
        panic!("a defect")
    }
}

#[tokio::test]
async fn a_panic_in_native_code_is_an_error_and_the_session_continues() {
    let app = Harness::new(custom("root", PanickingAgent)).await;
    for _ in 0..2 {
        let (events, error) = app.expect_error("hi").await;
        assert_eq!(events[1], "root: error INTERNAL: the server failed; its log holds the cause");
        assert_eq!(error.to_string(), "internal error: a defect; please report it");
    }
    assert_eq!(app.session().await.events.len(), 6);
}

struct PanickingPlugin;

impl Callback for PanickingPlugin {
    fn name(&self) -> &str {
        "panicking"
    }
}

#[async_trait]
impl Plugin for PanickingPlugin {
    async fn on_run_error(&self, _: &CallContext, _: &RunError) {
        panic!("a defect of the plugin")
    }
}

#[tokio::test]
async fn a_panic_in_the_report_of_a_failure_ends_no_other_work_of_the_callers_task() {
    let app = Harness::new(custom("root", PanickingAgent)).await;
    let plugins = Plugins::new(vec![Arc::new(PanickingPlugin)]).unwrap();
    let runner = Runner::with_plugins(app.runner.services().clone(), plugins);
    for _ in 0..2 {
        let permit = runner.try_acquire(1).unwrap();
        let run = runner.run_inline(app.app.clone(), app.request(Content::user("hi")), permit).await.unwrap();
        let error = run.collect().await.unwrap_err();
        assert_eq!(error.to_string(), "internal error: a defect of the plugin; please report it");
        assert_eq!(runner.active_runs(), 0);
    }
}

struct ForgingAgent;

#[async_trait]
impl CustomAgent for ForgingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.emit(EventData { author: "user".into(), ..EventData::default() }).await.map(|_| ())
    }
}

#[tokio::test]
async fn an_agent_may_not_emit_events_of_the_user() {
    let (events, _) = Harness::new(custom("root", ForgingAgent)).await.expect_error("hi").await;
    let message = "agent `root`: may not emit events as `user`; leave the author of its events empty";
    assert_eq!(events, [format!("root: error AGENT_FAILED: {message}")]);
}

struct PreparingAgent;

#[async_trait]
impl CustomAgent for PreparingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.call.set_state("topic", json!("bees"));
        let view = cx.call.host()?.call_tool(&cx.call, "look", map(json!({}))).await?;
        assert_eq!(view, json!("bees"), "tools see what their caller has changed");
        cx.run_sub_agent("writer").await
    }
}

#[tokio::test]
async fn sub_agents_and_tools_see_the_changes_of_the_agent_around_them() {
    let model = Arc::new(Scripted::sequence(["buzz"]));
    let writer = llm_on("writer", &model, |llm| {
        llm.instruction = hatchery_core::Instruction::Template("Write about {topic}.".into());
    });
    let tools = vec![tool("look", |_, cx| Ok(cx.state("topic").unwrap_or_default()))];
    let root = Agent::new(
        "root",
        "",
        AgentKind::Custom(CustomAgentSpec { code: Arc::new(PreparingAgent), model: None, tools }),
    );
    let app = Harness::new(root.with_sub_agents(vec![writer])).await;
    assert_eq!(app.transcript("hi").await.last().unwrap(), "writer: buzz");
    assert_eq!(model.requests()[0].system_instructions[0], "Write about bees.");
}

/// Sets a state key with the name of the agent that it runs for.
struct NamesItsAgent;

#[async_trait]
impl Callback for NamesItsAgent {
    fn name(&self) -> &str {
        "names_its_agent"
    }

    async fn before_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        cx.set_state(format!("entered_{}", cx.agent), json!(*cx.agent));
        Ok(None)
    }
}

#[tokio::test]
async fn tools_and_callbacks_know_the_agent_that_they_run_for() {
    let named = |_: JsonMap, cx: &CallContext| Ok(json!(*cx.agent));
    let agent = |name: &str, below: Vec<Agent>| {
        let model = Scripted::new().on_tool("who", "done").default_reply(Reply::call("who", json!({})));
        let mut agent = llm_with(name, model, |llm| llm.tools = vec![tool("who", named)]);
        agent.callbacks.push(HookPoint::BeforeAgent, Arc::new(NamesItsAgent));
        agent.with_sub_agents(below)
    };
    let root = workflow("root", AgentKind::Sequential, vec![agent("one", Vec::new()), agent("two", Vec::new())]);
    let app = Harness::new(root).await;
    let events = app.run("hi").await;
    let answers = events.iter().flat_map(|event| event.function_responses());
    assert_eq!(answers.map(|answer| &answer.response["result"]).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(app.state().await, json!({"entered_one": "one", "entered_two": "two"}));
}
