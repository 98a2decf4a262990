//! Random trees of agents: they end, lose and repeat nothing, and end the same whether they are interrupted or not. The
//! results and decisions that they wait for come in random order.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, CodeExecution, CodeExecutor, CodeInput, CodeOutput, CodeRunner,
    Content, CustomAgent, CustomAgentSpec, EventActions, EventData, EventWindow, FunctionCall, FunctionResponse,
    HookPoint, Instruction, JsonMap, LlmAgent, LlmRequest, LlmResponse, Model, ModelError, ModelRef, Part, PartData,
    REQUEST_CONFIRMATION, ResponseStream, RunError, Services, Session, State, StreamingMode, ToolError, USER_AUTHOR,
    new_event_id, new_function_call_id,
};
use hatchery_engine::{App, AppSettings, RunRequest, Runner};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::*;

/// The shape of a tree. [`TreeBuilder`] names the agents, in the order of the tree.
#[derive(Debug, Clone)]
enum TreePlan {
    /// Performs these acts, then answers; by a tool call if its answer has a schema.
    Llm {
        acts: Vec<ModelAction>,
        has_schema: bool,
    },
    /// Transfers to an agent below it.
    Transfer(Box<TreePlan>),
    /// Emits this many events, then escalates if the flag is set.
    Code {
        says: usize,
        escalates: bool,
    },
    /// Emits an event before and after the agent below it.
    Wrapper(Box<TreePlan>),
    Sequential(Vec<TreePlan>),
    Parallel(Vec<TreePlan>),
    Loop(Vec<TreePlan>, u32),
}

/// A request in a model's response.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ModelAction {
    /// Calls a tool.
    Work,
    /// Calls a long-running tool twice.
    Orders,
    /// Calls a tool that needs a confirmation, beside one that does not.
    Asks,
    /// Writes code that the host runs.
    Code,
}

impl ModelAction {
    fn calls(self) -> &'static [&'static str] {
        match self {
            Self::Work => &["work"],
            Self::Orders => &["order", "order"],
            Self::Asks => &["ask", "work"],
            Self::Code => &[],
        }
    }
}

fn plan() -> impl Strategy<Value = TreePlan> {
    let act = prop_oneof![4 => Just(ModelAction::Work), 1 => Just(ModelAction::Orders), 1 => Just(ModelAction::Asks), 1 => Just(ModelAction::Code)];
    let llm = (prop::collection::vec(act, 0..3), prop::bool::weighted(0.2));
    let leaf = prop_oneof![
        4 => llm.prop_map(|(acts, has_schema)| TreePlan::Llm { acts, has_schema }),
        2 => (0..3usize, prop::bool::weighted(0.2)).prop_map(|(says, escalates)| TreePlan::Code { says, escalates }),
    ];
    leaf.prop_recursive(3, 10, 3, |inner| {
        let several = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            inner.clone().prop_map(|below| TreePlan::Transfer(Box::new(below))),
            inner.clone().prop_map(|below| TreePlan::Wrapper(Box::new(below))),
            several().prop_map(TreePlan::Sequential),
            several().prop_map(TreePlan::Parallel),
            (several(), 1..3u32).prop_map(|(below, rounds)| TreePlan::Loop(below, rounds)),
        ]
    })
}

/// Builds agents from plans.
#[derive(Default)]
struct TreeBuilder {
    agents: usize,
    /// Ids of the calls that tools have served, in all runs of the tree.
    served: Arc<Mutex<Vec<String>>>,
}

impl TreeBuilder {
    fn agent(&mut self, plan: &TreePlan) -> Agent {
        let name = format!("a{}", self.agents);
        self.agents += 1;
        let has_callbacks = self.agents.is_multiple_of(3);
        let (kind, below) = match plan {
            TreePlan::Llm { acts, has_schema } => {
                (self.llm(ActingModel(acts.clone(), *has_schema), *has_schema), Vec::new())
            }
            TreePlan::Transfer(below) => {
                let target = format!("a{}", self.agents);
                (self.llm(TransferringModel(target), false), vec![self.agent(below)])
            }
            TreePlan::Code { says, escalates } => {
                (code(SpeakingAgent { says: *says, escalates: *escalates }), Vec::new())
            }
            TreePlan::Wrapper(below) => (code(WrappingAgent(format!("a{}", self.agents))), vec![self.agent(below)]),
            TreePlan::Sequential(below) => (AgentKind::Sequential, self.agents(below)),
            TreePlan::Parallel(below) => (AgentKind::Parallel, self.agents(below)),
            TreePlan::Loop(below, rounds) => (AgentKind::Loop { max_iterations: Some(*rounds) }, self.agents(below)),
        };
        let mut agent = Agent::new(name, "", kind).with_sub_agents(below);
        if has_callbacks {
            let sets = |name| FixedCallback { name, state: Some(name), ..FixedCallback::default() }.arc();
            agent.callbacks.push(HookPoint::BeforeAgent, sets("before"));
            agent.callbacks.push(HookPoint::AfterAgent, sets("after"));
        }
        agent
    }

    fn agents(&mut self, plans: &[TreePlan]) -> Vec<Agent> {
        plans.iter().map(|plan| self.agent(plan)).collect()
    }

    fn llm(&self, model: impl Model + 'static, has_schema: bool) -> AgentKind {
        let serves = |answer: Value| {
            let served = self.served.clone();
            move |_: JsonMap, cx: &CallContext| -> Result<Value, ToolError> {
                served.lock().unwrap().push(cx.function_call_id.clone().unwrap().to_string());
                Ok(answer.clone())
            }
        };
        AgentKind::Llm(Box::new(LlmAgent {
            model: Some(ModelRef::Object("made".into(), Arc::new(model))),
            instruction: Instruction::Template("Be brief.".into()),
            tools: vec![
                tool("work", serves(json!("done"))),
                long_running("order", serves(Value::Null)),
                tool_with_confirmation("ask", serves(json!("done"))),
            ],
            code_execution: Some(CodeExecution::Host(Box::new(CodeRunner::new(Arc::new(PrintingExecutor))))),
            output_schema: has_schema.then(|| json!({"type": "object"})),
            output_key: Some("said".into()),
            ..LlmAgent::default()
        }))
    }
}

struct PrintingExecutor;

#[async_trait]
impl CodeExecutor for PrintingExecutor {
    fn name(&self) -> &str {
        "prints"
    }

    async fn execute(&self, input: CodeInput, _: &CallContext) -> Result<CodeOutput, ToolError> {
        Ok(CodeOutput { stdout: input.code, ..CodeOutput::default() })
    }
}

fn code(code: impl CustomAgent + 'static) -> AgentKind {
    AgentKind::Custom(CustomAgentSpec { code: Arc::new(code), model: None, tools: Vec::new() })
}

/// Performs these acts, then answers with the number of its earlier answers, which depends on the prompt alone.
struct ActingModel(Vec<ModelAction>, bool);

#[async_trait]
impl Model for ActingModel {
    async fn generate(&self, request: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        let text = |content: &Content| content.parts.iter().filter_map(Part::as_text).collect::<String>();
        let holds =
            |content: &Content, what: &str| text(content).contains(what) && !text(content).starts_with("For context");
        let is_result =
            |content: &&Arc<Content>| content.function_responses().next().is_some() || holds(content, "tool_output");
        let is_act = |content: &&Arc<Content>| {
            is_result(content) || content.function_calls().next().is_some() || holds(content, "tool_code")
        };
        let acts = request.contents.iter().rev().take_while(is_act).filter(is_result).count();
        let spoken = request.contents.iter().filter(|content| content.role.as_deref() == Some("model")).count();
        Ok(match self.0.get(acts) {
            Some(ModelAction::Code) => text_response(format!("```tool_code\n{spoken}\n```")),
            Some(act) => call_response(act.calls(), json!({"turn": spoken})),
            None if self.1 => call_response(&["set_model_response"], json!({"after": spoken})),
            None => text_response(format!("done after {spoken}")),
        })
    }
}

/// Transfers to the agent of this name, and answers if the conversation came back.
struct TransferringModel(String);

#[async_trait]
impl Model for TransferringModel {
    async fn generate(&self, request: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        // Its own transfer is its last content, unless other agents have emitted events since.
        let has_returned = request
            .contents
            .iter()
            .rev()
            .take(2)
            .any(|content| content.parts.iter().filter_map(Part::as_text).any(|text| text.contains("over!")));
        Ok(if has_returned {
            text_response("got it back".into())
        } else {
            call_response(&["transfer_to_agent"], json!({"agent_name": self.0}))
        })
    }
}

fn text_response(text: String) -> ResponseStream {
    futures::stream::iter([Ok(LlmResponse::text(text))]).boxed()
}

fn call_response(names: &[&str], args: Value) -> ResponseStream {
    let call = |name: &&str| {
        let (id, args) = (Some(new_function_call_id()), map(args.clone()));
        PartData::FunctionCall(FunctionCall { id, name: (*name).into(), args, ..Default::default() }).into()
    };
    let content = Some(Content::new("model", names.iter().map(call).collect()));
    futures::stream::iter([Ok(LlmResponse { content, ..LlmResponse::default() })]).boxed()
}

struct SpeakingAgent {
    says: usize,
    escalates: bool,
}

#[async_trait]
impl CustomAgent for SpeakingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        for number in 0..self.says {
            cx.say(format!("thing {number}")).await?;
            tokio::task::yield_now().await;
        }
        if self.escalates {
            let actions = EventActions { escalate: Some(true), ..EventActions::default() };
            let content = Some(Arc::new(Content::model("over!")));
            cx.emit(EventData { id: new_event_id(), content, actions, ..EventData::default() }).await?;
        }
        Ok(())
    }
}

/// Emits an event before and after the agent of this name.
struct WrappingAgent(String);

#[async_trait]
impl CustomAgent for WrappingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.say("before").await?;
        cx.run_sub_agent(&self.0).await?;
        cx.say("after").await.map(|_| ())
    }
}

/// Runs the tree, interrupted after `survive` events, and returns the session at the end.
async fn run(plan: &TreePlan, survive: usize, chance: u64) -> Session {
    let mut builder = TreeBuilder::default();
    let settings = AppSettings { resumable: true, ..AppSettings::default() };
    let app = Arc::new(App::new("app", builder.agent(plan)).unwrap().with_settings(settings));
    // No tree takes this long: it has deadlocked then.
    let conversation = tokio::time::timeout(Duration::from_secs(60), converse(&app, survive, chance));
    let (stored, session) = conversation.await.expect("a deadlock");
    let ids: HashSet<_> = session.events.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids.len(), session.events.len(), "no event is stored twice");
    assert!(stored.events.iter().zip(&session.events).all(|(before, after)| before.id == after.id), "and none is lost");
    let invocation = &session.events[0].invocation_id;
    assert!(session.events.iter().all(|event| event.invocation_id == *invocation), "all events are of one run");
    let served = builder.served.lock().unwrap();
    for id in answers(&stored) {
        let times = served.iter().filter(|served| **served == id).count();
        assert_eq!(times, 1, "a tool that has answered does not run again");
    }
    let answered = answers(&session);
    assert_eq!(answered.len(), answered.iter().collect::<HashSet<_>>().len(), "no call is answered twice");
    session
}

/// Returns the ids of the calls that tools have answered.
fn answers(session: &Session) -> Vec<String> {
    let agent_events = session.events.iter().filter(|event| event.author != USER_AUTHOR);
    let answers = agent_events.flat_map(|event| event.function_responses());
    let done = answers.filter(|answer| answer.response.get("result") == Some(&json!("done")));
    done.filter_map(|answer| answer.id.clone()).collect()
}

/// Sends `hi`, then answers the waiting calls in an order that `chance` determines. The services fail once after
/// `survive` events; then the run is resumed with a new runner. Returns the session at the interruption and at the end.
async fn converse(app: &Arc<App>, survive: usize, mut chance: u64) -> (Session, Session) {
    let services = services();
    let key = services.sessions.create(&app.name, USER, Some(SESSION), Default::default()).await.unwrap().key;
    let session = async || services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    let crashing = Arc::new(CrashingSessions::new(services.sessions.clone(), survive));
    let mut runner = Runner::new(Services { sessions: crashing, ..services.clone() });
    let (mut stored, mut message) = (None, Content::user("hi"));
    loop {
        let run = runner.run(app.clone(), RunRequest::new(USER, SESSION, message.clone())).await.unwrap();
        if run.collect().await.is_err() {
            runner.drain().await;
            let interrupted = session().await;
            let invocation = interrupted.events[0].invocation_id.clone();
            stored = Some(interrupted);
            runner = Runner::new(services.clone());
            runner
                .run(app.clone(), RunRequest::resume(USER, SESSION, invocation))
                .await
                .unwrap()
                .collect()
                .await
                .unwrap();
        }
        let now = session().await;
        let mut waiting = waiting(&now);
        // An answer that could not be stored is sent again.
        let is_lost = |answer: &FunctionResponse| waiting.iter().any(|(id, _)| answer.id.as_ref() == Some(id));
        if message.function_responses().any(is_lost) {
            continue;
        }
        if waiting.is_empty() {
            return (stored.unwrap_or_else(|| now.clone()), now);
        }
        let (id, name) = waiting.swap_remove((chance % waiting.len() as u64) as usize);
        chance = chance.rotate_left(7).wrapping_add(1);
        message = tool_response(&id, &name, json!({"confirmed": !chance.is_multiple_of(3)}));
    }
}

/// Returns the ids and names of the calls that the user has not answered, in an order that does not depend on the
/// timing of branches.
fn waiting(session: &Session) -> Vec<(String, String)> {
    let (users, others): (Vec<_>, Vec<_>) = session.events.iter().partition(|event| event.author == USER_AUTHOR);
    let answered: HashSet<_> =
        users.iter().flat_map(|event| event.function_responses()).filter_map(|answer| answer.id.as_deref()).collect();
    let mut waiting = Vec::new();
    for event in others {
        let later = |call: &&FunctionCall| event.long_running_tool_ids.iter().any(|id| call.id.as_ref() == Some(id));
        for call in event.function_calls().filter(later) {
            let id = call.id.clone().unwrap();
            if !answered.contains(id.as_str()) {
                waiting.push((event.branch.clone(), event.author.clone(), (id, call.name.clone())));
            }
        }
    }
    waiting.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    waiting.into_iter().map(|(.., call)| call).collect()
}

/// Returns the events of agents in short form, without the ids, which differ in each run.
fn agent_transcript(session: &Session) -> Vec<(String, Vec<String>)> {
    let mut transcripts = branch_transcripts(session);
    for (_, lines) in &mut transcripts {
        lines.retain(|line| !line.starts_with("user"));
        for line in lines {
            if line.contains(REQUEST_CONFIRMATION) {
                line.truncate(line.find('{').unwrap_or_default());
            }
        }
    }
    transcripts
}

/// Returns the state without the records of code, which hold times.
fn comparable_state(session: &Session) -> State {
    let mut state = session.state.clone();
    state.retain(|key| !key.starts_with("_code"));
    state
}

/// Returns true if branches may end each other, so that the events before that depend on timing.
fn races(plan: &TreePlan) -> bool {
    fn escalates(plan: &TreePlan) -> bool {
        match plan {
            TreePlan::Llm { .. } => false,
            TreePlan::Code { escalates, .. } => *escalates,
            TreePlan::Transfer(below) | TreePlan::Wrapper(below) => escalates(below),
            TreePlan::Sequential(below) | TreePlan::Parallel(below) => below.iter().any(escalates),
            // The loop handles it.
            TreePlan::Loop(..) => false,
        }
    }
    match plan {
        TreePlan::Llm { .. } | TreePlan::Code { .. } => false,
        TreePlan::Transfer(below) | TreePlan::Wrapper(below) => races(below),
        TreePlan::Sequential(below) | TreePlan::Loop(below, _) => below.iter().any(races),
        TreePlan::Parallel(below) => below.len() > 1 && below.iter().any(|plan| escalates(plan) || races(plan)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_ends_the_same_whether_it_is_interrupted_or_not(
        plan in plan(),
        at in any::<prop::sample::Index>(),
        chance in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let uninterrupted = run(&plan, usize::MAX, chance).await;
            let survive = 1 + at.index(uninterrupted.events.len());
            let resumed = run(&plan, survive, chance).await;
            if !races(&plan) {
                assert_eq!(agent_transcript(&resumed), agent_transcript(&uninterrupted), "interrupted after {survive} events");
                assert_eq!(comparable_state(&resumed), comparable_state(&uninterrupted));
            }
        });
    }
}
