//! Messages of clients, and events that cannot be stored: nothing that is rejected is stored, and no model is called.

use std::sync::Arc;

use hatchery_core::{
    AgentContext, AgentKind, CallContext, Capabilities, Capability, Content, CustomAgent, CustomAgentSpec, Event,
    EventData, FunctionCall, Instruction, Part, PartData, RunError,
};
use hatchery_engine::RunRequest;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

async fn rejection(app: &Harness, message: Content) -> String {
    let error = app.runner.run(app.app.clone(), app.request(message)).await.unwrap_err();
    assert_eq!(error.code(), "INVALID_MESSAGE");
    error.to_string()
}

#[tokio::test]
async fn an_invalid_message_is_rejected_before_anything_is_stored() {
    let model = Arc::new(Scripted::new().default_reply("hello").record_requests());
    let app = Harness::new(llm_on("root", &model, |_| {})).await;
    let call = FunctionCall { id: Some("c1".into()), name: "pay".into(), ..FunctionCall::default() };
    let odd = Part { extra: map(json!({"foo": 1})).into(), ..Part::default() };
    for (part, wrong) in [
        (PartData::FunctionCall(call).into(), "newMessage.parts[1] is a `functionCall`, which only a model can make"),
        (
            odd,
            "newMessage.parts[1] has `foo`, which is not a supported kind of data; send `text`, `inlineData`, `fileData` or \
             `functionResponse`",
        ),
    ] {
        let message = Content::new("user", vec![Part::text("hi"), part]);
        assert_eq!(rejection(&app, message).await, wrong);
    }
    let request = RunRequest { message: None, ..app.request(Content::default()) };
    let error = app.runner.run(app.app.clone(), request).await.unwrap_err();
    assert_eq!(error.to_string(), "the request has neither a message nor an invocation to resume");
    assert!(app.session().await.events.is_empty() && model.requests().is_empty());
    assert_eq!(app.transcript("hi").await, ["root: hello"], "the session continues");
}

#[tokio::test]
async fn a_message_with_too_many_parts_is_rejected() {
    let app = Harness::new(llm("root", Scripted::new().default_reply("hello"))).await;
    let with_parts = |count: usize| Content::new("user", vec![Part::text("a"); count]);
    assert_eq!(
        rejection(&app, with_parts(1001)).await,
        "newMessage has 1001 parts; a message has at most 1000, so send several"
    );
    assert!(app.session().await.events.is_empty());
    assert_eq!(briefs(&app.send(with_parts(1000)).await), ["root: hello"]);
}

#[tokio::test]
async fn only_calls_that_wait_for_the_user_can_be_responded_to() {
    let order = long_running("order", |_, _| Ok(json!({"status": "pending"})));
    let add = tool("add", |_, _| Ok(json!(3)));
    let calls = Reply::call("order", json!({})).with_id("c1");
    let model = Scripted::sequence([
        calls,
        Reply::text("ordered"),
        Reply::call("add", json!({})).with_id("c2"),
        Reply::text("added"),
        Reply::text("half way"),
        Reply::text("arrived"),
    ]);
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![order, add])).await;
    app.run("order it").await;
    app.run("add it").await;
    let before = app.session().await.events.len();
    for (message, wrong) in [
        (
            tool_response("c9", "order", json!({})),
            "newMessage.parts[0] has a `functionResponse` of id `c9`, but the session has no such call",
        ),
        (
            tool_response("c1", "pay", json!({})),
            "newMessage.parts[0] has a `functionResponse` named `pay`, but the call of id `c1` is of `order`",
        ),
        (
            tool_response("c2", "add", json!({"result": 1_000_000})),
            "newMessage.parts[0] has a `functionResponse` of id `c2`, but that call of `add` already has a response",
        ),
    ] {
        assert_eq!(rejection(&app, message).await, wrong);
    }
    assert_eq!(app.session().await.events.len(), before, "nothing is stored");
    // A long-running call may get several responses.
    assert_eq!(briefs(&app.send(tool_response("c1", "order", json!({"status": "shipped"}))).await), ["root: half way"]);
    assert_eq!(briefs(&app.send(tool_response("c1", "order", json!({"status": "done"}))).await), ["root: arrived"]);
}

#[tokio::test]
async fn state_that_could_not_be_read_again_is_rejected() {
    let app = Harness::new(llm("root", Scripted::new().default_reply("ok"))).await;
    let deep = (0..101).fold(json!(1), |inner, _| json!([inner]));
    let request = RunRequest { state_delta: map(json!({ "a": deep })), ..app.request(Content::user("hi")) };
    let error = app.runner.run(app.app.clone(), request).await.unwrap_err();
    assert_eq!(error.code(), "BAD_INPUT");
    assert_eq!(error.to_string(), "the value of the state key `a` is nested more than 100 levels deep");
    assert!(app.session().await.events.is_empty());
}

/// Emits this event.
struct EmittingAgent(fn() -> EventData);

#[async_trait::async_trait]
impl CustomAgent for EmittingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.emit((self.0)()).await.map(drop)
    }
}

#[tokio::test]
async fn an_event_that_could_not_be_read_again_ends_the_run_and_is_not_stored() {
    type Emit = fn() -> EventData;
    let cases: [(Emit, &str); 2] = [
        (
            || {
                let part = Part { extra: map(json!({"functionCall": {}})).into(), ..Part::text("hi") };
                EventData { content: Some(Arc::new(Content::new("model", vec![part]))), ..EventData::default() }
            },
            "`content.parts[0]` has `functionCall` among its further keys, but that is a field of a part",
        ),
        (
            || {
                let mut data = EventData::default();
                let deep = (0..101).fold(json!(1), |inner, _| json!([inner]));
                data.actions.state_delta = map(json!({ "a": deep }));
                data
            },
            "`actions.stateDelta` is nested more than 100 levels deep",
        ),
    ];
    for (emits, wrong) in cases {
        let custom = CustomAgentSpec { code: Arc::new(EmittingAgent(emits)), model: None, tools: Vec::new() };
        let app = Harness::new(workflow("root", AgentKind::Custom(custom), Vec::new())).await;
        let (events, error) = app.expect_error("hi").await;
        assert_eq!((error.code(), events.len()), ("INVALID_EVENT", 1), "{events:?}");
        assert_eq!(error.to_string(), format!("agent `root`: it emitted an event that cannot be stored: {wrong}"));
        let session = app.session().await;
        assert_eq!(session.events.len(), 2, "the user's message and the failure");
        for event in &session.events {
            assert_eq!(***event, **Event::from_json(event.json().clone()).unwrap());
        }
    }
}

/// Allows state of the session only.
struct SessionOnly;

impl Capabilities for SessionOnly {
    fn check(&self, cx: &CallContext, capability: Capability<'_>) -> Result<(), RunError> {
        match capability {
            Capability::ReadState(key) | Capability::WriteState(key) if !key.contains(':') => Ok(()),
            _ => {
                let (agent, message) = (cx.agent.to_string(), format!("may not {capability:?}"));
                Err(RunError::Agent { agent, code: "DENIED".into(), message })
            }
        }
    }
}

#[tokio::test]
async fn an_agent_is_confined_to_its_capabilities_while_it_runs() {
    let state = json!({"user:ssn": "078-05-1120", "app:theme": "dark", "own": "{user:ssn}"});
    for (instruction, output_key, denied) in [
        ("Say {user:ssn}.", None, Some("ReadState(\"user:ssn\")")),
        ("Say {app:theme?}.", None, Some("ReadState(\"app:theme\")")),
        ("Say {artifact.secret.txt?}.", None, Some("ReadArtifacts")),
        ("Say {own}.", Some("user:loot"), Some("WriteState(\"user:loot\")")),
        ("Say {own}.", Some("loot"), None),
    ] {
        let model = Arc::new(Scripted::new().default_reply("said").record_requests());
        let root = llm_on("root", &model, |llm| {
            llm.instruction = Instruction::Template(instruction.into());
            llm.output_key = output_key.map(Into::into);
            llm.capabilities = Some(Arc::new(SessionOnly));
        });
        let app = Harness::with_state(root, state.clone()).await;
        let Some(denied) = denied else {
            app.run("hi").await;
            let instructions = &model.requests()[0].system_instructions;
            // Inserted values are not expanded again.
            assert!(instructions.iter().any(|text| text == "Say {user:ssn}."), "{instructions:?}");
            continue;
        };
        let (_, error) = app.expect_error("hi").await;
        assert_eq!((error.code(), error.to_string()), ("DENIED", format!("agent `root`: may not {denied}")));
        assert_eq!(app.state().await.get("user:loot"), None);
        assert_eq!(model.requests().len(), usize::from(output_key.is_some()), "{instruction}");
    }
}

#[tokio::test]
async fn the_global_instruction_is_confined_to_the_capabilities_of_the_root() {
    let model = Arc::new(Scripted::new().default_reply("said").record_requests());
    let root = llm_on("root", &model, |llm| {
        llm.global_instruction = Instruction::Template("Know {user:ssn}.".into());
        llm.capabilities = Some(Arc::new(SessionOnly));
    });
    let app = Harness::with_state(root, json!({"user:ssn": "078-05-1120"})).await;
    let (_, error) = app.expect_error("hi").await;
    assert_eq!(error.code(), "DENIED");
    assert!(model.requests().is_empty());
}
