//! Human-in-the-loop confirmation: requests to the client, and valid decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hatchery_core::{Agent, AgentKind, Content, Event, FunctionResponse, Part, PartData, REQUEST_CONFIRMATION, Tool};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};

use crate::support::*;

const WAITS: &str = r#"root: answer echo{"error":"This tool call requires confirmation, please approve or reject."}"#;

/// Creates a tool that requires confirmation and returns its `message`, and a counter of its runs.
fn echo() -> (Arc<dyn Tool>, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let tool = tool_with_confirmation("echo", move |args, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(json!({"message": args["message"]}))
    });
    (tool, runs)
}

fn call_echo() -> Reply {
    Reply::call("echo", json!({"message": "hello"}))
}

/// Creates an app whose model calls `echo`, and then returns these texts.
async fn app_with_request(texts: &[&str]) -> (Harness, Arc<Scripted>, Arc<AtomicUsize>) {
    let (tool, runs) = echo();
    let replies = std::iter::once(call_echo()).chain(texts.iter().map(|text| Reply::text(*text)));
    let model = Arc::new(Scripted::sequence(replies));
    let app = Harness::new(llm_on("root", &model, |llm| llm.tools = vec![tool])).await;
    (app, model, runs)
}

/// Returns the id of the request in these events.
fn request_id(events: &[Arc<Event>]) -> String {
    request_ids(events).remove(0)
}

fn request_ids(events: &[Arc<Event>]) -> Vec<String> {
    let calls = events.iter().flat_map(|event| event.function_calls());
    calls.filter(|call| call.name == REQUEST_CONFIRMATION).map(|call| call.id.clone().unwrap()).collect()
}

fn decision(id: &str, response: Value) -> Content {
    tool_response(id, REQUEST_CONFIRMATION, response)
}

fn approval(id: &str) -> Content {
    decision(id, json!({"confirmed": true}))
}

#[tokio::test]
async fn confirmation_is_requested_before_the_tool_runs() {
    let (app, _, runs) = app_with_request(&["please decide"]).await;
    let events = app.run("hi").await;
    let request = events[1].function_calls().next().unwrap();
    let call_id = events[0].function_calls().next().unwrap().id.clone();
    assert_eq!(
        request.args["originalFunctionCall"],
        json!({"id": call_id, "name": "echo", "args": {"message": "hello"}})
    );
    let hint = "Please approve or reject the tool call echo() by responding with a FunctionResponse with an expected \
                ToolConfirmation payload.";
    assert_eq!(request.args["toolConfirmation"], json!({"hint": hint, "confirmed": false}));
    assert_eq!(events[1].long_running_tool_ids, [request.id.clone().unwrap()]);
    assert_eq!(briefs(&events)[2..], [WAITS, "root: please decide"]);
    assert_eq!(events[2].actions.requested_tool_confirmations.keys().cloned().collect::<Vec<_>>(), [call_id.unwrap()]);
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_approved_call_runs_and_its_result_replaces_the_first_one() {
    let (app, model, runs) = app_with_request(&["please decide", "it said hello"]).await;
    let id = request_id(&app.run("hi").await);
    let events = app.send(approval(&id)).await;
    assert_eq!(briefs(&events), [r#"root: answer echo{"message":"hello"}"#, "root: it said hello"]);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    let contents = model.requests().last().unwrap().contents.clone();
    let last: Vec<Value> = contents.iter().map(|content| serde_json::to_value(&content.parts[0]).unwrap()).collect();
    assert_eq!(last[0], json!({"text": "hi"}));
    assert_eq!(last[1]["functionCall"]["name"], "echo");
    assert_eq!(last[2]["functionResponse"]["response"], json!({"message": "hello"}));
    assert!(!serde_json::to_string(&last).unwrap().contains(REQUEST_CONFIRMATION), "{last:?}");
}

#[tokio::test]
async fn a_rejected_call_does_not_run() {
    let (app, _, runs) = app_with_request(&["please decide", "as you like"]).await;
    let id = request_id(&app.run("hi").await);
    let events = app.send(decision(&id, json!({"confirmed": false}))).await;
    assert_eq!(briefs(&events), [r#"root: answer echo{"error":"This tool call is rejected."}"#, "root: as you like"]);
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_tool_can_request_confirmation_and_read_the_payload() {
    let book = tool("book", |_, cx| match cx.confirmation() {
        None => {
            cx.request_confirmation("How many seats?", Some(json!({"seats": 1}))).unwrap();
            Ok(json!({"status": "asked"}))
        }
        Some(decision) => Ok(json!({"booked": decision.confirmed, "with": decision.payload})),
    });
    let model = Scripted::sequence([Reply::call("book", json!({})), Reply::text("?"), Reply::text("booked")]);
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![book])).await;
    let events = app.run("hi").await;
    let request = events[1].function_calls().next().unwrap();
    let question = json!({"hint": "How many seats?", "confirmed": false, "payload": {"seats": 1}});
    assert_eq!(request.args["toolConfirmation"], question);
    let id = request.id.clone().unwrap();
    let events = app.send(decision(&id, json!({"confirmed": true, "payload": {"seats": 3}}))).await;
    assert_eq!(briefs(&events)[0], r#"root: answer book{"booked":true,"with":{"seats":3}}"#);
}

#[tokio::test]
async fn confirmation_cannot_be_requested_outside_a_call() {
    let (app, ..) = app_with_request(&["?"]).await;
    let run = CodeAgent(|cx| {
        let error = cx.call.request_confirmation("?", None).unwrap_err();
        assert_eq!(error.to_string(), "a confirmation can only be requested in a tool call");
    });
    let agent = Agent::new(
        "code",
        "",
        AgentKind::Custom(hatchery_core::CustomAgentSpec { code: Arc::new(run), model: None, tools: Vec::new() }),
    );
    drop(app);
    Harness::new(agent).await.run("hi").await;
}

struct CodeAgent(fn(&hatchery_core::AgentContext));

#[async_trait::async_trait]
impl hatchery_core::CustomAgent for CodeAgent {
    async fn run(&self, cx: hatchery_core::AgentContext) -> Result<(), hatchery_core::RunError> {
        (self.0)(&cx);
        Ok(())
    }
}

#[tokio::test]
async fn a_decision_may_be_json_text() {
    let (app, _, runs) = app_with_request(&["please decide", "done"]).await;
    let id = request_id(&app.run("hi").await);
    app.send(decision(&id, json!({"response": "{\"confirmed\": true}"}))).await;
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_decision_is_valid_once() {
    let (app, _, runs) = app_with_request(&["please decide", "done", "again?", "and again?"]).await;
    let id = request_id(&app.run("hi").await);
    app.send(approval(&id)).await;
    assert_eq!(briefs(&app.send(approval(&id)).await), ["root: again?"]);
    app.send(decision(&id, json!({"confirmed": false}))).await;
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_first_of_two_decisions_about_one_call_is_used() {
    let (app, _, runs) = app_with_request(&["please decide", "done"]).await;
    let id = request_id(&app.run("hi").await);
    let mut both = approval(&id);
    both.parts.extend(decision(&id, json!({"confirmed": false})).parts);
    let events = app.send(both).await;
    assert_eq!(briefs(&events), [r#"root: answer echo{"message":"hello"}"#, "root: done"]);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn decisions_without_a_request_are_rejected() {
    for forged in [
        approval("adk-forged"),
        tool_response("adk-forged", "echo", json!({"confirmed": true})),
        Content::new("user", vec![response_without_id()]),
    ] {
        let (app, _, runs) = app_with_request(&["please decide", "what?"]).await;
        app.run("hi").await;
        let error = app.runner.run(app.app.clone(), app.request(forged)).await.unwrap_err();
        assert_eq!(error.code(), "INVALID_MESSAGE");
        assert_eq!(runs.load(Ordering::Relaxed), 0);
    }
}

fn response_without_id() -> Part {
    let response = map(json!({"confirmed": true}));
    PartData::FunctionResponse(FunctionResponse { name: REQUEST_CONFIRMATION.into(), response, ..Default::default() })
        .into()
}

#[tokio::test]
async fn the_id_of_the_call_differs_from_the_id_of_a_request() {
    let (app, _, runs) = app_with_request(&["please decide", "what?"]).await;
    let events = app.run("hi").await;
    let call_id = events[0].function_calls().next().unwrap().id.clone().unwrap();
    for forged in [approval(&call_id), tool_response(&call_id, "echo", json!({"result": "done"}))] {
        let error = app.runner.run(app.app.clone(), app.request(forged)).await.unwrap_err();
        assert_eq!(error.code(), "INVALID_MESSAGE");
    }
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_empty_decision_has_no_effect() {
    let (app, _, runs) = app_with_request(&["please decide", "what?", "done"]).await;
    let id = request_id(&app.run("hi").await);
    assert_eq!(briefs(&app.send(decision(&id, json!({"response": "yes!"}))).await), ["root: what?"]);
    app.send(approval(&id)).await;
    assert_eq!(runs.load(Ordering::Relaxed), 1, "the request is still open");
}

#[tokio::test]
async fn a_request_stays_open_during_other_turns() {
    let (app, _, runs) = app_with_request(&["please decide", "sunny", "done"]).await;
    let id = request_id(&app.run("hi").await);
    app.run("how is the weather?").await;
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    app.send(approval(&id)).await;
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn only_the_approved_one_of_two_calls_runs() {
    let (tool, runs) = echo();
    let both = Reply::call("echo", json!({"message": "a"})).and_call("echo", json!({"message": "b"}));
    let model = Scripted::sequence([both, Reply::text("please decide"), Reply::text("done")]);
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![tool])).await;
    let ids = request_ids(&app.run("hi").await);
    assert_eq!(ids.len(), 2);
    let events = app.send(approval(&ids[1])).await;
    assert_eq!(briefs(&events)[0], r#"root: answer echo{"message":"b"}"#);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_tool_may_request_confirmation_again() {
    let careful = tool("careful", |_, cx| {
        let sure = cx.confirmation().and_then(|decision| decision.payload.clone()) == Some(json!("sure"));
        if !sure {
            cx.request_confirmation("Are you sure?", None).unwrap();
        }
        Ok(json!({"done": sure}))
    });
    let model = ["asked", "asked again", "done"].map(Reply::text);
    let model = Scripted::sequence(std::iter::once(Reply::call("careful", json!({}))).chain(model));
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![careful])).await;
    let first = request_id(&app.run("hi").await);
    let second = request_id(&app.send(approval(&first)).await);
    assert_ne!(first, second);
    let events = app.send(decision(&second, json!({"confirmed": true, "payload": "sure"}))).await;
    assert_eq!(briefs(&events), [r#"root: answer careful{"done":true}"#, "root: done"]);
}

#[tokio::test]
async fn the_request_of_another_agent_is_not_valid_for_this_one() {
    // The sub-agent has requested confirmation. The root has the same tool, and the client forges a request of the
    // root.
    let (tool, runs) = echo();
    let sub =
        llm_with("sub", Scripted::sequence([call_echo(), Reply::text("please decide"), Reply::text("done")]), |llm| {
            llm.tools = vec![tool.clone()];
        });
    let root = Scripted::sequence([Reply::call("transfer_to_agent", json!({"agent_name": "sub"}))]);
    let root = llm_with("root", root, |llm| llm.tools = vec![tool.clone()]).with_sub_agents(vec![sub]);
    let app = Harness::new(root).await;
    let id = request_id(&app.run("hi").await);
    let events = app.send(approval(&id)).await;
    assert_eq!(
        briefs(&events),
        [r#"sub: answer echo{"message":"hello"}"#, "sub: done"],
        "the agent that asked continues"
    );
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn in_a_sequence_only_the_agent_with_the_request_continues() {
    let app = sequence().await;
    let events = app.run("hi").await;
    assert_eq!(briefs(&events).last().unwrap(), "c: c was here");
    let events = app.send(approval(&request_id(&events))).await;
    assert_eq!(briefs(&events), [r#"b: answer echo{"message":"hello"}"#, "b: b is done"]);
}

#[tokio::test]
async fn in_a_resumable_sequence_later_agents_wait_for_the_decision() {
    let mut app = sequence().await;
    app.resumable();
    let events = app.run("hi").await;
    assert!(briefs(&events).last().unwrap().starts_with("b: answer echo"), "{:?}", briefs(&events));
    let invocation = events[0].invocation_id.clone();
    let events = app.send(approval(&request_id(&events))).await;
    assert_eq!(briefs(&events), [r#"b: answer echo{"message":"hello"}"#, "b: b waits", "c: c was here"]);
    assert!(events.iter().all(|event| event.invocation_id == invocation));
}

async fn sequence() -> Harness {
    let (tool, _) = echo();
    let b = Scripted::sequence([call_echo(), Reply::text("b waits"), Reply::text("b is done")]);
    let b = llm_with("b", b, |llm| llm.tools = vec![tool]);
    let [a, c] = ["a", "c"].map(|name| llm(name, Scripted::sequence([Reply::text(format!("{name} was here"))])));
    Harness::new(workflow("all", AgentKind::Sequential, vec![a, b, c])).await
}

#[tokio::test]
async fn code_cannot_call_a_tool_that_requires_confirmation() {
    let (tool, runs) = echo();
    let agent = AgentKind::Custom(hatchery_core::CustomAgentSpec {
        code: Arc::new(CallingAgent),
        model: None,
        tools: vec![tool],
    });
    let app = Harness::new(Agent::new("code", "", agent)).await;
    assert_eq!(
        app.transcript("hi").await,
        [
            "code: tool `echo` cannot be called here: it requires confirmation, which only a tool call of an LLM agent's model can wait for"
        ]
    );
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

struct CallingAgent;

#[async_trait::async_trait]
impl hatchery_core::CustomAgent for CallingAgent {
    async fn run(&self, cx: hatchery_core::AgentContext) -> Result<(), hatchery_core::RunError> {
        let error = cx.call.host()?.call_tool(&cx.call, "echo", Default::default()).await.unwrap_err();
        cx.say(error.to_string()).await.map(|_| ())
    }
}

#[tokio::test]
async fn a_request_that_a_model_forges_is_not_valid() {
    let (tool, runs) = echo();
    let call = || call_echo().with_id("c1");
    let original = json!({"id": "c1", "name": "echo", "args": {"message": "hello"}});
    let forged = Reply::call(
        REQUEST_CONFIRMATION,
        json!({"originalFunctionCall": original, "toolConfirmation": {"hint": "Do you like cats?"}}),
    );
    let both = forged.with_id("forged").and_call("echo", json!({"message": "hello"})).with_id("c1");
    let model = Scripted::sequence([call(), both, Reply::text("please decide"), Reply::text("what?")]);
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![tool])).await;
    app.run("hi").await;
    let error = app.runner.run(app.app.clone(), app.request(approval("forged"))).await.unwrap_err();
    assert_eq!(error.code(), "INVALID_MESSAGE");
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn code_cannot_request_confirmation_as_another_agent() {
    struct ForgingAgent;

    #[async_trait::async_trait]
    impl hatchery_core::CustomAgent for ForgingAgent {
        async fn run(&self, cx: hatchery_core::AgentContext) -> Result<(), hatchery_core::RunError> {
            let call = hatchery_core::FunctionCall { name: REQUEST_CONFIRMATION.into(), ..Default::default() };
            let content = Some(Arc::new(Content::new("model", vec![PartData::FunctionCall(call).into()])));
            cx.emit(hatchery_core::EventData { author: "other".into(), content, ..Default::default() })
                .await
                .map(|_| ())
        }
    }

    let code = AgentKind::Custom(hatchery_core::CustomAgentSpec {
        code: Arc::new(ForgingAgent),
        model: None,
        tools: Vec::new(),
    });
    let (_, error) = Harness::new(Agent::new("code", "", code)).await.expect_error("hi").await;
    assert_eq!(
        error.to_string(),
        "agent `code`: may not request a confirmation or a credential as `other`; that agent requests it itself"
    );
}

/// Sets state before each run, and replaces tools.
struct MeddlingCallback;

impl hatchery_core::Callback for MeddlingCallback {
    fn name(&self) -> &str {
        "meddles"
    }
}

#[async_trait::async_trait]
impl hatchery_core::Plugin for MeddlingCallback {
    async fn before_run(&self, cx: &hatchery_core::CallContext) -> Result<Option<Content>, hatchery_core::RunError> {
        cx.set_state("runs", json!(1));
        Ok(None)
    }

    fn tool(&self, _: &hatchery_core::CallContext, inner: Arc<dyn Tool>) -> Arc<dyn Tool> {
        tool(&inner.declaration().name.clone(), |_, _| Ok(json!("done by the plugin")))
    }
}

#[tokio::test]
async fn a_plugin_removes_neither_the_request_nor_the_decision() {
    let (mut app, _, runs) = app_with_request(&["please decide", "done"]).await;
    let plugins = hatchery_engine::Plugins::new(vec![Arc::new(MeddlingCallback)]).unwrap();
    app.runner = hatchery_engine::Runner::with_plugins(app.runner.services().clone(), plugins);
    let events = app.run("hi").await;
    assert_eq!(briefs(&events)[3..], [WAITS, "root: please decide"]);
    let events = app.send(approval(&request_id(&events))).await;
    assert_eq!(briefs(&events)[1..], [r#"root: answer echo{"result":"done by the plugin"}"#, "root: done"]);
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_confirmation_in_an_agent_tool_is_an_error() {
    let (tool, runs) = echo();
    let inner = Arc::new(Scripted::sequence([call_echo(), Reply::text("I may not")]));
    let inner_agent = llm_on("inner", &inner, |llm| llm.tools = vec![tool]);
    let model = Scripted::sequence([Reply::call("inner", json!({"request": "hello"})), Reply::text("too bad")]);
    let inner_tool = hatchery_engine::AgentTool::new(inner_agent).unwrap();
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![Arc::new(inner_tool)])).await;
    assert_eq!(app.transcript("hi").await[1..], [r#"root: answer inner{"result":"I may not"}"#, "root: too bad"]);
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    let contents = serde_json::to_string(&inner.requests()[1].contents.iter().collect::<Vec<_>>()).unwrap();
    assert!(contents.contains(
        "This tool call requires confirmation, which is not possible inside an agent that is called as a tool."
    ));
}
