//! Record and replay of whole runs: a replay equals the recorded run, or fails.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, Callback, Content, CustomAgent, CustomAgentSpec, FunctionCall,
    FunctionDeclaration, HookPoint, JsonMap, LlmRequest, LlmResponse, Model, ModelCapabilities, ModelError,
    ModelErrorKind, ModelRef, ModelResolver, PartData, Plugin, RunError, Services, Tool, ToolError,
};
use hatchery_engine::{Plugins, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_recordings::{FILE_NAME, RecordedCall, Recorder, Recordings, Replayer, ToolOutcome};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::*;

pub fn with_plugins(mut app: Harness, plugins: Vec<Arc<dyn Plugin>>) -> Harness {
    app.runner = Runner::with_plugins(app.runner.services().clone(), Plugins::new(plugins).unwrap());
    app
}

pub async fn recording(folder: &TempDir, root: Agent) -> Harness {
    with_plugins(Harness::new(root).await, vec![Arc::new(Recorder::single_session(folder.path()))])
}

async fn replaying(folder: &TempDir, root: Agent) -> Harness {
    with_plugins(Harness::new(root).await, vec![Arc::new(Replayer::from_folder(folder.path()))])
}

pub fn read_recording(folder: &Path) -> Recordings {
    Recordings::parse(&std::fs::read_to_string(folder.join(FILE_NAME)).unwrap()).unwrap()
}

/// Formats the calls of a recording.
fn calls(recordings: &Recordings) -> Vec<String> {
    let calls = recordings.recordings.iter().map(|recording| {
        let call = match &recording.call {
            RecordedCall::Model(_) => "model".to_owned(),
            RecordedCall::Tool(tool) => format!("{}{}", tool.call.name, Value::Object(tool.call.args.clone())),
        };
        format!("{} {}: {call}", recording.user_message_index, recording.agent)
    });
    calls.collect()
}

/// A model that must not be called.
pub fn no_replies() -> Scripted {
    Scripted::sequence(Vec::<Reply>::new())
}

/// A tool that must not be called.
pub fn never_called(name: &str) -> Arc<dyn Tool> {
    tool(name, |_, _| panic!("a replay does not call tools"))
}

/// A tool that adds `by` to the state `count`.
pub fn count_tool() -> Arc<dyn Tool> {
    tool("count", |args, cx| {
        let count = cx.state("count").and_then(|count| count.as_i64()).unwrap_or(0);
        let by = args.get("by").and_then(Value::as_i64).unwrap_or(1);
        cx.set_state("count", json!(count + by));
        Ok(json!(count + by))
    })
}

pub fn counter(model: Scripted, tool: Arc<dyn Tool>) -> Agent {
    llm_with("root", model, |llm| llm.tools = vec![tool])
}

/// Calls the tool with two, then replies with the result.
pub fn script() -> Scripted {
    Scripted::sequence([Reply::call("count", json!({"by": 2})), Reply::text("two")])
}

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

/// Knows what its models support, but has no key for them.
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
async fn the_file_has_the_initial_state_and_the_user_messages() {
    let folder = tempfile::tempdir().unwrap();
    let app = Harness::with_state(counter(script(), count_tool()), json!({"count": 1, "user:name": "Ada"})).await;
    let app = with_plugins(app, vec![Arc::new(Recorder::single_session(folder.path()))]);
    let state_delta = map(json!({"count": 40, "temp:x": 1}));
    let request = RunRequest { state_delta, ..app.request(Content::user("count")) };
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    let file = read_recording(folder.path());
    assert_eq!(file.app.as_deref(), Some("app"));
    assert_eq!(file.initial_state, map(json!({"user:name": "Ada"})));
    assert_eq!(file.user_messages[0].content.text(), "count");
    assert_eq!(file.user_messages[0].state_delta, map(json!({"count": 40, "temp:x": 1})));
}

#[tokio::test]
async fn recording_the_first_message_again_replaces_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        recording(&folder, counter(script(), count_tool())).await.run("count").await;
    }
    assert_eq!(
        (read_recording(folder.path()).recordings.len(), read_recording(folder.path()).user_messages.len()),
        (3, 1)
    );
}

#[tokio::test]
async fn requests_are_recorded_after_callbacks_and_responses_before() {
    let root = |model| {
        llm_with("root", model, |llm| {
            llm.callbacks.push(HookPoint::BeforeModel, Arc::new(AddInstruction));
            llm.callbacks.push(HookPoint::AfterModel, Arc::new(ReplaceResponse));
        })
    };
    let folder = tempfile::tempdir().unwrap();
    let transcript = recording(&folder, root(Scripted::sequence(["raw"]))).await.transcript("hi").await;
    let file = read_recording(folder.path());
    let RecordedCall::Model(call) = &file.recordings[0].call else { panic!("{file:?}") };
    assert!(call.request.system_instructions[0].ends_with("\n\nRhyme."), "{call:?}");
    assert_eq!(call.responses[0].content.as_ref().unwrap().text(), "raw");
    assert_eq!(replaying(&folder, root(no_replies())).await.transcript("hi").await, transcript);
    assert_eq!(transcript, ["root: changed"]);
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

/// Adds a system instruction.
struct AddInstruction;

#[async_trait]
impl Callback for AddInstruction {
    fn name(&self) -> &str {
        "add_instruction"
    }

    async fn before_model(&self, _: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        request.system_instructions.push("Rhyme.".into());
        Ok(None)
    }
}

/// Replaces the response of the model.
struct ReplaceResponse;

#[async_trait]
impl Callback for ReplaceResponse {
    fn name(&self) -> &str {
        "replace_response"
    }

    async fn after_model(&self, _: &CallContext, _: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        Ok(Some(LlmResponse::text("changed")))
    }
}

/// A tool that returns once both of two calls have started.
struct MeetTool(Arc<FunctionDeclaration>, Arc<tokio::sync::Barrier>);

#[async_trait]
impl Tool for MeetTool {
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
    let meeting = Arc::new(MeetTool(declaration("meet"), Arc::new(tokio::sync::Barrier::new(2))));
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

async fn expect_mismatch(app: &Harness, text: &str) -> String {
    let (_, error) = app.expect_error(text).await;
    assert_eq!(error.code(), "REPLAY_MISMATCH", "{error}");
    error.to_string()
}

#[tokio::test]
async fn another_instruction_ends_the_run_with_a_diff() {
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, counter(script(), count_tool())).await.run("count").await;
    let other = llm_with("root", no_replies(), |llm| {
        llm.tools = vec![never_called("count")];
        llm.instruction = hatchery_core::Instruction::Template("Be long.".into());
    });
    let message = expect_mismatch(&replaying(&folder, other).await, "count").await;
    assert!(
        message.starts_with("agent `root`: message 0, call 0: the model request differs from the recorded one\n"),
        "{message}"
    );
    assert!(message.contains("--- recorded\n+++ now\n@@ -"), "{message}");
    assert!(message.contains("\n-    \"system_instruction\": \"Be brief.\\n\n"), "{message}");
    assert!(message.contains("\n+    \"system_instruction\": \"Be long.\\n\n"), "{message}");
    assert!(!message.contains("\"contents\""), "only the differences: {message}");
}

#[tokio::test]
async fn a_mismatch_ends_the_run_even_if_a_callback_recovers_from_errors() {
    struct RecoverFromErrors;
    #[async_trait]
    impl Callback for RecoverFromErrors {
        fn name(&self) -> &str {
            "recover"
        }
        async fn on_model_error(
            &self,
            _: &CallContext,
            _: &LlmRequest,
            _: &ModelError,
        ) -> Result<Option<LlmResponse>, RunError> {
            Ok(Some(LlmResponse::text("recovered")))
        }
    }
    impl Plugin for RecoverFromErrors {}
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, llm("root", Scripted::sequence(["hello"]))).await.run("hi").await;
    let replay = || Arc::new(Replayer::from_folder(folder.path())) as Arc<dyn Plugin>;
    for plugins in
        [vec![Arc::new(RecoverFromErrors) as Arc<dyn Plugin>, replay()], vec![replay(), Arc::new(RecoverFromErrors)]]
    {
        let app = with_plugins(Harness::new(llm("root", no_replies())).await, plugins);
        assert!(expect_mismatch(&app, "something else").await.contains("+          \"text\": \"something else\""));
    }
}

/// Changes a recording.
fn edit(folder: &TempDir, change: impl FnOnce(&mut Recordings)) {
    let mut file = read_recording(folder.path());
    change(&mut file);
    std::fs::write(folder.path().join(FILE_NAME), file.to_yaml().unwrap()).unwrap();
}

#[tokio::test]
async fn a_tool_call_with_other_arguments_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, counter(script(), count_tool())).await.run("count").await;
    edit(&folder, |file| {
        let RecordedCall::Tool(tool) = &mut file.recordings[1].call else { panic!("{file:?}") };
        tool.call.args = map(json!({"by": 3}));
    });
    let message =
        expect_mismatch(&replaying(&folder, counter(no_replies(), never_called("count"))).await, "count").await;
    assert!(
        message.contains("message 0, call 1: the call of tool `count` differs from the recorded one\n"),
        "{message}"
    );
    assert!(message.contains("-    \"by\": 3\n+    \"by\": 2\n"), "{message}");
}

#[tokio::test]
async fn unrecorded_calls_are_named() {
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, counter(script(), count_tool())).await.run("count").await;
    let complete = read_recording(folder.path());
    for (removed, message) in [
        (2, "message 0, call 2: the model was called, but the recording has no more calls of this agent"),
        (1, "message 0, call 1: tool `count` was called, but the recording has a call of the model here"),
        (0, "message 0, call 0: the model was called, but the recording has a call of tool `count` here"),
    ] {
        let mut file = complete.clone();
        file.recordings.remove(removed);
        std::fs::write(folder.path().join(FILE_NAME), file.to_yaml().unwrap()).unwrap();
        let app = replaying(&folder, counter(no_replies(), never_called("count"))).await;
        assert_eq!(expect_mismatch(&app, "count").await, format!("agent `root`: {message}"));
    }
}

#[tokio::test]
async fn a_missing_call_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, counter(script(), count_tool())).await.run("count").await;
    edit(&folder, |file| file.recordings.extend(file.recordings[1..].to_vec()));
    let app = replaying(&folder, counter(no_replies(), never_called("count"))).await;
    assert_eq!(
        expect_mismatch(&app, "count").await,
        "agent `root`: message 0, call 3: the run ended without a call of tool `count` and 1 more recorded calls"
    );
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
    let (transcript, _) = recording(&folder, root(model, stop)).await.expect_error("hi").await;
    edit(&folder, |file| {
        let RecordedCall::Tool(tool) = &mut file.recordings[1].call else { panic!("{file:?}") };
        tool.outcome = ToolOutcome::Interrupted;
    });
    let (again, error) = replaying(&folder, root(no_replies(), never_called("t"))).await.expect_error("hi").await;
    assert_eq!((error.code(), again), ("CANCELLED", transcript));
}

#[tokio::test]
async fn a_cancelled_run_does_not_wait_for_its_recording_which_is_written_nevertheless() {
    let folder = tempfile::tempdir().unwrap();
    let stop = tool("t", |_, cx| {
        cx.invocation.cancel.cancel();
        Ok(json!(1))
    });
    let model = Scripted::sequence([Reply::text("hello"), Reply::call("t", json!({}))]);
    let app = recording(&folder, llm_with("root", model, |llm| llm.tools = vec![stop])).await;
    app.run("hi").await;
    let file = folder.path().join(FILE_NAME);
    let content = std::fs::read(&file).unwrap();
    // A pipe replaces the file: reading blocks until the test writes.
    std::fs::remove_file(&file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    assert_eq!(app.expect_error("stop").await.1.code(), "CANCELLED");
    let pipe = file.clone();
    tokio::task::spawn_blocking(move || std::fs::write(pipe, content)).await.unwrap().unwrap();
    app.runner.close().await;
    assert!(std::fs::metadata(&file).unwrap().is_file(), "the recording has not been written");
    let codes = read_recording(folder.path()).user_messages.into_iter().map(|message| message.error_code);
    assert_eq!(codes.collect::<Vec<_>>(), [None, Some("CANCELLED".into())]);
}

#[tokio::test]
async fn headers_of_requests_are_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let root = llm_with("root", Scripted::sequence(["hello"]), |llm| {
        for key in ["httpOptions", "http_options"] {
            llm.generate_content_config.extra.insert(key.into(), json!({"headers": {"Authorization": "secret"}}));
        }
        llm.generate_content_config.extra.insert("labels".into(), json!({"team": "a"}));
    });
    recording(&folder, root).await.run("hi").await;
    let text = std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap();
    assert!(text.contains("team: a") && !text.contains("secret"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_call_does_not_wait_forever() {
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, counter(script(), count_tool())).await.run("count").await;
    edit(&folder, |file| {
        let RecordedCall::Tool(tool) = &mut file.recordings[1].call else { panic!("{file:?}") };
        tool.outcome = ToolOutcome::Interrupted;
    });
    let app = replaying(&folder, counter(no_replies(), never_called("count"))).await;
    let message = expect_mismatch(&app, "count").await;
    assert!(message.contains("call 1: the recorded call was interrupted, but this run did not end"), "{message}");
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
