//! Live runs: conversations with a live model, and text models turn by turn, through the hooks, tools and limits of runs.

use hatchery_core::{
    Blob, Content, HookPoint, LiveRequest, LiveRequestQueue, LiveResponse, Part, PartData, REQUEST_CONFIRMATION,
    RunError,
};
use hatchery_engine::LiveRunRequest;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::live::*;
use crate::support::*;

#[tokio::test]
async fn hooks_and_tools_work_in_a_conversation_as_in_a_run() {
    let model = LiveModel::new([vec![
        call("c1", "echo", json!({})),
        result("c1", "echo", json!({"mark": "marked", "extra": 1})),
        wrote("it is "),
        wrote("marked"),
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

#[tokio::test]
async fn agents_transfer_within_a_conversation_and_the_target_keeps_it() {
    let transfer = || call("c1", "transfer_to_agent", json!({"agent_name": "child"}));
    let root = LiveModel::new([vec![transfer()]]);
    let child = LiveModel::new([vec![said("child here"), complete()], vec![said("still here"), complete()]]);
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
        vec![call("c1", "echo", json!({})), result("c1", "echo", waits), said("please decide"), complete()],
        vec![said("done"), complete()],
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
    live.queue.content(approval).await.unwrap();
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
        said("one"),
        complete(),
        Step::Expect(LiveRequest::content(Content::user("second"))),
        speech(),
        said("two"),
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

#[tokio::test]
async fn a_text_model_answers_turn_by_turn_and_a_failure_ends_the_run() {
    let app = Harness::new(llm("root", Scripted::sequence([Reply::text("one"), Reply::text("two")]))).await;
    let mut live = Live::start(&app).await;
    assert_eq!(live.ask("hi").await, ["root: one"]);
    assert_eq!(live.ask("more").await, ["root: two"]);
    live.queue.content(Content::user("too much")).await.unwrap();
    let error = live.end().await.unwrap();
    assert!(matches!(error, RunError::Model(_)), "{error:?}");
}

#[tokio::test]
async fn a_run_whose_events_nobody_reads_is_cancelled() {
    let model = LiveModel::new([vec![said("hello")]]);
    let app = Harness::new(model.agent("root", |_| {})).await;
    let Live { mut run, queue } = Live::start(&app).await;
    queue.content(Content::user("hi")).await.unwrap();
    assert!(run.next().await.unwrap().unwrap().partial);
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
