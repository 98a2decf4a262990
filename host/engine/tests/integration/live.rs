//! Live runs: conversations with a live model, and text models turn by turn, through the hooks, tools and limits of
//! runs.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream;
use hatchery_core::{
    Agent, Blob, CallContext, Callback, Content, Event, FunctionDeclaration, HookPoint, JsonMap, LiveRequest,
    LiveRequestQueue, LiveResponse, LlmResponse, Part, PartData, REQUEST_CONFIRMATION, RunError, RunState, SessionKey,
    Tool, ToolError,
};
use hatchery_engine::LiveRunRequest;
use hatchery_engine::build::{custom, function_tool};
use hatchery_engine::builtin::StopStreaming;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::live::*;
use crate::support::*;

#[tokio::test]
async fn hooks_and_tools_work_in_a_conversation_as_in_a_run() {
    let model = LiveModel::new([vec![
        call("c1", "echo", json!({})),
        result("c1", "echo", json!({"mark": "marked", "extra": 1})),
        text_reply("it is "),
        text_reply("marked"),
        complete(),
    ]]);
    let marks = FixedCallback { name: "marks", mark: Some("marked"), ..FixedCallback::default() };
    let counts = FixedCallback { name: "counts", state: Some("called"), ..FixedCallback::default() };
    let root = model.agent("root", |llm| {
        llm.tools = vec![tool("echo", |args, _| Ok(json!({"mark": args["mark"], "extra": 1})))];
        llm.output_key = Some("answer".into());
        llm.callbacks.push(HookPoint::BeforeModel, marks.clone().arc());
        llm.callbacks.push(HookPoint::BeforeTool, marks.arc());
        llm.callbacks.push(HookPoint::AfterModel, counts.arc());
    });
    let app = Harness::new(root).await;
    let mut live = Live::start(&app).await;
    let expected = ["root: call echo{}", r#"root: answer echo{"mark":"marked","extra":1}"#, "root: it is marked"];
    assert_eq!(live.ask("hi").await, expected);
    live.finish().await;
    assert!(model.requests.lock().unwrap()[0].system_instructions.contains(&"marked".to_owned()));
    let settings = model.requests.lock().unwrap()[0].live_connect_config.clone().unwrap();
    assert_eq!(
        (settings.modalities(), settings.input_audio_transcription),
        (vec!["AUDIO".to_owned()], Some(json!({})))
    );
    let state = app.state().await;
    assert_eq!((&state["answer"], &state["called"]), (&json!("it is marked"), &json!(true)));
}

/// A tool that ends once the callback for the words of the model waits for it. The callback sets the state key `heard`.
struct Meeting {
    declaration: Arc<FunctionDeclaration>,
    /// Whether the callback waits for the tool at a chunk, or at the whole text.
    is_at_chunk: bool,
    arrived: Notify,
    called: Notify,
}

impl Meeting {
    fn new(is_at_chunk: bool) -> Arc<Self> {
        let (arrived, called) = (Notify::new(), Notify::new());
        Arc::new(Self { declaration: declaration("meet"), is_at_chunk, arrived, called })
    }

    fn agent(self: &Arc<Self>, model: &Arc<LiveModel>) -> Agent {
        model.agent("root", |llm| {
            llm.tools = vec![self.clone()];
            llm.callbacks.push(HookPoint::AfterModel, self.clone());
        })
    }
}

#[async_trait]
impl Tool for Meeting {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    async fn call(&self, _: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        self.arrived.notified().await;
        self.called.notify_one();
        Ok(json!({"met": true}))
    }
}

#[async_trait]
impl Callback for Meeting {
    fn name(&self) -> &str {
        "meeting"
    }

    async fn after_model(&self, cx: &CallContext, response: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        let has_text = response.content.as_ref().is_some_and(|content| !content.text().is_empty());
        if has_text && response.partial == self.is_at_chunk {
            cx.set_state("heard", json!(true));
            self.arrived.notify_one();
            self.called.notified().await;
        }
        Ok(None)
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_tools_continue_while_a_callback_sees_what_the_model_says() {
    let model = LiveModel::new([vec![
        call("c1", "meet", json!({})),
        text_reply("one moment"),
        result("c1", "meet", json!({"met": true})),
        complete(),
    ]]);
    let app = Harness::new(Meeting::new(true).agent(&model)).await;
    let mut live = Live::start(&app).await;
    let events = tokio::time::timeout(Duration::from_secs(60), live.ask("hi")).await.expect("the tool has no turn");
    assert_eq!(events, ["root: call meet{}", r#"root: answer meet{"met":true}"#, "root: one moment"]);
    live.finish().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_callback_changes_is_stored_with_the_response_and_not_with_a_call_that_ends_meanwhile() {
    for is_at_chunk in [true, false] {
        let mut script = vec![call("c1", "meet", json!({})), text_reply("one moment")];
        let answer = result("c1", "meet", json!({"met": true}));
        script.extend(if is_at_chunk { [answer, complete()] } else { [complete(), answer] });
        let app = Harness::new(Meeting::new(is_at_chunk).agent(&LiveModel::new([script]))).await;
        let mut live = Live::start(&app).await;
        let events = tokio::time::timeout(Duration::from_secs(60), live.ask("hi")).await.expect("the tool has no turn");
        assert_eq!(events, ["root: call meet{}", r#"root: answer meet{"met":true}"#, "root: one moment"]);
        live.finish().await;
        let session = app.session().await;
        let changed = |event: &&Arc<Event>| event.actions.state_delta.contains_key("heard");
        let changed: Vec<_> = session.events.iter().filter(changed).map(|event| line(event)).collect();
        assert_eq!(changed, ["root: one moment"]);
    }
}

/// A callback that sets the state key `heard` at the first words of the model.
struct Listener;

#[async_trait]
impl Callback for Listener {
    fn name(&self) -> &str {
        "listener"
    }

    async fn after_model(&self, cx: &CallContext, response: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        if response.partial {
            cx.set_state("heard", json!(true));
        }
        Ok(None)
    }
}

#[tokio::test]
async fn what_a_callback_changes_is_not_stored_with_the_answer_to_a_call_that_the_model_has_cancelled() {
    let model = LiveModel::new([vec![
        call("c1", "wait", json!({})),
        text_reply("never "),
        Step::Send(LiveResponse::ToolCallsCancelled(vec!["c1".into()])),
        text_reply("mind"),
        complete(),
    ]]);
    let wait = function_tool("wait", "Waits.", |_: JsonMap, _| pending::<Result<Value, ToolError>>());
    let root = model.agent("root", |llm| {
        llm.tools = vec![Arc::new(wait)];
        llm.callbacks.push(HookPoint::AfterModel, Arc::new(Listener));
    });
    let app = Harness::new(root).await;
    let mut live = Live::start(&app).await;
    let answer = r#"root: answer wait{"error":"the model has cancelled the call"}"#;
    assert_eq!(live.ask("hi").await, ["root: call wait{}", answer, "root: never mind"]);
    live.finish().await;
    let session = app.session().await;
    let changed = |event: &&Arc<Event>| event.actions.state_delta.contains_key("heard");
    let changed: Vec<_> = session.events.iter().filter(changed).map(|event| line(event)).collect();
    assert_eq!(changed, ["root: never mind"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_answered_although_the_model_has_cancelled_its_id_before() {
    let model = LiveModel::new([vec![
        Step::Send(LiveResponse::ToolCallsCancelled(vec!["c1".into(), "c2".into()])),
        call("c1", "echo", json!({})),
        result("c1", "echo", json!({"ran": 1})),
        complete(),
    ]]);
    let root = model.agent("root", |llm| llm.tools = vec![tool("echo", |_, _| Ok(json!({"ran": 1})))]);
    let app = Harness::new(root).await;
    let mut live = Live::start(&app).await;
    let events = tokio::time::timeout(Duration::from_secs(60), live.ask("hi")).await.expect("the call has no answer");
    assert_eq!(events, ["root: call echo{}", r#"root: answer echo{"ran":1}"#]);
    live.finish().await;
}

#[tokio::test]
async fn agents_transfer_within_a_conversation_and_the_target_keeps_it() {
    let transfer = || call("c1", "transfer_to_agent", json!({"agent_name": "child"}));
    let root = LiveModel::new([vec![transfer()]]);
    let child =
        LiveModel::new([vec![transcription("child here"), complete()], vec![transcription("still here"), complete()]]);
    let app = Harness::new(root.agent("root", |_| {}).with_sub_agents(vec![child.agent("child", |_| {})])).await;
    let mut live = Live::start(&app).await;
    let events = live.ask("hi").await;
    assert_eq!(events.last().unwrap(), "child: “child here”");
    live.finish().await;
    let mut live = Live::start(&app).await;
    assert_eq!(live.ask("more").await, ["child: “still here”"]);
    live.finish().await;
    assert_eq!(child.history(1)[..1], ["hi"]);
    assert_eq!(child.history(1)[3..], ["child here", "more"]);
}

#[tokio::test]
async fn a_text_agent_takes_over_from_a_live_one_turn_by_turn() {
    let root = LiveModel::new([vec![call("c1", "transfer_to_agent", json!({"agent_name": "child"}))]]);
    let child = llm("child", Scripted::sequence(["one", "two"]));
    let app = Harness::new(root.agent("root", |_| {}).with_sub_agents(vec![child])).await;
    let mut live = Live::start(&app).await;
    assert_eq!(live.ask("hi").await.last().unwrap(), "child: one");
    assert_eq!(live.ask("more").await, ["child: two"]);
    live.queue.send(audio()).await.unwrap();
    let error = live.end().await.unwrap();
    let expected = "agent `child` has no live model and takes no `audio/pcm`; send text";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[tokio::test]
async fn a_confirmation_is_answered_on_a_new_connection() {
    let waits = json!({"error": "This tool call requires confirmation, please approve or reject."});
    let model = LiveModel::new([
        vec![call("c1", "echo", json!({})), result("c1", "echo", waits), transcription("please decide"), complete()],
        vec![transcription("done"), complete()],
    ]);
    let root =
        model.agent("root", |llm| llm.tools = vec![tool_with_confirmation("echo", |_, _| Ok(json!({"ran": 1})))]);
    let app = Harness::new(root).await;
    let mut live = Live::start(&app).await;
    assert_eq!(live.ask("hi").await.last().unwrap(), "root: “please decide”");
    let session = app.session().await;
    let calls = session.events.iter().flat_map(|event| event.function_calls());
    let id = calls.filter(|call| call.name == REQUEST_CONFIRMATION).find_map(|call| call.id.clone()).unwrap();
    let approval = tool_response(&id, REQUEST_CONFIRMATION, json!({"confirmed": true}));
    live.queue.send_content(approval).await.unwrap();
    assert_eq!(live.turn().await, [r#"root: answer echo{"ran":1}"#, "root: “done”"]);
    live.finish().await;
}

#[tokio::test]
async fn a_callback_that_answers_in_place_of_a_live_model_ends_what_nobody_hears() {
    let model = LiveModel::new([]);
    let guard = FixedCallback { name: "guard", model: Some("not now"), ..FixedCallback::default() };
    let root = model.agent("root", |llm| llm.callbacks.push(HookPoint::BeforeModel, guard.arc()));
    let app = Harness::new(root).await;
    let mut live = Live::start(&app).await;
    assert_eq!(live.ask("hi").await, ["root: not now"]);
    assert_eq!(live.ask("again").await, ["root: not now"]);
    live.queue.send(audio()).await.unwrap();
    assert_eq!(live.turn().await, ["root: not now"]);
    assert!(live.queue.is_closed());
    live.finish().await;
}

#[tokio::test]
async fn messages_in_a_conversation_are_stored_and_speech_counts_as_no_bytes() {
    let part = |bytes: usize| {
        let data = vec![0; bytes].into();
        Part::from(PartData::InlineData(Blob { mime_type: "audio/pcm".into(), data, display_name: None }))
    };
    let speech = || Step::Send(LiveResponse::Content(Content::new("model", vec![part(4000)])));
    let model = LiveModel::new([vec![
        speech(),
        transcription("one"),
        complete(),
        Step::Expect(LiveRequest::content(Content::user("second"))),
        speech(),
        transcription("two"),
        complete(),
    ]]);
    let mut app = Harness::new(model.agent("root", |_| {})).await;
    app.config.max_run_bytes = 4000;
    let mut live = Live::start(&app).await;
    assert_eq!(live.ask("first").await, ["root: “one”"]);
    assert_eq!(live.ask("second").await, ["root: “two”"]);
    live.finish().await;
    let session = app.session().await;
    let stored: Vec<_> = session.events.iter().map(|event| line(event)).collect();
    assert_eq!(stored, ["user: first", "root: “one”", "user: second", "root: “two”"]);
    let runs: Vec<_> = session.events.iter().map(|event| &event.invocation_id).collect();
    assert!(runs.windows(2).all(|pair| pair[0] == pair[1]), "{runs:?}");
    assert!(session.events.iter().all(|event| !event.partial));
}

/// Sends its model the number of requests that it has seen, at first none.
struct Watch {
    declaration: Arc<FunctionDeclaration>,
    ended: Arc<AtomicBool>,
}

/// Notes that a stream was dropped.
struct NoteOnDrop(Arc<AtomicBool>);

impl Drop for NoteOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[async_trait]
impl Tool for Watch {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    async fn call(&self, _: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let note = NoteOnDrop(self.ended.clone());
        cx.stream_results("watch", move |input| {
            let count = stream::unfold((0, input, note), |(seen, input, note)| async move {
                if seen > 0 {
                    input.next().await?;
                }
                Some((json!({"seen": seen}), (seen + 1, input, note)))
            });
            count.boxed()
        })
    }
}

#[tokio::test]
async fn a_streaming_tool_sends_results_until_the_model_stops_it() {
    let returned = |seen: i32| {
        let text = format!("Function watch returned: {{\"seen\":{seen}}}");
        Step::Expect(LiveRequest::content(Content::user(text)))
    };
    let pending = json!({"status": "The function is running asynchronously and the results are pending."});
    let model = LiveModel::new([vec![
        call("c1", "watch", json!({})),
        result("c1", "watch", pending),
        returned(0),
        transcription("I watch"),
        complete(),
        Step::Expect(audio()),
        returned(1),
        call("c2", "stop_streaming", json!({"function_name": "watch"})),
        result("c2", "stop_streaming", json!({"status": "Stopped watch."})),
        call("c3", "stop_streaming", json!({"function_name": "watch"})),
        result("c3", "stop_streaming", json!({"error": "the function `watch` is not running"})),
        complete(),
    ]]);
    let ended = Arc::new(AtomicBool::default());
    let declaration = Arc::new(FunctionDeclaration { name: "watch".into(), ..FunctionDeclaration::default() });
    let watch = Arc::new(Watch { declaration, ended: ended.clone() });
    let root = model.agent("root", |llm| llm.tools = vec![watch, Arc::new(StopStreaming::default())]);
    let app = Harness::new(root).await;
    let mut live = Live::start(&app).await;
    assert_eq!(live.ask("hi").await.last().unwrap(), "root: “I watch”");
    live.queue.send(audio()).await.unwrap();
    live.turn().await;
    live.finish().await;
    app.runner.drain().await;
    assert!(ended.load(Ordering::SeqCst), "the stream is dropped");
}

#[tokio::test]
async fn a_streaming_tool_outside_of_a_live_conversation_is_an_error_that_the_model_reads() {
    let declaration = Arc::new(FunctionDeclaration { name: "watch".into(), ..FunctionDeclaration::default() });
    let watch = Arc::new(Watch { declaration, ended: Arc::default() });
    let model = Scripted::sequence([Reply::call("watch", json!({})), Reply::text("sorry")]);
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![watch])).await;
    let expected = "this tool works in live conversations only, with a model that hears and speaks";
    assert!(app.transcript("hi").await[1].contains(expected));
}

fn chunk(byte: u8) -> Blob {
    Blob { mime_type: "audio/pcm;rate=24000".into(), data: vec![byte; 2].into(), display_name: None }
}

fn audio_reply(byte: u8) -> Step {
    let part = Part::from(PartData::InlineData(chunk(byte)));
    Step::Send(LiveResponse::Content(Content::new("model", vec![part])))
}

#[tokio::test]
async fn speech_is_saved_as_artifacts_if_the_run_asks_for_it() {
    let script = || {
        vec![
            Step::Expect(LiveRequest::Blob(chunk(1))),
            audio_reply(2),
            audio_reply(3),
            transcription("hello"),
            complete(),
        ]
    };
    for is_saved in [false, true] {
        let model = LiveModel::new([script()]);
        let mut app = Harness::new(model.agent("root", |_| {})).await;
        app.config.save_live_audio_as_artifacts = is_saved;
        let mut live = Live::start(&app).await;
        live.queue.send(LiveRequest::Blob(chunk(1))).await.unwrap();
        assert_eq!(live.turn().await, ["root: “hello”"]);
        live.finish().await;
        let session = app.session().await;
        let saved: Vec<_> = session.events.iter().flat_map(|event| event.actions.artifact_delta.keys()).collect();
        if !is_saved {
            assert_eq!(saved, [""; 0]);
            continue;
        }
        let run = &session.events[0].invocation_id;
        assert_eq!(saved, [&format!("live_input_{run}_0.pcm"), &format!("live_output_{run}_0.pcm")]);
        let artifacts = &app.runner.services().artifacts;
        let key = SessionKey::new(app.app.name.as_str(), USER, SESSION);
        let output = artifacts.load(&key, saved[1], None).await.unwrap().unwrap();
        let recorded = Blob { data: vec![2, 2, 3, 3].into(), ..chunk(0) };
        assert_eq!(output.data, PartData::InlineData(recorded));
    }
}

#[tokio::test]
async fn the_speech_of_agents_of_one_run_has_names_of_its_own() {
    let root = LiveModel::new([vec![audio_reply(1), call("c1", "transfer_to_agent", json!({"agent_name": "child"}))]]);
    let child = LiveModel::new([vec![audio_reply(2), transcription("hello"), complete()]]);
    let mut app = Harness::new(root.agent("root", |_| {}).with_sub_agents(vec![child.agent("child", |_| {})])).await;
    app.config.save_live_audio_as_artifacts = true;
    let mut live = Live::start(&app).await;
    assert_eq!(live.ask("hi").await.last().unwrap(), "child: “hello”");
    live.finish().await;
    let session = app.session().await;
    let saved: Vec<_> = session.events.iter().flat_map(|event| event.actions.artifact_delta.clone()).collect();
    let run = &session.events[0].invocation_id;
    let name = |number: u32| format!("live_output_{run}_{number}.pcm");
    assert_eq!(saved, [(name(0), 0), (name(1), 0)]);
}

#[tokio::test]
async fn a_text_model_answers_turn_by_turn_and_a_failure_ends_the_run() {
    let app = Harness::new(llm("root", Scripted::sequence([Reply::text("one"), Reply::text("two")]))).await;
    let mut live = Live::start(&app).await;
    assert_eq!(live.ask("hi").await, ["root: one"]);
    assert_eq!(live.ask("more").await, ["root: two"]);
    live.queue.send_content(Content::user("too much")).await.unwrap();
    let error = live.end().await.unwrap();
    assert!(matches!(error, RunError::Model(_)), "{error:?}");
}

#[tokio::test]
async fn what_was_said_is_stored_when_the_client_hangs_up() {
    let model = LiveModel::new([vec![transcription("good "), transcription("day")]]);
    let app = Harness::new(model.agent("root", |_| {})).await;
    let Live { mut run, queue } = Live::start(&app).await;
    queue.send_content(Content::user("hi")).await.unwrap();
    for _ in 0..2 {
        assert!(run.next().await.unwrap().unwrap().partial);
    }
    drop(run);
    app.runner.drain().await;
    let stored: Vec<_> = app.session().await.events.iter().map(|event| line(event)).collect();
    assert_eq!(stored, ["user: hi", "root: “good day”"]);
    let runs = app.runner.services().sessions.runs().unwrap();
    let listed = runs.list(&SessionKey::new("app", USER, SESSION), None, 2).await.unwrap().runs;
    assert_eq!(listed.iter().map(|run| run.state).collect::<Vec<_>>(), [RunState::Done]);
}

#[tokio::test]
async fn the_turn_of_a_text_model_is_cancelled_when_the_client_hangs_up() {
    let root = custom("root", |cx| async move {
        cx.say("one").await?;
        pending().await
    });
    let app = Harness::new(root.build().unwrap()).await;
    let Live { mut run, queue } = Live::start(&app).await;
    queue.send_content(Content::user("hi")).await.unwrap();
    assert_eq!(brief(&run.next().await.unwrap().unwrap()), "root: one");
    drop(run);
    app.runner.drain().await;
    assert_eq!(app.session().await.events.last().unwrap().error_code.as_deref(), Some("CANCELLED"));
}

#[tokio::test]
async fn a_live_run_needs_its_session() {
    let app = Harness::new(llm("root", Scripted::new())).await;
    let request = LiveRunRequest::new(USER, "other");
    let error = app.runner.run_live(app.app.clone(), request, LiveRequestQueue::new(1)).await.unwrap_err();
    assert_eq!(error.code(), "SESSION_NOT_FOUND");
}
