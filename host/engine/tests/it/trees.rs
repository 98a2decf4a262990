//! Random trees of agents: they end, lose and repeat nothing, and end alike whether they are interrupted or not.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::event::{new_event_id, new_function_call_id};
use hatchery_core::{
    Agent, AgentContext, AgentKind, Content, Custom, CustomAgent, Delivery, EventActions, EventData, FunctionCall,
    Instruction, LlmAgent, LlmRequest, LlmResponse, Model, ModelError, ModelRef, Part, PartData, ResponseStream,
    RunError, Session,
};
use hatchery_engine::App;
use proptest::prelude::*;
use serde_json::json;

use super::resumption::{interrupted, told};
use crate::support::*;

/// What a tree is made of. Names are given by [`Grown`], in the order of the tree.
#[derive(Debug, Clone)]
enum Plan {
    /// Calls a tool so often, then says something.
    Llm {
        calls: usize,
    },
    /// Hands over to an agent below it.
    HandsOver(Box<Plan>),
    /// Says so many things; then ends the loops and parallel agents around it, if it is to.
    Code {
        says: usize,
        escalates: bool,
    },
    /// Says something before and after the agent below it.
    Around(Box<Plan>),
    Sequential(Vec<Plan>),
    Parallel(Vec<Plan>),
    Loop(Vec<Plan>, u32),
}

fn plan() -> impl Strategy<Value = Plan> {
    let leaf = prop_oneof![
        4 => (0..3usize).prop_map(|calls| Plan::Llm { calls }),
        2 => (0..3usize, prop::bool::weighted(0.2)).prop_map(|(says, escalates)| Plan::Code { says, escalates }),
    ];
    leaf.prop_recursive(3, 10, 3, |inner| {
        let several = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            inner.clone().prop_map(|below| Plan::HandsOver(Box::new(below))),
            inner.clone().prop_map(|below| Plan::Around(Box::new(below))),
            several().prop_map(Plan::Sequential),
            several().prop_map(Plan::Parallel),
            (several(), 1..3u32).prop_map(|(below, rounds)| Plan::Loop(below, rounds)),
        ]
    })
}

/// Makes agents of plans.
#[derive(Default)]
struct Grown {
    agents: usize,
    /// Ids of the calls that tools have served, in all runs of the tree.
    served: Arc<Mutex<Vec<String>>>,
}

impl Grown {
    fn agent(&mut self, plan: &Plan) -> Agent {
        let name = format!("a{}", self.agents);
        self.agents += 1;
        let (kind, below) = match plan {
            Plan::Llm { calls } => (self.llm(Calls(*calls)), Vec::new()),
            Plan::HandsOver(below) => {
                let target = format!("a{}", self.agents);
                (self.llm(HandsOver(target)), vec![self.agent(below)])
            }
            Plan::Code { says, escalates } => (code(Says { says: *says, escalates: *escalates }), Vec::new()),
            Plan::Around(below) => (code(Around(format!("a{}", self.agents))), vec![self.agent(below)]),
            Plan::Sequential(below) => (AgentKind::Sequential, self.agents(below)),
            Plan::Parallel(below) => (AgentKind::Parallel, self.agents(below)),
            Plan::Loop(below, rounds) => (AgentKind::Loop { max_iterations: Some(*rounds) }, self.agents(below)),
        };
        Agent::new(name, "", kind).with_sub_agents(below)
    }

    fn agents(&mut self, plans: &[Plan]) -> Vec<Agent> {
        plans.iter().map(|plan| self.agent(plan)).collect()
    }

    fn llm(&self, model: impl Model + 'static) -> AgentKind {
        let served = self.served.clone();
        let work = tool("work", move |_, cx| {
            served.lock().unwrap().push(cx.function_call_id.clone().unwrap().to_string());
            Ok(json!("done"))
        });
        AgentKind::Llm(Box::new(LlmAgent {
            model: Some(ModelRef::Object("made".into(), Arc::new(model))),
            instruction: Instruction::Template("Be brief.".into()),
            tools: vec![work],
            ..LlmAgent::default()
        }))
    }
}

fn code(code: impl CustomAgent + 'static) -> AgentKind {
    AgentKind::Custom(Custom { code: Arc::new(code), model: None, tools: Vec::new() })
}

/// Calls the tool so often, then says how often it has spoken before: what it says depends on the prompt alone.
struct Calls(usize);

#[async_trait]
impl Model for Calls {
    async fn generate(&self, request: LlmRequest, _: Delivery) -> Result<ResponseStream, ModelError> {
        let is_result = |content: &&Arc<Content>| content.function_responses().next().is_some();
        let is_pair = |content: &Arc<Content>| is_result(&content) || content.function_calls().next().is_some();
        let calls = request.contents.iter().rev().take_while(|content| is_pair(content)).filter(is_result).count();
        let spoken = request.contents.iter().filter(|content| content.role.as_deref() == Some("model")).count();
        Ok(if calls < self.0 { called("work", json!({"turn": spoken})) } else { said(format!("done after {spoken}")) })
    }
}

/// Hands over to the agent of this name; says that it got the conversation back when it did.
struct HandsOver(String);

#[async_trait]
impl Model for HandsOver {
    async fn generate(&self, request: LlmRequest, _: Delivery) -> Result<ResponseStream, ModelError> {
        // Its own handover is the last thing that it said, unless somebody has spoken since.
        let got_it_back = request
            .contents
            .iter()
            .rev()
            .take(2)
            .any(|content| content.parts.iter().filter_map(Part::as_text).any(|text| text.contains("over!")));
        Ok(match got_it_back {
            true => said("got it back".into()),
            false => called("transfer_to_agent", json!({"agent_name": self.0})),
        })
    }
}

fn said(text: String) -> ResponseStream {
    futures::stream::iter([Ok(LlmResponse::text(text))]).boxed()
}

fn called(name: &str, args: serde_json::Value) -> ResponseStream {
    let call =
        FunctionCall { id: Some(new_function_call_id()), name: name.into(), args: map(args), ..Default::default() };
    let content = Some(Content::new("model", vec![PartData::FunctionCall(call).into()]));
    futures::stream::iter([Ok(LlmResponse { content, ..LlmResponse::default() })]).boxed()
}

struct Says {
    says: usize,
    escalates: bool,
}

#[async_trait]
impl CustomAgent for Says {
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

/// Says something before and after the agent of this name.
struct Around(String);

#[async_trait]
impl CustomAgent for Around {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.say("before").await?;
        cx.run_sub_agent(&self.0).await?;
        cx.say("after").await.map(|_| ())
    }
}

/// Runs the tree, interrupted after so many events, and gives the session in the end.
async fn run(plan: &Plan, survive: usize) -> Session {
    let mut grown = Grown::default();
    let app = Arc::new(App::new("app", grown.agent(plan)).unwrap());
    // No tree takes this long: it stands for "never ends".
    let run = tokio::time::timeout(Duration::from_secs(60), interrupted(&app, survive));
    let (stored, session) = run.await.expect("a deadlock");
    let ids: HashSet<_> = session.events.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids.len(), session.events.len(), "no event is stored twice");
    assert!(stored.events.iter().zip(&session.events).all(|(before, after)| before.id == after.id), "and none is lost");
    let served = grown.served.lock().unwrap();
    let times = |id: &str| served.iter().filter(|served| *served == id).count();
    for answer in
        stored.events.iter().flat_map(|event| event.function_responses()).filter(|answer| answer.name == "work")
    {
        assert_eq!(times(answer.id.as_deref().unwrap()), 1, "a tool that has answered does not run again");
    }
    let answers =
        session.events.iter().flat_map(|event| event.function_responses()).filter_map(|answer| answer.id.as_deref());
    let answered: Vec<_> = answers.collect();
    assert_eq!(answered.len(), answered.iter().collect::<HashSet<_>>().len(), "no call is answered twice");
    session
}

/// True when branches may end each other: then which events came before is chance.
fn races(plan: &Plan) -> bool {
    fn escalates(plan: &Plan) -> bool {
        match plan {
            Plan::Llm { .. } => false,
            Plan::Code { escalates, .. } => *escalates,
            Plan::HandsOver(below) | Plan::Around(below) => escalates(below),
            Plan::Sequential(below) | Plan::Parallel(below) | Plan::Loop(below, _) => below.iter().any(escalates),
        }
    }
    match plan {
        Plan::Llm { .. } | Plan::Code { .. } => false,
        Plan::HandsOver(below) | Plan::Around(below) => races(below),
        Plan::Sequential(below) | Plan::Loop(below, _) => below.iter().any(races),
        Plan::Parallel(below) => below.len() > 1 && below.iter().any(|plan| escalates(plan) || races(plan)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_ends_alike_whether_it_is_interrupted_or_not(plan in plan(), at in any::<prop::sample::Index>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let whole = run(&plan, usize::MAX).await;
            let survive = 1 + at.index(whole.events.len());
            let resumed = run(&plan, survive).await;
            if !races(&plan) {
                assert_eq!(told(&resumed), told(&whole), "interrupted after {survive} events");
                assert_eq!(resumed.state, whole.state);
            }
        });
    }
}
