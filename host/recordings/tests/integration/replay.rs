//! A replay equals the recorded run, without its models and tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, Content, CustomAgent, CustomAgentSpec, FunctionCall,
    FunctionDeclaration, JsonMap, LlmRequest, Model, ModelCapabilities, ModelError, ModelErrorKind, ModelRef,
    ModelResolver, PartData, Plugin, RunError, Services, Tool, ToolError,
};
use hatchery_engine::{Plugins, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_recordings::{RecordedCall, Replayer, ToolOutcome};
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn a_replay_has_the_same_events_and_state_without_model_and_tools() {
    let folder = tempfile::tempdir().unwrap();
    let model = Scripted::sequence([
        Reply::call("count", json!({"by": 2})),
        Reply::text("two"),
        Reply::call("count", json!({"by": 3})),
        Reply::text("five"),
    ]);
    let app = recording(&folder, counter(model, count_tool())).await;
    let transcript = [app.transcript("count").await, app.transcript("and on").await];
    assert_eq!(
        calls(&read_recording(folder.path())),
        [
            "0 root: model",
            "0 root: count{\"by\":2}",
            "0 root: model",
            "1 root: model",
            "1 root: count{\"by\":3}",
            "1 root: model"
        ]
    );
    let again = replaying(&folder, counter(no_replies(), never_called("count"))).await;
    assert_eq!([again.transcript("count").await, again.transcript("and on").await], transcript);
    assert_eq!(again.state().await, json!({"count": 5}));
}

/// A resolver that knows the capabilities of its models, but has no key for them.
struct NoKey(ModelCapabilities);

impl ModelResolver for NoKey {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        Err(ModelError::new(ModelErrorKind::Auth, name, "no key"))
    }

    fn capabilities(&self, _: &str) -> ModelCapabilities {
        self.0
    }
}

#[tokio::test]
async fn a_replay_without_a_key_still_knows_the_capabilities_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let capabilities = ModelCapabilities { schema_with_tools: true, ..ModelCapabilities::default() };
    let root = |model: ModelRef| {
        llm_with("root", no_replies(), |llm| {
            llm.model = Some(model);
            llm.output_schema = Some(json!({"type": "object"}));
            llm.tools = vec![count_tool()];
        })
    };
    let model = Arc::new(Scripted::sequence(["{}"]).with_capabilities(capabilities));
    let app = recording(&folder, root(ModelRef::Object("gemini-3-pro".into(), model.clone()))).await;
    assert_eq!(app.transcript("hi").await, ["root: {}"]);
    assert!(model.requests()[0].config.response_schema.is_some());
    let mut app = Harness::new(root(ModelRef::Named("gemini-3-pro".into()))).await;
    let services = Services { models: Arc::new(NoKey(capabilities)), ..app.runner.services().clone() };
    let replay: Arc<dyn Plugin> = Arc::new(Replayer::from_folder(folder.path()));
    app.runner = Runner::with_plugins(services, Plugins::new(vec![replay]).unwrap());
    assert_eq!(app.transcript("hi").await, ["root: {}"]);
}

#[tokio::test]
async fn a_streamed_response_is_recorded_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let root = llm("root", Scripted::new().default_reply(Reply::chunks(["Hel", "lo"])));
    recording(&folder, root).await.streaming().run("hi").await;
    let file = read_recording(folder.path());
    let RecordedCall::Model(call) = &file.recordings[0].call else { panic!("{file:?}") };
    assert_eq!((call.responses.len(), call.responses[0].partial), (1, false));
    let again = replaying(&folder, llm("root", no_replies())).await.streaming();
    assert_eq!(again.transcript("hi").await, ["root~: Hello", "root: Hello"]);
}

/// A tool that returns once both of two calls have started.
struct BarrierTool(Arc<FunctionDeclaration>, Arc<tokio::sync::Barrier>);

#[async_trait]
impl Tool for BarrierTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        self.1.wait().await;
        cx.set_state(args["who"].as_str().unwrap(), json!(true));
        Ok(args["who"].clone())
    }
}

#[tokio::test]
async fn concurrent_tool_calls_are_recorded_in_the_order_of_the_response() {
    let both = || Reply::call("meet", json!({"who": "a"})).and_call("meet", json!({"who": "b"}));
    let root = |model, meeting| llm_with("root", model, |llm| llm.tools = vec![meeting]);
    let folder = tempfile::tempdir().unwrap();
    let meeting = Arc::new(BarrierTool(declaration("meet"), Arc::new(tokio::sync::Barrier::new(2))));
    let transcript = recording(&folder, root(Scripted::sequence([both(), Reply::text("met")]), meeting))
        .await
        .transcript("hi")
        .await;
    let file = read_recording(folder.path());
    assert_eq!(calls(&file)[1..3], ["0 root: meet{\"who\":\"a\"}", "0 root: meet{\"who\":\"b\"}"]);
    let again = replaying(&folder, root(no_replies(), never_called("meet"))).await;
    assert_eq!(again.transcript("hi").await, transcript);
    assert_eq!(again.state().await, json!({"a": true, "b": true}));
}

#[tokio::test]
async fn concurrent_agents_are_replayed_independently() {
    let root = |models: [Scripted; 2], tools: [Arc<dyn Tool>; 2]| {
        let agents = ["a", "b"].into_iter().zip(models).zip(tools);
        let agents = agents.map(|((name, model), tool)| llm_with(name, model, |llm| llm.tools = vec![tool]));
        workflow("root", AgentKind::Parallel, agents.collect())
    };
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, root([script(), script()], [count_tool(), count_tool()])).await.run("go").await;
    let again =
        replaying(&folder, root([no_replies(), no_replies()], [never_called("count"), never_called("count")])).await;
    let mut transcript = again.transcript("go").await;
    transcript.sort();
    assert_eq!(transcript.len(), 6);
    assert_eq!((transcript[2].as_str(), transcript[5].as_str()), ("a: two", "b: two"));
}

#[tokio::test]
async fn errors_are_recorded_and_replayed() {
    let model = || Scripted::sequence([Reply::call("t", json!({})), Reply::error(ModelErrorKind::Auth, "no key")]);
    let broken = |message: &'static str| tool("t", move |_, _| Err(ToolError::Recoverable(message.into())));
    let root = |model, tool| llm_with("root", model, |llm| llm.tools = vec![tool]);
    let folder = tempfile::tempdir().unwrap();
    let (transcript, error) = recording(&folder, root(model(), broken("no luck"))).await.expect_error("hi").await;
    let file = read_recording(folder.path());
    assert_eq!(file.user_messages[0].error_code.as_deref(), Some("MODEL_AUTH"));
    let RecordedCall::Tool(call) = &file.recordings[1].call else { panic!("{file:?}") };
    assert_eq!(call.outcome, ToolOutcome::Error(ToolError::Recoverable("no luck".into())));
    let (again, same) = replaying(&folder, root(no_replies(), never_called("t"))).await.expect_error("hi").await;
    assert_eq!((again, same.to_string()), (transcript, error.to_string()));
}

#[tokio::test]
async fn a_cancelled_run_is_cancelled_at_the_same_call() {
    let folder = tempfile::tempdir().unwrap();
    let stop = tool("t", |_, cx| {
        cx.invocation.cancel.cancel();
        Ok(json!(1))
    });
    let root = |model, tool| llm_with("root", model, |llm| llm.tools = vec![tool]);
    let model = Scripted::sequence([Reply::call("t", json!({})), Reply::text("done")]);
    let app = recording(&folder, root(model, stop)).await;
    let (transcript, _) = app.expect_error("hi").await;
    // A cancelled run does not wait until its recording is written.
    app.runner.close().await;
    edit(&folder, |file| {
        let RecordedCall::Tool(tool) = &mut file.recordings[1].call else { panic!("{file:?}") };
        tool.outcome = ToolOutcome::Interrupted;
    });
    let (again, error) = replaying(&folder, root(no_replies(), never_called("t"))).await.expect_error("hi").await;
    assert_eq!((error.code(), again), ("CANCELLED", transcript));
}

/// Calls the model and a tool itself, as components do.
struct CustomLoop;

#[async_trait]
impl CustomAgent for CustomLoop {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        use futures::StreamExt;
        let host = cx.call.host()?;
        let (name, model) = host.model(&cx.call)?;
        let request = LlmRequest { model: name, ..LlmRequest::default() };
        let streaming_mode = hatchery_core::StreamingMode::Off;
        let mut responses =
            cx.call.invocation.generate(&cx.call.agent, model.as_ref(), request, streaming_mode).await?;
        let response = responses.next().await.unwrap()?;
        let count = host.call_tool(&cx.call, "count", map(json!({"by": 7}))).await?;
        cx.say(format!("{} {count}", response.content.unwrap_or_default().text())).await.map(|_| ())
    }
}

#[tokio::test]
async fn calls_of_a_custom_agent_are_recorded_and_replayed() {
    let root = |model: Scripted, tool| {
        let model = Some(ModelRef::Object("scripted".into(), Arc::new(model)));
        Agent::new(
            "root",
            "",
            AgentKind::Custom(CustomAgentSpec { code: Arc::new(CustomLoop), model, tools: vec![tool] }),
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let app = recording(&folder, root(Scripted::sequence(["counted"]), count_tool())).await;
    assert_eq!(app.transcript("hi").await, ["root: counted 7"]);
    let again = replaying(&folder, root(no_replies(), never_called("count"))).await;
    assert_eq!(again.transcript("hi").await, ["root: counted 7"]);
    assert_eq!(again.state().await, json!({"count": 7}));
}

#[tokio::test]
async fn a_later_response_is_assigned_to_the_pending_call() {
    let root = |model, tool| llm_with("root", model, |llm| llm.tools = vec![tool]);
    let folder = tempfile::tempdir().unwrap();
    let model = Scripted::sequence([Reply::call("ask", json!({})), Reply::text("granted")]);
    let app = recording(&folder, root(model, long_running("ask", |_, _| Ok(Value::Null)))).await;
    app.run("may I?").await;
    let call = |session: &hatchery_core::Session| session.events[1].function_calls().next().unwrap().clone();
    let answer = |call: FunctionCall| {
        let answer = hatchery_core::FunctionResponse {
            id: call.id,
            name: call.name,
            response: map(json!({"ok": true})),
            ..Default::default()
        };
        Content::new("user", vec![PartData::FunctionResponse(answer).into()])
    };
    let request = app.request(answer(call(&app.session().await)));
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();

    let mut file = read_recording(folder.path());
    let again =
        replaying(&folder, root(no_replies(), long_running("ask", |_, _| panic!("a replay does not call tools"))))
            .await;
    again.run("may I?").await;
    for part in &mut file.user_messages[1].content.parts {
        let PartData::FunctionResponse(response) = &mut part.data else { panic!("{part:?}") };
        response.id = Some("adk-of-the-recorded-run".into());
    }
    let session = again.session().await;
    let content = file.user_messages[1].content_for(&session.events);
    assert_eq!(content.function_responses().next().unwrap().id, call(&session).id);
    let run = again.runner.run(again.app.clone(), again.request(content)).await.unwrap();
    assert_eq!(run.collect().await.unwrap().iter().map(|event| brief(event)).collect::<Vec<_>>(), ["root: granted"]);
}

#[tokio::test]
async fn a_failed_run_is_added_to_the_recording() {
    let runs = AtomicU32::new(0);
    let folder = tempfile::tempdir().unwrap();
    let failing_second_time = tool("count", move |_, _| match runs.fetch_add(1, Ordering::SeqCst) {
        0 => Ok(json!(1)),
        _ => Err(ToolError::Fatal { tool: "count".into(), code: "BROKEN".into(), message: "worn out".into() }),
    });
    let model =
        Scripted::sequence([Reply::call("count", json!({})), Reply::text("one"), Reply::call("count", json!({}))]);
    let app = recording(&folder, counter(model, failing_second_time)).await;
    app.run("count").await;
    let (transcript, error) = app.expect_error("again").await;
    let again = replaying(&folder, counter(no_replies(), never_called("count"))).await;
    again.run("count").await;
    let (same, failure) = again.expect_error("again").await;
    assert_eq!((error.code(), failure.code(), same), ("BROKEN", "BROKEN", transcript));
    let codes: Vec<_> =
        read_recording(folder.path()).user_messages.into_iter().map(|message| message.error_code).collect();
    assert_eq!(codes, [None, Some("BROKEN".into())]);
}
